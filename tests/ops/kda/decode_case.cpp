// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/kda/decode_case.h"

#include <algorithm>
#include <limits>
#include <random>

#include "tests/numbers.h"

namespace apitest {
namespace {

using ref::Array;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  Array operator()(lathe_dtype dtype, int64_t count, double size = 1, double shift = 0) {
    Array values(static_cast<size_t>(count));
    for (double& each : values) each = numbers::rounded(dtype, size * normal_(random_) + shift);
    return values;
  }
  std::mt19937_64& engine() { return random_; }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

// Each sequence has a slot of 3 B, but for one of padding; sources are others, that nobody writes.
void add_slots(const KdaDecodeCase& c, Draw* draw, ref::KdaDecode* a) {
  ref::KdaPool& pool = a->pool;
  pool.slots = 3 * c.batch;
  for (int64_t slot = 0; slot < pool.slots; ++slot) pool.indices.push_back(slot);
  std::shuffle(pool.indices.begin(), pool.indices.end(), draw->engine());
  const std::vector<int64_t> unused(pool.indices.begin() + c.batch, pool.indices.end());
  pool.indices.resize(static_cast<size_t>(c.batch));
  for (int64_t b = 0; b < c.batch && c.sources; ++b) {
    pool.sources.push_back(b % 4 == 3 ? -1 : unused[static_cast<size_t>(b / 2)]);
  }
  pool.null_slot = c.null_slot;
  if (c.batch > 2) pool.indices[static_cast<size_t>(c.batch / 2)] = -1;
  pool.updates = c.updates;
}

void spoil(Array* values, int64_t slots, int64_t slot) {
  const auto each = std::ssize(*values) / slots;
  std::fill_n(values->begin() + slot * each, each, kInfinity);
}

void add_pools(const KdaDecodeCase& c, Draw* draw, ref::KdaDecode* a) {
  const int64_t HV = c.value_heads(), S = a->pool.slots;
  a->pool.states = (*draw)(c.pool_dtype, S * HV * c.key_dim * c.value_dim);
  a->inputs = (*draw)(c.element, S * a->channels() * c.columns);
  for (int64_t slot = 0; slot < S; ++slot) {
    bool read = false;
    for (int64_t b = 0; b < c.batch; ++b) {
      read = read ||
             (!a->pool.is_padding(b) && !a->pool.starts_from_zero(b) && a->pool.start(b) == slot);
    }
    if (!read) spoil(&a->pool.states, S, slot), spoil(&a->inputs, S, slot);
  }
}

void add_rings(const KdaDecodeCase& c, Draw* draw, ref::KdaDecode* a) {
  const int64_t HV = c.value_heads(), S = a->pool.slots, L = c.ring_length;
  a->ring_length = L, a->append = c.append;
  if (L == 0) return;
  a->ring_k = (*draw)(c.element, S * L * c.heads * c.key_dim, 0.2);
  a->ring_u = (*draw)(c.ring_dtype, S * L * HV * c.value_dim);
  a->ring_g = (*draw)(LATHE_F32, S * L * HV * c.key_dim);
  for (double& g : a->ring_g) g = -std::abs(g);
  for (int64_t slot = 0; slot < S; ++slot) {
    a->ring_count.push_back(slot % (L + 1));
    for (Array* each : {&a->ring_k, &a->ring_u, &a->ring_g}) {
      const auto size = std::ssize(*each) / (S * L);
      const auto from = (slot * L + a->ring_count.back()) * size;
      std::fill(each->begin() + from, each->begin() + (slot + 1) * L * size, kInfinity);
    }
  }
}

double bound_of(const KdaDecodeCase& c, const std::string& name) {
  const double narrow = c.element == LATHE_F16 ? 4e-4 : 3e-3;
  if (name == "o") return c.element == LATHE_F32 ? 1e-5 : narrow;
  if (name == "ring_k") return c.element == LATHE_F32 ? 1e-5 : narrow;
  if (name == "ring_u") return 1e-5 + numbers::half_ulp(c.ring_dtype);
  return name == "state_pool" ? 1e-5 + numbers::half_ulp(c.pool_dtype) : 1e-5;
}

// What `expected` leaves as it was `before` has its bits; the rest is within the bound.
void check_changes(const std::string& name, const Array& before, const Array& expected,
                   const Array& actual, double bound) {
  Array found, wanted;
  bool kept = true;
  for (size_t i = 0; i < before.size(); ++i) {
    if (expected[i] == before[i]) {
      kept = kept && actual[i] == before[i];
    } else {
      found.push_back(actual[i]), wanted.push_back(expected[i]);
    }
  }
  CHECK_MESSAGE(kept, name, " keeps what nobody writes");
  check_rms(name, found, wanted, bound, 1e-7);
}

}  // namespace

std::string KdaDecodeCase::text() const {
  std::string out = "dtypes";
  for (const lathe_dtype type : {element, gate_dtype, beta_dtype, weight_dtype, norm_dtype,
                                 output_gate_dtype, pool_dtype, ring_dtype, index_dtype}) {
    out += " " + std::to_string(type);
  }
  out += " H " + std::to_string(heads) + " x " + std::to_string(group) + " K " +
         std::to_string(key_dim) + " V " + std::to_string(value_dim) + " B " +
         std::to_string(batch) + " T " + std::to_string(tokens) + " W " + std::to_string(width) +
         " LS " + std::to_string(columns) + " gate " + std::to_string(gate) + " L " +
         std::to_string(ring_length) + " gap " + std::to_string(gap);
  for (const auto& [name, value] : {std::pair("dt_bias", dt_bias),
                                    {"l2norm", l2norm},
                                    {"sigmoid", sigmoid},
                                    {"negative", negative},
                                    {"v_first", v_first},
                                    {"bias", bias},
                                    {"silu", silu},
                                    {"norm", norm},
                                    {"output_gate", output_gate},
                                    {"gate_silu", gate_silu},
                                    {"sources", sources},
                                    {"updates", updates},
                                    {"append", append}}) {
    if (value) out += std::string(" ") + name;
  }
  return out;
}

ref::KdaDecode make_kda_decode_inputs(const KdaDecodeCase& c, uint64_t seed) {
  Draw draw(seed);
  ref::KdaDecode a;
  ref::Kda& kda = a.kda;
  const int64_t HV = c.value_heads(), rows = c.rows();
  kda.heads = c.heads, kda.value_heads = HV, kda.key_dim = c.key_dim, kda.value_dim = c.value_dim;
  for (int64_t b = 0; b <= c.batch; ++b) kda.begin.push_back(b * c.each());
  kda.scale = 1 / std::sqrt(static_cast<double>(c.key_dim));
  kda.l2norm = c.l2norm, kda.gate = c.gate > 0, kda.lower_bound = c.gate > 1 ? -4.5 : 0;
  kda.sigmoid = c.sigmoid, kda.negative_eigenvalues = c.negative, kda.state_v_first = c.v_first;
  kda.g = draw(c.gate_dtype, rows * HV * c.key_dim);
  for (double& g : kda.g) g = c.gate > 0 ? g : -std::abs(g);
  kda.beta = draw(c.beta_dtype, rows * HV, 0.2, 0.5);
  if (c.gate == 1 || c.gate == 3) kda.A_log = draw(LATHE_F32, HV, 0.7);
  if (c.dt_bias) kda.dt_bias = draw(LATHE_F32, HV * c.key_dim);
  a.tokens = c.each(), a.width = c.width, a.columns = c.columns, a.silu = c.silu;
  a.qkv = draw(c.element, rows * a.channels());
  a.weight = draw(c.weight_dtype, a.channels() * c.width, 0.5);
  if (c.bias) a.bias = draw(c.weight_dtype, a.channels());
  if (c.output_gate) a.output_gate = draw(c.output_gate_dtype, rows * HV * c.value_dim);
  if (c.norm) a.norm_weight = draw(c.norm_dtype, c.value_dim, 0.2, 1);
  a.gate_silu = c.gate_silu;
  add_slots(c, &draw, &a);
  add_rings(c, &draw, &a);
  add_pools(c, &draw, &a);
  return a;
}

Call kda_decode_call(const KdaDecodeCase& c, const ref::KdaDecode& a) {
  Call call;
  call.op = "kda_decode";
  const Placement placed = {c.gap, c.gap, 0, c.gap};
  const int64_t HV = c.value_heads(), K = c.key_dim, V = c.value_dim, S = a.pool.slots;
  const auto rows = [&](std::vector<int64_t> tail) {
    std::vector<int64_t> shape = {c.batch};
    if (c.tokens > 0) shape.push_back(c.tokens);
    shape.insert(shape.end(), tail.begin(), tail.end());
    return shape;
  };
  const auto integers = [&](const char* name, lathe_dtype dtype, int64_t count,
                            const std::vector<int64_t>& values) {
    if (!values.empty()) call.put(name, dtype, {count}, Array(values.begin(), values.end()));
  };
  const auto optional = [&](const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
                            const Array& values, const Placement& placement = {}) {
    if (!values.empty()) call.put(name, dtype, std::move(shape), values, placement);
  };
  call.put("qkv", c.element, rows({a.channels()}), a.qkv, placed);
  call.put("conv_weight", c.weight_dtype, {a.channels(), c.width}, a.weight);
  optional("conv_bias", c.weight_dtype, {a.channels()}, a.bias);
  call.put("conv_pool", c.element, {S, a.channels(), c.columns}, a.inputs, placed);
  call.put("g", c.gate_dtype, rows({HV, K}), a.kda.g, placed);
  call.put("beta", c.beta_dtype, rows({HV}), a.kda.beta, {c.gap / 2, 0, 0, c.gap});
  optional("A_log", LATHE_F32, {HV}, a.kda.A_log);
  optional("dt_bias", LATHE_F32, {HV * K}, a.kda.dt_bias);
  call.put("state_pool", c.pool_dtype,
           c.v_first ? std::vector{S, HV, V, K} : std::vector{S, HV, K, V}, a.pool.states, placed);
  integers("state_indices", c.index_dtype, c.batch, a.pool.indices);
  integers("source_indices", c.index_dtype, c.batch, a.pool.sources);
  optional("output_gate", c.output_gate_dtype, rows({HV, V}), a.output_gate, placed);
  optional("norm_weight", c.norm_dtype, {V}, a.norm_weight);
  if (c.ring_length > 0) {
    const int64_t L = c.ring_length;
    call.put("ring_k", c.element, {S, L, c.heads, K}, a.ring_k);
    call.put("ring_u", c.ring_dtype, {S, L, HV, V}, a.ring_u);
    call.put("ring_g", LATHE_F32, {S, L, HV, K}, a.ring_g);
    integers("ring_count", LATHE_I32, S, a.ring_count);
  }
  for (const char* name : {"conv_pool", "state_pool", "ring_k", "ring_u", "ring_g", "ring_count"}) {
    if (call.tensors.contains(name)) call.tensors.at(name).changed = true;
  }
  call.want("o", c.element, rows({HV, V}), placed);
  const auto flag = [&](const char* name, bool value, const char* word = "1") {
    if (value) call.options[name] = word;
  };
  flag("use_qk_l2norm_in_kernel", c.l2norm), flag("use_gate_in_kernel", c.gate > 0);
  flag("use_beta_sigmoid_in_kernel", c.sigmoid), flag("allow_neg_eigval", c.negative);
  flag("state_v_first", c.v_first), flag("activation", !c.silu, "none");
  flag("gate_activation", c.gate_silu, "silu"), flag("update_state", !c.updates, "0");
  flag("append", !c.append, "0");
  if (c.gate > 1) call.set("lower_bound", -4.5);
  if (c.null_slot != -1) call.set("null_slot", c.null_slot);
  return call;
}

Outputs run_kda_decode(const KdaDecodeCase& c, const ref::KdaDecode& inputs) {
  const Answer answer = execute(shared_context(), kda_decode_call(c, inputs));
  check_findings(answer);
  return answer.outputs;
}

void check_kda_decode(const KdaDecodeCase& c, const ref::KdaDecode& inputs, const Outputs& actual) {
  ref::KdaDecode after = inputs;
  const Array o = ref::kda_decode(&after);
  check_rms("o", actual.at("o"), o, bound_of(c, "o"), 1e-7);
  const auto check = [&](const char* name, const Array& before, const Array& expected) {
    if (before.empty()) return;
    check_changes(name, before, expected, actual.at(name), bound_of(c, name));
  };
  check("state_pool", inputs.pool.states, after.pool.states);
  check("ring_k", inputs.ring_k, after.ring_k), check("ring_u", inputs.ring_u, after.ring_u);
  check("ring_g", inputs.ring_g, after.ring_g);
  CHECK(actual.at("conv_pool") == after.inputs);
  if (c.ring_length == 0) return;
  CHECK(actual.at("ring_count") == Array(after.ring_count.begin(), after.ring_count.end()));
}

}  // namespace apitest
