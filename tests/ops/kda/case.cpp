// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/kda/case.h"

#include <algorithm>
#include <random>

#include "tests/numbers.h"

namespace apitest {
namespace {

using ref::Array;

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
  int64_t below(int64_t count) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
  }
  // Returns a decay of any size: none, weak, strong, and one after which nothing is left.
  double gate() {
    const int64_t kind = below(8);
    return kind == 0 ? 0 : kind == 1 ? -1000 : -std::exp(2 * normal_(random_) - 2);
  }
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

KdaInputs kda_slice(const KdaInputs& inputs, int64_t from, int64_t to) {
  KdaInputs out = inputs;
  for (const auto member : kPerToken) {
    const Array& values = inputs.kda.*member;
    const auto row = std::ssize(values) / inputs.kda.rows();
    out.kda.*member = Array(values.begin() + from * row, values.begin() + to * row);
  }
  out.kda.begin = {0, to - from};
  return out;
}

Placement kda_placement(const KdaCase& kda, int64_t gap) { return {gap, gap, 0, gap, kda.poison}; }

std::vector<int64_t> kda_state_shape(const KdaCase& kda, int64_t slots) {
  return {slots, kda.value_heads(), kda.v_first ? kda.value_dim : kda.key_dim,
          kda.v_first ? kda.key_dim : kda.value_dim};
}

Call kda_base_call(const char* op, const KdaCase& kda, const KdaInputs& inputs, int64_t state_gap) {
  Call call;
  call.op = op;
  const auto flag = [&](const char* name, bool value) {
    if (value) call.options[name] = "1";
  };
  flag("use_qk_l2norm_in_kernel", kda.l2norm);
  flag("use_gate_in_kernel", kda.gate > 0);
  flag("use_beta_sigmoid_in_kernel", kda.sigmoid);
  flag("allow_neg_eigval", kda.negative);
  flag("safe_gate", kda.safe_gate);
  flag("state_v_first", kda.v_first);
  if (kda.gate > 1) call.set("lower_bound", kda.lower_bound);
  if (kda.scale != 0) call.set("scale", kda.scale);
  const ref::Kda& a = inputs.kda;
  const int64_t B = kda.batch_rows(), T = kda.rows() / B;
  const int64_t H = kda.heads, HV = kda.value_heads(), K = kda.key_dim, V = kda.value_dim;
  const auto put = [&](const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
                       const Array& values, int64_t gap) {
    call.put(name, dtype, std::move(shape), values, kda_placement(kda, gap));
  };
  put("q", kda.element, {B, T, H, K}, a.q, kda.gap);
  put("k", kda.element, {B, T, H, K}, a.k, 2 * kda.gap);
  put("v", kda.element, {B, T, HV, V}, a.v, kda.gap);
  put("g", kda.gate_dtype, {B, T, HV, K}, a.g, kda.gap);
  put("beta", kda.beta_dtype, {B, T, HV}, a.beta, kda.gap / 2 + (kda.gap > 0));
  if (!a.A_log.empty()) call.put("A_log", LATHE_F32, {HV}, a.A_log);
  if (!a.dt_bias.empty()) call.put("dt_bias", LATHE_F32, {HV * K}, a.dt_bias);
  if (kda.packed()) {
    call.put("cu_seqlens", kda.index_dtype, {kda.sequences() + 1},
             Array(kda.cu_seqlens.begin(), kda.cu_seqlens.end()));
  }
  if (a.initial_state.empty()) return call;
  put("initial_state", LATHE_F32, kda_state_shape(kda, kda.sequences()), a.initial_state,
      state_gap);
  return call;
}

void put_kda_pool(const KdaCase& kda, const ref::KdaPool& pool, int64_t gap, Call* call) {
  const auto integers = [&](const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
                            const std::vector<int64_t>& values) {
    if (values.empty() && shape[0] != 0) return;
    call->put(name, dtype, std::move(shape), Array(values.begin(), values.end()));
  };
  const int64_t N = kda.sequences();
  call->put("state_pool", kda.pool_dtype, kda_state_shape(kda, pool.slots), pool.states,
            kda_placement(kda, gap));
  call->tensors.at("state_pool").changed = true;
  std::vector<int64_t> shape = {N};
  if (pool.columns > 0) shape.push_back(pool.columns);
  integers("state_indices", kda.index_dtype, shape, pool.indices);
  if (!pool.accepted.empty()) integers("num_accepted_tokens", kda.index_dtype, {N}, pool.accepted);
  if (!pool.sources.empty()) integers("source_indices", kda.index_dtype, {N}, pool.sources);
  if (!pool.has_initial_state.empty()) {
    integers("has_initial_state", LATHE_I32, {N}, pool.has_initial_state);
  }
  if (!pool.cu_checkpoints.empty()) {
    const int64_t count = std::ssize(pool.checkpoint_tokens);
    integers("cu_checkpoints", LATHE_I32, {N + 1}, pool.cu_checkpoints);
    integers("checkpoint_tokens", LATHE_I32, {count}, pool.checkpoint_tokens);
    integers("checkpoint_slots", LATHE_I32, {count}, pool.checkpoint_slots);
  }
  if (pool.null_slot != -1) call->set("null_slot", pool.null_slot);
  if (!pool.updates) call->set("update_state", int64_t{0});
}

void check_kda_pool(const KdaInputs& inputs, const Array& actual, const Array& expected,
                    double bound) {
  const Array& before = inputs.pool.states;
  const auto each = std::ssize(before) / std::max<int64_t>(inputs.pool.slots, 1);
  Array found, wanted;
  for (int64_t at = 0; at < std::ssize(before); at += each) {
    if (std::equal(before.begin() + at, before.begin() + at + each, expected.begin() + at)) {
      CHECK(std::equal(before.begin() + at, before.begin() + at + each, actual.begin() + at));
      continue;
    }
    found.insert(found.end(), actual.begin() + at, actual.begin() + at + each);
    wanted.insert(wanted.end(), expected.begin() + at, expected.begin() + at + each);
  }
  check_rms("state_pool", found, wanted, bound, 1e-7);
}

Outputs run_kda_call(const KdaCase& kda, const Call& call) {
  const Answer answer = execute(shared_context(), call);
  kda.tight ? check_clean(answer) : check_findings(answer);
  return answer.outputs;
}

std::string KdaCase::text() const {
  const char* const kStates[] = {"none", "both", "from", "into", "pool", "columns"};
  return "dtypes " + std::to_string(element) + std::to_string(gate_dtype) +
         std::to_string(beta_dtype) + " H " + std::to_string(heads) + " x " +
         std::to_string(group) + " K " + std::to_string(key_dim) + " V " +
         std::to_string(value_dim) + " T " + std::to_string(tokens) + " N " +
         std::to_string(sequences()) + (packed() ? " packed" : "") + " gate " +
         std::to_string(gate) + (dt_bias ? " dt_bias" : "") + (l2norm ? " l2norm" : "") +
         (sigmoid ? " sigmoid" : "") + (negative ? " negative" : "") + (v_first ? " v_first" : "") +
         " states " + kStates[states] +
         (slot_options != 0 ? " slots " + std::to_string(slot_options) : "") +
         (has_pool() ? " pool " + std::to_string(pool_dtype) : "") + chunked_text();
}

std::string KdaCase::chunked_text() const {
  std::string text;
  for (const int64_t begin : cu_seqlens)
    text += (text.empty() ? " at " : ",") + std::to_string(begin);
  if (padding > 0) text += " padding " + std::to_string(padding);
  if (gap > 0) text += " gap " + std::to_string(gap);
  if (warps > 0) text += " warps " + std::to_string(warps);
  if (wild_slots) text += " wild slots";
  if (any_gates) text += " any gates";
  if (checkpoints > 0) text += " checkpoints " + std::to_string(checkpoints);
  if (chunk_states) text += " chunk_states " + std::to_string(chunk);
  if (segments > 0) text += " segments " + std::to_string(segments);
  if (warmup_segments > 0) text += " warmup_segments " + std::to_string(warmup_segments);
  if (safe_gate) text += " safe_gate";
  if (!backward) return text;
  return text + " backward " + gradients + (dht ? " dht" : "") + (saved ? " saved" : "") +
         (apart ? " apart" : "");
}

namespace {

// `unused` are slots that no sequence writes, which any number of them may read.
void add_slot_options(const KdaCase& kda, const std::vector<int64_t>& unused, Fill* fill,
                      ref::KdaPool* pool) {
  const int64_t count = std::ssize(unused);
  if ((kda.slot_options & 1) != 0) pool->accepted.clear();
  for (int64_t n = 0; n < kda.sequences(); ++n) {
    if ((kda.slot_options & 1) != 0) {
      pool->sources.push_back(fill->below(4) == 0 ? -1 : unused[fill->below(count) / 2]);
    }
    if ((kda.slot_options & 2) != 0) pool->has_initial_state.push_back(fill->below(3));
  }
  if ((kda.slot_options & 4) != 0 && kda.sequences() > 0) {
    const auto& named =
        fill->below(2) == 0 || pool->sources.empty() ? pool->indices : pool->sources;
    pool->null_slot = named[fill->below(std::ssize(named))];
  }
  pool->updates = (kda.slot_options & 8) == 0;
}

// Checkpoints of each sequence, a third of them where a block of 16 tokens ends, in any order.
// Their slots are among the last ones of `unused`, which nobody reads.
void add_checkpoints(const KdaCase& kda, const ref::Kda& a, std::vector<int64_t> unused, Fill* fill,
                     ref::KdaPool* pool) {
  pool->cu_checkpoints = {0};
  for (int64_t n = 0; n < kda.sequences(); ++n) {
    const int64_t tokens = a.begin[n + 1] - a.begin[n];
    for (int64_t count = fill->below(kda.checkpoints + 1); count > 0; --count) {
      const int64_t token = fill->below(tokens + 1);
      const int64_t whole = token / 16 * 16;
      pool->checkpoint_tokens.push_back(fill->below(3) == 0 ? whole : token);
      const bool skipped = fill->below(6) == 0;
      pool->checkpoint_slots.push_back(skipped ? (fill->below(2) ? -1 : pool->null_slot)
                                               : unused.back());
      if (!skipped) unused.pop_back();
    }
    pool->cu_checkpoints.push_back(std::ssize(pool->checkpoint_tokens));
  }
}

ref::KdaPool make_pool(const KdaCase& kda, const ref::Kda& a, Fill* fill) {
  ref::KdaPool pool;
  int64_t longest = 1;
  for (size_t n = 1; n < a.begin.size(); ++n) {
    longest = std::max(longest, a.begin[n] - a.begin[n - 1]);
  }
  // Tokens of a packed sequence that have no column leave no state.
  if (kda.wild_slots && kda.packed()) longest = fill->below(2) ? 3 : 21;
  pool.columns = kda.states == KdaCase::columns ? longest : 0;
  const int64_t used = kda.sequences() * std::max<int64_t>(pool.columns, 1);
  pool.slots = 3 * used + kda.sequences() * kda.checkpoints;
  pool.states =
      fill->operator()(kda.pool_dtype, pool.slots * a.value_heads * a.key_dim * a.value_dim);
  pool.indices = fill->order(pool.slots);
  const std::vector<int64_t> unused(pool.indices.begin() + used, pool.indices.end());
  pool.indices.resize(static_cast<size_t>(used));
  if (used > 2) pool.indices[static_cast<size_t>(used) / 2] = -1;
  const int64_t none[] = {-1, pool.slots, -1000000, 2000000000};
  for (int64_t& slot : pool.indices) {
    if (kda.wild_slots && fill->below(5) == 0) slot = none[fill->below(4)];
  }
  for (int64_t n = 0; n < kda.sequences() && pool.columns > 0; ++n) {
    pool.accepted.push_back(kda.wild_slots ? fill->below(pool.columns + 2) : 1 + n % pool.columns);
  }
  if (kda.wild_slots && fill->below(3) == 0) pool.accepted.clear();
  add_slot_options(kda, {unused.begin(), unused.begin() + 2 * used}, fill, &pool);
  if (kda.checkpoints > 0) add_checkpoints(kda, a, unused, fill, &pool);
  return pool;
}

}  // namespace

KdaInputs make_kda_inputs(const KdaCase& kda, uint64_t seed) {
  Fill fill(seed);
  KdaInputs inputs;
  ref::Kda& a = inputs.kda;
  a.heads = kda.heads, a.value_heads = kda.value_heads();
  a.key_dim = kda.key_dim, a.value_dim = kda.value_dim;
  a.begin = kda.cu_seqlens;
  for (int64_t b = 0; b <= kda.batch && !kda.packed(); ++b) {
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
    const bool strong = !kda.any_gates && fill.share() < kda.strong_share;
    const double drawn = kda.any_gates ? fill.gate() : kda.weakest * fill.share();
    g = strong ? -1000 : numbers::rounded(kda.gate_dtype, drawn);
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
  if (kda.has_pool()) inputs.pool = make_pool(kda, a, &fill);
  return inputs;
}

}  // namespace apitest
