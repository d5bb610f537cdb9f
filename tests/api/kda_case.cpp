// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/kda_case.h"

#include <algorithm>
#include <random>

#include "tests/numbers.h"

namespace apitest {
namespace {

using ref::Array;

bool has_pool(const KdaCase& kda) {
  return kda.states == KdaCase::pool || kda.states == KdaCase::columns;
}

class Fill {
 public:
  explicit Fill(uint64_t seed) : random_(seed) {}
  Array operator()(lathe_dtype dtype, int64_t count, double size = 1, double shift = 0) {
    Array values(static_cast<size_t>(count));
    for (double& value : values) {
      value = numbers::rounded(dtype, size * normal_(random_) + shift);
    }
    return values;
  }
  double share() { return std::uniform_real_distribution<double>()(random_); }
  std::vector<int64_t> order(int64_t count) {
    std::vector<int64_t> out(static_cast<size_t>(count));
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(i);
    std::shuffle(out.begin(), out.end(), random_);
    return out;
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

// One call: tensors by name, what is declared of them, and options.
class Call {
 public:
  Call(lathe_context* context, const char* op) : context_(context) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, op));
    problem_.reset(problem);
  }
  // `open`: how many of the first extents vary.
  Tensor& add(const char* name, lathe_dtype dtype, const std::vector<int64_t>& shape, size_t open,
              int64_t gap = 0) {
    std::vector<int64_t> declared = shape;
    std::fill(declared.begin(), declared.begin() + static_cast<std::ptrdiff_t>(open), -1);
    API(lathe_problem_tensor(problem_.get(), name, dtype, static_cast<int>(shape.size()),
                             declared.data()));
    const Placement placement = {gap, gap, 0, gap};
    auto tensor = std::make_unique<Tensor>(context_, dtype, shape, placement);
    return *(tensors_[name] = std::move(tensor));
  }
  void set(const char* option, const std::string& value) {
    API(lathe_problem_set_string(problem_.get(), option, value.c_str()));
  }
  void run() {
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context_, problem_.get()));
    const Plan plan(made);
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(made));
    for (const auto& [name, tensor] : tensors_) {
      size_t slot = 0;
      API(lathe_plan_slot(made, name.c_str(), &slot));
      slots[slot] = tensor->dl();
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(made, slots.data(), nullptr, &bytes));
    const Memory workspace(context_, bytes);
    API(lathe_plan_run(made, slots.data(), workspace.data(), bytes, nullptr));
    API(lathe_stream_synchronize(context_, nullptr));
  }
  std::vector<double> get(const char* name) const { return tensors_.at(name)->download(); }

 private:
  lathe_context* context_;
  Problem problem_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
};

void set_options(const KdaCase& kda, Call* call) {
  const auto flag = [&](const char* name, bool value) {
    if (value) call->set(name, "1");
  };
  flag("use_qk_l2norm_in_kernel", kda.l2norm);
  flag("use_gate_in_kernel", kda.gate > 0);
  flag("use_beta_sigmoid_in_kernel", kda.sigmoid);
  flag("allow_neg_eigval", kda.negative);
  flag("state_v_first", kda.v_first);
  if (kda.gate > 1) call->set("lower_bound", "-4.5");
  if (kda.scale != 0) call->set("scale", std::to_string(kda.scale));
}

}  // namespace

std::string KdaCase::text() const {
  const char* const kStates[] = {"none", "both", "from", "into", "pool", "columns"};
  return "dtypes " + std::to_string(element) + std::to_string(gate_dtype) +
         std::to_string(beta_dtype) + " H " + std::to_string(heads) + " x " +
         std::to_string(group) + " K " + std::to_string(key_dim) + " V " +
         std::to_string(value_dim) + " T " + std::to_string(tokens) + " N " +
         std::to_string(sequences()) + (cu_seqlens.empty() ? "" : " packed") + " gate " +
         std::to_string(gate) + (dt_bias ? " dt_bias" : "") + (l2norm ? " l2norm" : "") +
         (sigmoid ? " sigmoid" : "") + (negative ? " negative" : "") + (v_first ? " v_first" : "") +
         " states " + kStates[states];
}

KdaInputs make_kda_inputs(const KdaCase& kda, uint64_t seed) {
  Fill fill(seed);
  KdaInputs inputs;
  ref::Kda& a = inputs.kda;
  a.heads = kda.heads, a.value_heads = kda.value_heads();
  a.key_dim = kda.key_dim, a.value_dim = kda.value_dim;
  a.begin = kda.cu_seqlens;
  for (int64_t b = 0; b <= kda.batch && kda.cu_seqlens.empty(); ++b) {
    a.begin.push_back(b * kda.tokens);
  }
  a.scale = kda.scale != 0 ? kda.scale : 1 / std::sqrt(static_cast<double>(kda.key_dim));
  a.l2norm = kda.l2norm, a.sigmoid = kda.sigmoid, a.negative_eigenvalues = kda.negative;
  a.state_v_first = kda.v_first;
  a.gate = kda.gate > 0;
  a.lower_bound = kda.gate > 1 ? -4.5 : 0;
  const int64_t rows = a.rows(), HV = a.value_heads, K = a.key_dim, V = a.value_dim;
  const double key = kda.l2norm ? 2 : 1 / std::sqrt(static_cast<double>(K));
  a.q = fill(kda.element, rows * a.heads * K), a.k = fill(kda.element, rows * a.heads * K, key);
  a.v = fill(kda.element, rows * HV * V);
  a.g = fill(kda.gate_dtype, rows * HV * K, a.gate ? 3 : 0);
  for (double& g : a.g) {
    if (a.gate) break;
    g = fill.share() < kda.strong_share
            ? -1000
            : numbers::rounded(kda.gate_dtype, kda.weakest * fill.share());
  }
  a.beta = fill(kda.beta_dtype, rows * HV, kda.sigmoid ? 1 : 0.2, kda.sigmoid ? 0 : 0.5);
  if (kda.gate == 1 || kda.gate == 3) a.A_log = fill(LATHE_F32, HV, 0.7);
  if (kda.dt_bias) a.dt_bias = fill(LATHE_F32, HV * K);
  const int64_t states = HV * K * V;
  if (kda.states == KdaCase::both || kda.states == KdaCase::from) {
    a.initial_state = fill(LATHE_F32, kda.sequences() * states);
  }
  if (!has_pool(kda)) return inputs;
  ref::KdaPool& pool = inputs.pool;
  int64_t longest = 1;
  for (size_t n = 1; n < a.begin.size(); ++n) {
    longest = std::max(longest, a.begin[n] - a.begin[n - 1]);
  }
  pool.columns = kda.states == KdaCase::columns ? longest : 0;
  const int64_t used = kda.sequences() * std::max<int64_t>(pool.columns, 1);
  pool.slots = 3 * used;
  pool.states = fill(LATHE_F32, pool.slots * states);
  pool.indices = fill.order(pool.slots);
  pool.indices.resize(static_cast<size_t>(used));
  if (used > 2) pool.indices[static_cast<size_t>(used) / 2] = -1;
  for (int64_t n = 0; n < kda.sequences() && pool.columns > 0; ++n) {
    pool.accepted.push_back(1 + n % pool.columns);
  }
  return inputs;
}

KdaValues kda_reference(const KdaCase& kda, const KdaInputs& inputs) {
  if (has_pool(kda)) {
    ref::KdaPool pool = inputs.pool;
    Array o = ref::kda_pool_forward(inputs.kda, &pool);
    return {{"o", std::move(o)}, {"state_pool", std::move(pool.states)}};
  }
  ref::KdaForward forward = ref::kda_forward(inputs.kda);
  KdaValues out = {{"o", std::move(forward.o)}};
  if (kda.states == KdaCase::both || kda.states == KdaCase::into) {
    out["final_state"] = std::move(forward.final_state);
  }
  return out;
}

KdaValues run_kda_recurrent(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs) {
  const ref::Kda& a = inputs.kda;
  const bool packed = !kda.cu_seqlens.empty();
  const int64_t B = packed ? 1 : kda.batch, T = packed ? a.rows() : kda.tokens;
  const int64_t H = kda.heads, HV = kda.value_heads(), K = kda.key_dim, V = kda.value_dim;
  const int64_t N = kda.sequences(), rows = kda.v_first ? V : K, columns = kda.v_first ? K : V;
  Call call(context, "kda_recurrent");
  set_options(kda, &call);
  call.add("q", kda.element, {B, T, H, K}, 2, kda.gap).upload(a.q);
  call.add("k", kda.element, {B, T, H, K}, 2, 2 * kda.gap).upload(a.k);
  call.add("v", kda.element, {B, T, HV, V}, 2, kda.gap).upload(a.v);
  call.add("g", kda.gate_dtype, {B, T, HV, K}, 2, kda.gap).upload(a.g);
  call.add("beta", kda.beta_dtype, {B, T, HV}, 2, kda.gap / 2 + (kda.gap > 0)).upload(a.beta);
  if (!a.A_log.empty()) call.add("A_log", LATHE_F32, {HV}, 0).upload(a.A_log);
  if (!a.dt_bias.empty()) call.add("dt_bias", LATHE_F32, {HV * K}, 0).upload(a.dt_bias);
  const auto integers = [&](const char* name, std::vector<int64_t> shape,
                            const std::vector<int64_t>& values) {
    call.add(name, kda.index_dtype, shape, shape.size())
        .upload(Array(values.begin(), values.end()));
  };
  if (packed) integers("cu_seqlens", {N + 1}, kda.cu_seqlens);
  if (!a.initial_state.empty()) {
    call.add("initial_state", LATHE_F32, {N, HV, rows, columns}, 1, kda.gap)
        .upload(a.initial_state);
  }
  const char* state = has_pool(kda) ? "state_pool" : "final_state";
  const bool written = has_pool(kda) || kda.states == KdaCase::both || kda.states == KdaCase::into;
  if (has_pool(kda)) {
    const ref::KdaPool& pool = inputs.pool;
    call.add(state, LATHE_F32, {pool.slots, HV, rows, columns}, 1, kda.gap).upload(pool.states);
    std::vector<int64_t> shape = {N};
    if (pool.columns > 0) shape.push_back(pool.columns);
    integers("state_indices", shape, pool.indices);
    if (!pool.accepted.empty()) integers("num_accepted_tokens", {N}, pool.accepted);
  } else if (written) {
    call.add(state, LATHE_F32, {N, HV, rows, columns}, 1, kda.gap).poison();
  }
  call.add("o", kda.element, {B, T, HV, V}, 2, kda.gap).poison();
  call.run();
  KdaValues out = {{"o", call.get("o")}};
  if (written) out[state] = call.get(state);
  return out;
}

}  // namespace apitest
