// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_recurrent on the simulator, under every checker, against the token recurrence in double:
// random shapes for each of a set of configurations that covers every width class, type and flag.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/kda/kernels.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/kda.h"
#include "tests/compare.h"
#include "tests/numbers.h"
#include "tests/ref/kda.h"

using lathe::Dtype;
using lathe::KdaProblem;
using lathe::KdaRecurrentParams;
using lathe::KernelSpec;

namespace {

struct Setup {
  Dtype element, gate, beta;
  int k, v;
  int key_lanes, warps;
  int gate_kind, states;
  std::string flags;  // of A_log, dt_bias, sigmoid, l2norm, v_first, packed, wide
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

KdaProblem problem_of(const Setup& s) {
  KdaProblem problem;
  problem.element = s.element, problem.gate = s.gate, problem.beta = s.beta;
  problem.key_dim = s.k, problem.value_dim = s.v;
  problem.cu_seqlens = problem.index = s.has("wide") ? Dtype::i64 : Dtype::i32;
  problem.packed = s.has("packed"), problem.l2norm = s.has("l2norm");
  problem.gate_kind = s.gate_kind, problem.states = s.states;
  problem.A_log = s.has("A_log"), problem.dt_bias = s.has("dt_bias");
  problem.sigmoid = s.has("sigmoid"), problem.state_v_first = s.has("v_first");
  problem.recurrent = true;
  return problem;
}

lathe_dtype number_type(Dtype dtype) { return static_cast<lathe_dtype>(dtype); }

using Bytes = std::vector<uint8_t>;
Bytes encode(Dtype dtype, const ref::Array& values) {
  const size_t bytes = numbers::bytes_of(number_type(dtype));
  Bytes out(std::max<size_t>(values.size() * bytes, 16));
  for (size_t i = 0; i < values.size(); ++i) {
    numbers::encode(number_type(dtype), values[i], &out[i * bytes]);
  }
  return out;
}
ref::Array decode(Dtype dtype, const Bytes& from, size_t count) {
  const size_t bytes = numbers::bytes_of(number_type(dtype));
  ref::Array out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = numbers::decode(number_type(dtype), &from[i * bytes]);
  }
  return out;
}

// Random inputs, rounded to their types, and the states around them.
struct Call {
  ref::Kda kda;
  ref::KdaPool pool;
  int padding = 0;  // rows past the last offset
  bool initial = true, final = true;
};

Call draw(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  const auto fill = [&](Dtype dtype, int64_t count, double size = 1, double shift = 0) {
    ref::Array values(static_cast<size_t>(count));
    for (double& value : values) {
      value = numbers::rounded(number_type(dtype), size * normal(random) + shift);
    }
    return values;
  };
  Call c;
  ref::Kda& a = c.kda;
  a.heads = one_of({1, 2}), a.value_heads = a.heads * one_of({1, 2, 3});
  a.key_dim = s.k, a.value_dim = s.v;
  a.scale = static_cast<float>(1 / std::sqrt(s.k));
  const int sequences = one_of({1, 2, 3}), tokens = one_of({1, 2, 4, 5, 9, 17});
  a.begin = {0};
  for (int n = 0; n < sequences; ++n) {
    a.begin.push_back(a.begin.back() + (s.has("packed") ? one_of({0, 1, 3, 8, 21}) : tokens));
  }
  if (s.has("packed")) c.padding = one_of({0, 0, 3});
  const int64_t rows = a.rows(), HV = a.value_heads;
  a.l2norm = s.has("l2norm"), a.sigmoid = s.has("sigmoid");
  a.negative_eigenvalues = a.sigmoid && seed % 2 == 0;
  a.state_v_first = s.has("v_first");
  a.gate = s.gate_kind != lathe::kKdaGateGiven;
  if (s.gate_kind == lathe::kKdaGateBounded) a.lower_bound = -5;
  a.q = fill(s.element, rows * a.heads * s.k), a.v = fill(s.element, rows * HV * s.v);
  // Without a norm in the kernel keys of about norm 1, as the recurrence wants them.
  a.k = fill(s.element, rows * a.heads * s.k, a.l2norm ? 3 : 1 / std::sqrt(s.k));
  a.g = fill(s.gate, rows * HV * s.k, a.gate ? 3 : 0.05, a.gate ? 0 : -0.3);
  for (double& g : a.g) {
    const unsigned draw = random() % 16;
    if (!a.gate) g = draw == 0 ? -1000 : draw == 1 ? 0 : std::min(g, 0.0);
  }
  a.beta = fill(s.beta, rows * HV, a.sigmoid ? 1 : 0.2, a.sigmoid ? 0 : 0.5);
  if (s.has("A_log")) a.A_log = fill(Dtype::f32, HV, 0.7);
  if (s.has("dt_bias")) a.dt_bias = fill(Dtype::f32, HV * s.k);
  const int64_t state = HV * s.k * s.v;
  c.initial = random() % 4 != 0, c.final = random() % 4 != 0;
  if (s.states == lathe::kKdaStatesPlain) {
    if (c.initial) a.initial_state = fill(Dtype::f32, sequences * state);
    return c;
  }
  const bool columns = s.states == lathe::kKdaStatesColumns;
  c.pool.columns = columns ? one_of({3, 21}) : 0;
  const int64_t each = std::max<int64_t>(c.pool.columns, 1);
  c.pool.slots = sequences * each + 2;
  c.pool.states = fill(Dtype::f32, c.pool.slots * state);
  std::vector<int64_t> slots(static_cast<size_t>(c.pool.slots));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
  std::shuffle(slots.begin(), slots.end(), random);
  c.pool.indices.assign(slots.begin(), slots.begin() + sequences * each);
  // Padding: below the pool, and above it as well.
  const int64_t none[] = {-1, c.pool.slots, -1000000, 2000000000};
  for (int64_t& slot : c.pool.indices) {
    if (random() % 5 == 0) slot = none[random() % 4];
  }
  for (int n = 0; n < sequences && columns && seed % 3 != 0; ++n) {
    c.pool.accepted.push_back(static_cast<int64_t>(random() % (each + 2)));
  }
  return c;
}

struct Buffers {
  uint64_t o = 0, states = 0;
};

Buffers upload(sim::test::Device& device, const Setup& s, const Call& c, KdaRecurrentParams* p) {
  const ref::Kda& a = c.kda;
  const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  const int64_t rows = a.rows() + c.padding;
  // q, k and v are columns of one buffer, as a projection leaves them; the rows are a bit wider.
  const size_t element = numbers::bytes_of(number_type(s.element));
  const int64_t keys = a.heads * s.k, values = a.value_heads * s.v, gap = 8;
  const int64_t width = 2 * keys + values + gap;
  ref::Array joint(static_cast<size_t>(rows * width), std::nan(""));
  for (int64_t row = 0; row < a.rows(); ++row) {
    const auto place = [&](const ref::Array& from, int64_t columns, int64_t to) {
      std::copy_n(from.begin() + row * columns, columns, joint.begin() + row * width + to);
    };
    place(a.q, keys, 0), place(a.k, keys, keys), place(a.v, values, 2 * keys);
  }
  const uint64_t base = device.upload(encode(s.element, joint));
  p->q = at(base), p->k = at(base + keys * element), p->v = at(base + 2 * keys * element);
  p->q_token_stride = p->k_token_stride = p->v_token_stride = width;
  p->q_head_stride = p->k_head_stride = s.k, p->v_head_stride = s.v;
  p->g = at(device.upload(encode(s.gate, a.g)));
  p->g_token_stride = a.value_heads * s.k, p->g_head_stride = s.k;
  p->beta = at(device.upload(encode(s.beta, a.beta)));
  p->beta_token_stride = a.value_heads;
  p->A_log = a.A_log.empty() ? nullptr : at(device.upload(encode(Dtype::f32, a.A_log)));
  p->dt_bias = a.dt_bias.empty() ? nullptr : at(device.upload(encode(Dtype::f32, a.dt_bias)));
  Buffers b;
  b.o = device.buffer(std::max<uint64_t>(rows * values * element, 16));
  p->o = at(b.o);
  p->o_token_stride = values, p->o_head_stride = s.v;
  p->tokens = static_cast<int>(s.has("packed") ? rows : a.begin[1]);
  if (!s.has("packed")) {
    p->q_batch_stride = p->k_batch_stride = p->v_batch_stride = p->tokens * width;
    p->g_batch_stride = p->tokens * p->g_token_stride;
    p->beta_batch_stride = p->tokens * p->beta_token_stride;
    p->o_batch_stride = p->tokens * p->o_token_stride;
  }
  const auto integers = [&](const std::vector<int64_t>& from) {
    const Dtype dtype = s.has("wide") ? Dtype::i64 : Dtype::i32;
    return at(device.upload(encode(dtype, ref::Array(from.begin(), from.end()))));
  };
  p->cu_seqlens = s.has("packed") ? integers(a.begin) : nullptr;

  const int64_t state = s.k * s.v;
  p->in_head_stride = p->out_head_stride = state;
  p->in_slot_stride = p->out_slot_stride = state * a.value_heads;
  p->in_row_stride = p->out_row_stride = a.state_v_first ? s.k : s.v;
  if (s.states == lathe::kKdaStatesPlain) {
    if (c.initial) p->state_in = at(device.upload(encode(Dtype::f32, a.initial_state)));
    if (c.final) b.states = device.buffer(a.sequences() * a.value_heads * state * 4);
  } else {
    b.states = device.upload(encode(Dtype::f32, c.pool.states));
    p->state_in = at(b.states);
    p->state_indices = integers(c.pool.indices);
    if (!c.pool.accepted.empty()) p->num_accepted_tokens = integers(c.pool.accepted);
  }
  p->state_out = at(b.states);
  p->sequences = static_cast<int>(a.sequences());
  p->heads = static_cast<int>(a.heads), p->value_heads = static_cast<int>(a.value_heads);
  p->slots = static_cast<int>(c.pool.slots), p->columns = static_cast<int>(c.pool.columns);
  p->scale = static_cast<float>(a.scale), p->lower_bound = static_cast<float>(a.lower_bound);
  p->beta_factor = a.negative_eigenvalues ? 2 : 1;
  return b;
}

void check_near(const char* name, const ref::Array& actual, const ref::Array& expected,
                double bound) {
  const auto verdict =
      compare::compare(name, actual, expected, {static_cast<int64_t>(expected.size())},
                       {compare::Rule::kRms, bound, 1e-7});
  CHECK_MESSAGE(verdict.ok, verdict.text);
}

// What the float32 arithmetic may lose, and one rounding of o.
double bound_of(Dtype dtype) {
  return dtype == Dtype::f32 ? 3e-6 : dtype == Dtype::f16 ? 4e-4 : 3e-3;
}

Buffers run(sim::test::Device& device, const Setup& s, const KernelSpec& spec, const Call& c) {
  KdaRecurrentParams p = {};
  const Buffers buffers = upload(device, s, c, &p);
  const ref::Kda& a = c.kda;
  const lathe::KdaShape shape = {a.sequences(), a.heads, a.value_heads, a.rows()};
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome = device.run("entry", lathe::kda_recurrent_grid(spec, shape).x,
                                  static_cast<uint32_t>(spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);

  ref::Array o, states;
  if (s.states == lathe::kKdaStatesPlain) {
    const auto forward = ref::kda_forward(a);
    o = forward.o;
    states = forward.final_state;
  } else {
    ref::KdaPool pool = c.pool;
    o = ref::kda_pool_forward(a, &pool);
    states = pool.states;
  }
  o.resize(o.size() + static_cast<size_t>(c.padding) * a.value_heads * s.v);
  const size_t element = numbers::bytes_of(number_type(s.element));
  const auto actual =
      decode(s.element, device.download<uint8_t>(buffers.o, o.size() * element), o.size());
  check_near("o", actual, o, bound_of(s.element));
  if (buffers.states == 0) return buffers;
  const auto left = decode(Dtype::f32, device.download<uint8_t>(buffers.states, states.size() * 4),
                           states.size());
  check_near("states", left, states, 3e-6);
  const auto per_slot = static_cast<size_t>(a.value_heads) * a.state_size();
  for (size_t i = 0; i < c.pool.states.size(); i += per_slot) {
    const auto before = c.pool.states.begin() + static_cast<std::ptrdiff_t>(i);
    const auto expected = states.begin() + static_cast<std::ptrdiff_t>(i);
    const auto n = static_cast<std::ptrdiff_t>(per_slot);
    if (!std::equal(before, before + n, expected)) continue;
    CHECK(std::equal(before, before + n, left.begin() + static_cast<std::ptrdiff_t>(i)));
  }
  return buffers;
}

using lathe::kKdaGateBounded, lathe::kKdaGateGiven, lathe::kKdaGateSoftplus;
using lathe::kKdaStatesColumns, lathe::kKdaStatesPlain, lathe::kKdaStatesPool;
constexpr Dtype kF32 = Dtype::f32, kF16 = Dtype::f16, kBf16 = Dtype::bf16;

const std::vector<Setup> kSetups = {
    {kF32, kF32, kF32, 128, 128, 16, 4, kKdaGateGiven, kKdaStatesPlain, ""},
    {kBf16, kF32, kBf16, 128, 128, 16, 4, kKdaGateBounded, kKdaStatesPool,
     "A_log dt_bias sigmoid l2norm"},
    {kBf16, kBf16, kF32, 128, 64, 16, 2, kKdaGateSoftplus, kKdaStatesColumns,
     "A_log dt_bias l2norm packed wide"},
    {kF32, kF16, kF16, 60, 100, 16, 4, kKdaGateGiven, kKdaStatesPlain, "sigmoid packed v_first"},
    {kF16, kF32, kF16, 256, 36, 16, 4, kKdaGateBounded, kKdaStatesPlain, "dt_bias l2norm"},
    {kF32, kF32, kF32, 256, 256, 16, 4, kKdaGateSoftplus, kKdaStatesPool,
     "A_log sigmoid l2norm v_first wide"},
    {kF16, kF16, kF32, 8, 8, 8, 1, kKdaGateGiven, kKdaStatesColumns, "v_first"},
    {kF32, kF32, kBf16, 32, 140, 8, 4, kKdaGateSoftplus, kKdaStatesPlain, "A_log packed wide"},
    {kBf16, kF32, kF32, 68, 32, 16, 2, kKdaGateGiven, kKdaStatesPool, "packed sigmoid"},
    {kF32, kF32, kF32, 192, 192, 16, 8, kKdaGateBounded, kKdaStatesColumns,
     "A_log dt_bias sigmoid v_first packed"},
};

}  // namespace

TEST_CASE("kda_recurrent: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const KernelSpec spec = lathe::kda_recurrent_spec(problem_of(s), {s.key_lanes, s.warps});
    CAPTURE(spec.text());
    const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    MESSAGE(spec.text(), ": ", compiled->report.registers, " registers");
    CHECK(compiled->report.stack_bytes == 0);
    CHECK(compiled->report.spill_stores == 0);
    for (int turn = 0; turn < 5; ++turn, ++seed) {
      CAPTURE(seed);
      const Call c = draw(s, seed);
      if (c.kda.rows() + c.padding == 0) continue;
      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      device.load(compiled->ptx);
      run(device, s, spec, c);
    }
  }
}

TEST_CASE("kda_recurrent: every tile gives the same bits") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  Setup s = {kBf16, kF32, kBf16, 64, 100, 16, 4, kKdaGateBounded, kKdaStatesPool, "l2norm sigmoid"};
  const KdaProblem problem = problem_of(s);
  const Call c = draw(s, 4);
  const auto tiles = lathe::kda_recurrent_candidates(problem, *lathe::facts_of_arch("sm_80"));
  REQUIRE(tiles.size() == 4);
  Bytes first;
  for (const lathe::KdaRecurrentTile& tile : tiles) {
    const KernelSpec spec = lathe::kda_recurrent_spec(problem, tile);
    CAPTURE(spec.text());
    const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    sim::test::Device device("sm_80");
    device.settings.seed = static_cast<uint64_t>(tile.warps);
    device.load(compiled->ptx);
    const Buffers buffers = run(device, s, spec, c);
    Bytes all = device.download<uint8_t>(buffers.o, c.kda.v.size() * 2);
    const Bytes states = device.download<uint8_t>(buffers.states, c.pool.states.size() * 4);
    all.insert(all.end(), states.begin(), states.end());
    if (first.empty()) first = all;
    CHECK(all == first);
  }
}

// One token at row 5 of a packed axis and one state in slot 3, with strides whose products pass
// 2^32 elements: the tensors themselves lie elsewhere and only what is used of them exists.
TEST_CASE("kda_recurrent: offsets are 64 bits wide") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  const Setup s = {kF32, kF32, kF32, 32, 32, 8, 1, kKdaGateGiven, kKdaStatesPool, "packed"};
  const KernelSpec spec = lathe::kda_recurrent_spec(problem_of(s), {s.key_lanes, s.warps});
  const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  Call c;
  c.kda.key_dim = c.kda.value_dim = 32;
  c.kda.begin = {0, 1};
  c.kda.q = c.kda.k = c.kda.v = ref::Array(32, 0.25);
  c.kda.g = ref::Array(32, -0.5), c.kda.beta = {0.5};
  c.kda.scale = 1;
  c.pool = {4, 0, {3}, {}, ref::Array(4 * 32 * 32, 0.125)};
  sim::test::Device device("sm_80");
  device.load(compiled->ptx);
  KdaRecurrentParams p = {};
  const Buffers buffers = upload(device, s, c, &p);
  constexpr long long kRow = 5, kSlot = 3, kStride = (1ll << 30) + 4, kElement = 4;
  const auto shift = [](const void* from, long long elements) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(from) -
                                   static_cast<uintptr_t>(elements * kElement));
  };
  p.cu_seqlens = reinterpret_cast<void*>(device.upload(std::vector<int>{5, 6}));
  p.tokens = 6;
  for (const void** each : {&p.q, &p.k, &p.v, &p.g, &p.beta}) *each = shift(*each, kRow * kStride);
  p.o = shift(p.o, kRow * kStride);
  p.q_token_stride = p.k_token_stride = p.v_token_stride = p.g_token_stride = kStride;
  p.beta_token_stride = p.o_token_stride = kStride;
  // The pool's slot 3 lies where it was.
  const long long gap = kSlot * (kStride - p.in_slot_stride);
  p.state_in = shift(p.state_in, gap), p.state_out = shift(p.state_out, gap);
  p.in_slot_stride = p.out_slot_stride = kStride;
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome = device.run("entry", lathe::kda_recurrent_grid(spec, {1, 1, 1, 1}).x,
                                  static_cast<uint32_t>(spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  ref::KdaPool pool = c.pool;
  const ref::Array o = ref::kda_pool_forward(c.kda, &pool);
  check_near("o", decode(kF32, device.download<uint8_t>(buffers.o, 128), 32), o, 3e-6);
  const auto states = device.download<uint8_t>(buffers.states, pool.states.size() * 4);
  check_near("states", decode(kF32, states, pool.states.size()), pool.states, 3e-6);
}
