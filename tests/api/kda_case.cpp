// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/kda_case.h"

#include <algorithm>
#include <random>

#include "tests/api/kda_call.h"
#include "tests/harness/graph_client.h"
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

}  // namespace

KdaCall::KdaCall(lathe_context* context, const char* op, const KdaSeat* seat)
    : context_(context), seat_(seat) {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, op));
  problem_.reset(problem);
}

Tensor& KdaCall::add(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape,
                     size_t open, const Placement& placement) {
  std::vector<int64_t> declared = shape;
  std::fill(declared.begin(), declared.begin() + static_cast<std::ptrdiff_t>(open), -1);
  API(lathe_problem_tensor(problem_.get(), name.c_str(), dtype, static_cast<int>(shape.size()),
                           declared.data()));
  auto tensor =
      std::make_unique<Tensor>(context_, dtype, shape, placement, seat_ ? seat_->stream : nullptr);
  return *(tensors_[name] = std::move(tensor));
}

void KdaCall::set(const std::string& option, const std::string& value) {
  API(lathe_problem_set_string(problem_.get(), option.c_str(), value.c_str()));
}

void KdaCall::prepare() {
  if (seat_) API(lathe_problem_group(problem_.get(), seat_->group, seat_->flags));
  lathe_plan* made = nullptr;
  API(lathe_plan_create(&made, context_, problem_.get()));
  plan_.reset(made);
  slots_.assign(lathe_plan_slot_count(made), nullptr);
  for (const auto& [name, tensor] : tensors_) {
    size_t slot = 0;
    API(lathe_plan_slot(made, name.c_str(), &slot));
    slots_[slot] = others_.contains(name) ? others_.at(name) : tensor->dl();
  }
  size_t bytes = 0;
  if (seat_) API(lathe_shard_prepare(seat_->shard, made));
  API(lathe_plan_workspace(made, slots_.data(), seat_ ? seat_->shard : nullptr, &bytes));
  workspace_ = std::make_unique<Memory>(context_, bytes);
}

lathe_estimate KdaCall::estimate() const {
  lathe_estimate out = {};
  out.size = sizeof out;
  API(lathe_plan_estimate(plan_.get(), slots_.data(), seat_ ? seat_->shard : nullptr, &out));
  return out;
}

void KdaCall::run() {
  if (!plan_) prepare();
  const size_t bytes = workspace_->bytes();
  const std::vector<unsigned char> stale(bytes, 0xff);
  if (bytes > 0) {
    API(lathe_copy_to_device(context_, workspace_->data(), stale.data(), bytes,
                             seat_ ? seat_->stream : nullptr));
  }
  if (seat_) {
    const auto enqueue = [&] {
      API(lathe_plan_run_sharded(plan_.get(), seat_->shard, slots_.data(), workspace_->data(),
                                 bytes, seat_->stream));
    };
    if (seat_->captured) {
      const CapturedGraph graph(context_, seat_->stream, enqueue);
      graph.launch();
      API(lathe_stream_synchronize(context_, seat_->stream));
    } else {
      enqueue();
    }
    API(lathe_stream_synchronize(context_, seat_->stream));
    API(lathe_group_error(seat_->group));
    return;
  }
  API(lathe_plan_run(plan_.get(), slots_.data(), workspace_->data(), bytes, nullptr));
  API(lathe_stream_synchronize(context_, nullptr));
}

void set_kda_options(const KdaCase& kda, KdaCall* call) {
  const auto flag = [&](const char* name, bool value) {
    if (value) call->set(name, "1");
  };
  flag("use_qk_l2norm_in_kernel", kda.l2norm);
  flag("use_gate_in_kernel", kda.gate > 0);
  flag("use_beta_sigmoid_in_kernel", kda.sigmoid);
  flag("allow_neg_eigval", kda.negative);
  flag("safe_gate", kda.safe_gate);
  flag("state_v_first", kda.v_first);
  if (kda.gate > 1) call->set("lower_bound", std::to_string(kda.lower_bound));
  if (kda.scale != 0) call->set("scale", std::to_string(kda.scale));
}

Placement kda_placement(const KdaCase& kda, int64_t gap) { return {gap, gap, 0, gap, kda.poison}; }

std::vector<int64_t> kda_state_shape(const KdaCase& kda, int64_t slots) {
  return {slots, kda.value_heads(), kda.v_first ? kda.value_dim : kda.key_dim,
          kda.v_first ? kda.key_dim : kda.value_dim};
}

void add_kda_inputs(const KdaCase& kda, const KdaInputs& inputs, int64_t state_gap, KdaCall* call) {
  const ref::Kda& a = inputs.kda;
  const bool packed = !kda.cu_seqlens.empty();
  const int64_t B = packed ? 1 : kda.batch, T = kda.rows() / B;
  const int64_t H = kda.heads, HV = kda.value_heads(), K = kda.key_dim, V = kda.value_dim;
  const Placement near = kda_placement(kda, kda.gap), far = kda_placement(kda, 2 * kda.gap),
                  odd = kda_placement(kda, kda.gap / 2 + (kda.gap > 0)),
                  states = kda_placement(kda, state_gap);
  call->add("q", kda.element, {B, T, H, K}, 2, near).upload(a.q);
  call->add("k", kda.element, {B, T, H, K}, 2, far).upload(a.k);
  call->add("v", kda.element, {B, T, HV, V}, 2, near).upload(a.v);
  call->add("g", kda.gate_dtype, {B, T, HV, K}, 2, near).upload(a.g);
  call->add("beta", kda.beta_dtype, {B, T, HV}, 2, odd).upload(a.beta);
  if (!a.A_log.empty()) call->add("A_log", LATHE_F32, {HV}, 0).upload(a.A_log);
  if (!a.dt_bias.empty()) call->add("dt_bias", LATHE_F32, {HV * K}, 0).upload(a.dt_bias);
  if (packed) {
    call->add("cu_seqlens", kda.index_dtype, {kda.sequences() + 1}, 1)
        .upload(Array(kda.cu_seqlens.begin(), kda.cu_seqlens.end()));
  }
  if (a.initial_state.empty()) return;
  call->add("initial_state", LATHE_F32, kda_state_shape(kda, kda.sequences()), 1, states)
      .upload(a.initial_state);
}

std::string KdaCase::text() const {
  const char* const kStates[] = {"none", "both", "from", "into", "pool", "columns"};
  return "dtypes " + std::to_string(element) + std::to_string(gate_dtype) +
         std::to_string(beta_dtype) + " H " + std::to_string(heads) + " x " +
         std::to_string(group) + " K " + std::to_string(key_dim) + " V " +
         std::to_string(value_dim) + " T " + std::to_string(tokens) + " N " +
         std::to_string(sequences()) + (cu_seqlens.empty() ? "" : " packed") + " gate " +
         std::to_string(gate) + (dt_bias ? " dt_bias" : "") + (l2norm ? " l2norm" : "") +
         (sigmoid ? " sigmoid" : "") + (negative ? " negative" : "") + (v_first ? " v_first" : "") +
         " states " + kStates[states] + chunked_text();
}

std::string KdaCase::chunked_text() const {
  std::string text;
  for (const int64_t begin : cu_seqlens)
    text += (text.empty() ? " at " : ",") + std::to_string(begin);
  if (padding > 0) text += " padding " + std::to_string(padding);
  if (gap > 0) text += " gap " + std::to_string(gap);
  if (chunk_states) text += " chunk_states " + std::to_string(chunk);
  if (segments > 0) text += " segments " + std::to_string(segments);
  if (warmup_segments > 0) text += " warmup_segments " + std::to_string(warmup_segments);
  if (safe_gate) text += " safe_gate";
  if (!backward) return text;
  return text + " backward " + gradients + (dht ? " dht" : "") + (saved ? " saved" : "") +
         (apart ? " apart" : "");
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
  a.lower_bound = kda.gate > 1 ? kda.lower_bound : 0;
  a.chunk = kda.chunk;
  const int64_t rows = kda.rows(), HV = a.value_heads, K = a.key_dim, V = a.value_dim;
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
  if (kda.backward) a.d_o = fill(kda.element, rows * HV * V);
  if (kda.backward && kda.dht) a.dht = fill(LATHE_F32, kda.sequences() * states);
  for (Array* each : {&a.q, &a.k, &a.v, &a.g, &a.beta, &a.d_o}) {
    const size_t behind = each->size() / static_cast<size_t>(std::max<int64_t>(rows, 1)) *
                          static_cast<size_t>(kda.padding);
    std::fill(each->end() - static_cast<std::ptrdiff_t>(behind), each->end(), NAN);
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
  const int64_t B = kda.cu_seqlens.empty() ? kda.batch : 1, T = kda.rows() / B;
  const Placement placement = kda_placement(kda, kda.gap);
  KdaCall call(context, "kda_recurrent");
  set_kda_options(kda, &call);
  add_kda_inputs(kda, inputs, kda.gap, &call);
  const auto integers = [&](const char* name, std::vector<int64_t> shape,
                            const std::vector<int64_t>& values) {
    call.add(name, kda.index_dtype, shape, shape.size())
        .upload(Array(values.begin(), values.end()));
  };
  const char* state = has_pool(kda) ? "state_pool" : "final_state";
  const bool written = has_pool(kda) || kda.states == KdaCase::both || kda.states == KdaCase::into;
  if (has_pool(kda)) {
    const ref::KdaPool& pool = inputs.pool;
    call.add(state, LATHE_F32, kda_state_shape(kda, pool.slots), 1, placement).upload(pool.states);
    std::vector<int64_t> shape = {kda.sequences()};
    if (pool.columns > 0) shape.push_back(pool.columns);
    integers("state_indices", shape, pool.indices);
    if (!pool.accepted.empty()) integers("num_accepted_tokens", {kda.sequences()}, pool.accepted);
  } else if (written) {
    call.add(state, LATHE_F32, kda_state_shape(kda, kda.sequences()), 1, placement).poison();
  }
  call.add("o", kda.element, {B, T, kda.value_heads(), kda.value_dim}, 2, placement).poison();
  call.run();
  KdaValues out = {{"o", call.get("o")}};
  if (written) out[state] = call.get(state);
  return out;
}

}  // namespace apitest
