// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward and kda_backward_finish on the simulator, under every checker: errors against the
// recurrence in double, what is not wanted, what must not leak, and repetitions.
#include "tests/templates/kda_gradients.h"

using namespace kda_case;

namespace {

const std::vector<Setup> kSetups = {
    {LATHE_BF16, LATHE_BF16, LATHE_F32, 128, 4, "l2norm gate_b factor bias sigmoid final"},
    {LATHE_BF16, LATHE_F32, LATHE_BF16, 128, 4,
     "packed l2norm gate_a factor bias sigmoid initial grouped"},
    {LATHE_F16, LATHE_F32, LATHE_F32, 256, 4, "packed l2norm final narrow grouped"},
    {LATHE_BF16, LATHE_BF16, LATHE_BF16, 64, 4, "packed gate_b bias initial final v_first"},
    {LATHE_BF16, LATHE_F32, LATHE_F32, 128, 4, "packed l2norm gate_a factor bias wide_block"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "l2norm gate_a factor bias sigmoid final"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 128, 4, "packed initial grouped"},
};

}  // namespace

TEST_CASE("the gradients of kda: every configuration, from exact states") {
  if (!compiled(finish_spec())) return;
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    CAPTURE(gradient_spec(s).text());
    for (int turn = 0; turn < 2; ++turn, ++seed) {
      const bool packed = s.has("packed");
      const std::vector<int64_t> begin =
          packed ? std::vector<int64_t>{0, 0, 5, 5 + 64 * turn, 150, 150}
                 : std::vector<int64_t>{0, 70 + 30 * turn, 2 * (70 + 30 * turn)};
      ref::Kda a =
          make_case(s, seed, begin, 1 + turn, s.has("grouped") ? 3 - turn : 1,
                    s.width - 12 * turn - (s.has("narrow") ? 0 : 4 * turn), turn == 0 ? 64 : 72);
      add_gradients(s, seed, &a);
      CAPTURE(seed);
      const Gradients got =
          run_gradients(s, a, left_of(a, packed), {seed, static_cast<int>(seed % 3), ""});
      compare(s, got, ref::kda_backward(a));
    }
  }
}

namespace {

bool same(const ref::Array& a, const ref::Array& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(a[i] == b[i])) return false;  // a NaN is no repetition
  }
  return true;
}

const Setup kPacked = {LATHE_BF16, LATHE_F32, LATHE_BF16,
                       64,         4,         "packed l2norm gate_a factor bias sigmoid grouped"};

// Sequences of 20, 0, 70 and 33 tokens, two query heads of two value heads each.
ref::Kda packed_case(const Setup& s, uint32_t seed) {
  ref::Kda a = make_case(s, seed, {0, 20, 20, 90, 123}, 2, s.has("grouped") ? 2 : 1, 56, 40);
  add_gradients(s, seed, &a);
  return a;
}

void spoil(ref::Array* x, int64_t first, int64_t last, int64_t each) {
  std::fill(x->begin() + first * each, x->begin() + last * each, std::nan(""));
}

// Rows [first, last) of both are the same.
void check_rows(const char* name, const ref::Array& a, const ref::Array& b, int64_t first,
                int64_t last, int64_t each) {
  INFO(std::string(name));
  CHECK(same(ref::Array(a.begin() + first * each, a.begin() + last * each),
             ref::Array(b.begin() + first * each, b.begin() + last * each)));
}

}  // namespace

TEST_CASE("the gradients of kda: a sequence of NaN spoils no other") {
  if (!compiled(finish_spec())) return;
  const ref::Kda a = packed_case(kPacked, 5);
  const Left left = left_of(a, true);
  const Gradients clean = run_gradients(kPacked, a, left, {});
  ref::Kda b = a;
  Left spoilt = left;
  const int64_t first = 20, last = 90;  // sequence 2, in slots 2 and 3
  const int64_t keys = a.heads * a.key_dim, gates = a.value_heads * a.key_dim;
  const int64_t values = a.value_heads * a.value_dim, states = gates * a.value_dim;
  for (ref::Array* x : {&b.q, &b.k}) spoil(x, first, last, keys);
  for (ref::Array* x : {&b.v, &b.d_o, &spoilt.values, &spoilt.value_grads}) {
    spoil(x, first, last, values);
  }
  spoil(&b.g, first, last, gates), spoil(&b.beta, first, last, a.value_heads);
  for (ref::Array* x : {&spoilt.states, &spoilt.state_grads}) spoil(x, 2, 4, states);
  const Gradients got = run_gradients(kPacked, b, spoilt, {});
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, first}, {last, a.rows()}}) {
    check_rows("dq", got.dq, clean.dq, from, to, keys);
    check_rows("dk", got.dk, clean.dk, from, to, keys);
    check_rows("dv", got.dv, clean.dv, from, to, values);
    check_rows("dg", got.dg, clean.dg, from, to, gates);
    check_rows("dbeta", got.dbeta, clean.dbeta, from, to, a.value_heads);
  }
  CHECK(std::isnan(got.dq[static_cast<size_t>(first * keys)]));
}

TEST_CASE("the gradients of kda: a head of NaN spoils no other") {
  if (!compiled(finish_spec())) return;
  const ref::Kda a = packed_case(kPacked, 6);
  const Left left = left_of(a, true);
  const Gradients clean = run_gradients(kPacked, a, left, {});
  ref::Kda b = a;
  Left spoilt = left;
  const auto second = [](ref::Array* x, int64_t each) {  // of two query heads, or what reads it
    for (int64_t at = each; at < static_cast<int64_t>(x->size()); at += 2 * each) {
      std::fill(x->begin() + at, x->begin() + at + each, std::nan(""));
    }
  };
  const int64_t group = 2, keys = a.key_dim, values = group * a.value_dim;
  for (ref::Array* x : {&b.q, &b.k}) second(x, keys);
  for (ref::Array* x : {&b.g, &b.dt_bias}) second(x, group * keys);
  for (ref::Array* x : {&b.v, &b.d_o, &spoilt.values, &spoilt.value_grads}) second(x, values);
  for (ref::Array* x : {&b.beta, &b.A_log}) second(x, group);
  for (ref::Array* x : {&spoilt.states, &spoilt.state_grads}) second(x, values * keys);
  const Gradients got = run_gradients(kPacked, b, spoilt, {});
  const auto first_head = [&](const char* name, const ref::Array& x, const ref::Array& y,
                              int64_t each) {
    for (int64_t row = 0; row < static_cast<int64_t>(x.size()) / (2 * each); ++row) {
      check_rows(name, x, y, 2 * row, 2 * row + 1, each);
    }
  };
  first_head("dq", got.dq, clean.dq, keys), first_head("dk", got.dk, clean.dk, keys);
  first_head("dv", got.dv, clean.dv, values), first_head("dg", got.dg, clean.dg, group * keys);
  first_head("dbeta", got.dbeta, clean.dbeta, group);
  first_head("dA_log", got.dA_log, clean.dA_log, group);
  first_head("ddt_bias", got.ddt_bias, clean.ddt_bias, group * keys);
}

TEST_CASE("the gradients of kda: rows that no sequence has get 0") {
  if (!compiled(finish_spec())) return;
  const ref::Kda a = packed_case(kPacked, 7);
  const Gradients clean = run_gradients(kPacked, a, left_of(a, true), {});
  for (const int64_t behind : {1, 5, 64, 150}) {
    CAPTURE(behind);
    Launch launch;
    launch.behind = behind;
    const Gradients got = run_gradients(kPacked, a, left_of(a, true, behind), launch);
    const auto check = [&](const char* name, const ref::Array& x, const ref::Array& own) {
      INFO(std::string(name));
      CHECK(same(ref::Array(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(own.size())), own));
      CHECK(std::all_of(x.begin() + static_cast<std::ptrdiff_t>(own.size()), x.end(),
                        [](double each) { return each == 0; }));
    };
    check("dq", got.dq, clean.dq), check("dk", got.dk, clean.dk), check("dv", got.dv, clean.dv);
    check("dg", got.dg, clean.dg), check("dbeta", got.dbeta, clean.dbeta);
    // Idle slots add nothing, but the order of the sums is that of their number.
    CHECK(rms(got.dA_log, clean.dA_log) < 1e-6);
    CHECK(rms(got.ddt_bias, clean.ddt_bias) < 1e-6);
  }
}

TEST_CASE("the gradients of kda: what is not wanted changes nothing else") {
  if (!compiled(finish_spec())) return;
  const ref::Kda a = packed_case(kPacked, 8);
  const Left left = left_of(a, true);
  const Gradients all = run_gradients(kPacked, a, left, {});
  for (const char* without : {"dq", "dk dv", "dg dA_log", "dbeta ddt_bias",
                              "dq dk dv dg dbeta dA_log", "dA_log ddt_bias"}) {
    CAPTURE(without);
    Launch launch;
    launch.without = without;
    const Gradients got = run_gradients(kPacked, a, left, launch);
    const auto check = [](const ref::Array& x, const ref::Array& y) {
      CHECK((x.empty() || same(x, y)));
    };
    check(got.dq, all.dq), check(got.dk, all.dk), check(got.dv, all.dv), check(got.dg, all.dg);
    check(got.dbeta, all.dbeta), check(got.dA_log, all.dA_log);
    check(got.ddt_bias, all.ddt_bias);
  }
}

TEST_CASE("the gradients of kda: the same bits on every schedule") {
  if (!compiled(finish_spec())) return;
  for (const Setup& s : {kPacked, kSetups[0]}) {
    CAPTURE(s.flags);
    ref::Kda a = s.has("packed") ? packed_case(s, 9) : make_case(s, 9, {0, 50}, 1, 1, 128, 32);
    if (a.d_o.empty()) add_gradients(s, 9, &a);
    const Left left = left_of(a, s.has("packed"));
    const Gradients first = run_gradients(s, a, left, {});
    for (uint64_t seed = 2; seed <= 10; ++seed) {
      const Gradients got = run_gradients(s, a, left, {seed, static_cast<int>(seed % 3), ""});
      CHECK(same(got.dq, first.dq));
      CHECK(same(got.dk, first.dk));
      CHECK(same(got.dv, first.dv));
      CHECK(same(got.dg, first.dg));
      CHECK(same(got.dbeta, first.dbeta));
      CHECK(same(got.dA_log, first.dA_log));
      CHECK(same(got.ddt_bias, first.ddt_bias));
    }
  }
}

// Sums of y . v - k . r are kept in shared memory for eight heads of a group; more go by memory.
TEST_CASE("the gradients of kda: ten value heads a query head") {
  if (!compiled(finish_spec())) return;
  ref::Kda a = make_case(kPacked, 10, {0, 35}, 1, 10, 64, 24);
  add_gradients(kPacked, 10, &a);
  compare(kPacked, run_gradients(kPacked, a, left_of(a, true), {}), ref::kda_backward(a));
}

TEST_CASE("the sums over slots of kda: any number of slots and columns") {
  const auto made = compiled(finish_spec());
  if (!made) return;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const auto& [slots, heads, keys] :
       {std::tuple<int, int, int>{1, 1, 4}, {129, 3, 20}, {3000, 2, 64}, {128, 33, 4}}) {
    sim::test::Device device("sm_80");
    lathe::KdaBackwardFinishParams p = {};
    const size_t columns = static_cast<size_t>(heads * keys);
    ref::Array rates(static_cast<size_t>(slots * heads)), biases(slots * columns);
    for (ref::Array* x : {&rates, &biases}) {
      for (double& each : *x) each = static_cast<float>(normal(random));
    }
    p.rate_sums = put(device, LATHE_F32, rates), p.bias_sums = put(device, LATHE_F32, biases);
    p.dA_log = at(device.buffer(4 * static_cast<size_t>(heads) + 8));
    p.ddt_bias = at(device.buffer(4 * columns + 8));
    p.slots = slots, p.value_heads = heads, p.key_dim = keys;
    device.load(made->ptx);
    device.dynamic_shared = static_cast<uint32_t>(finish_spec().smem_bytes);
    const auto outcome = device.run(
        "entry",
        static_cast<uint32_t>((columns + 31) / 32 + (static_cast<size_t>(heads) + 31) / 32), 256u,
        p);
    CHECK(outcome.error == 0);
    CHECK(outcome.findings.empty());
    const auto check = [&](const ref::Array& parts, const void* from, size_t count) {
      ref::Array whole(count, 0.0), size(count, 0.0);
      for (size_t i = 0; i < parts.size(); ++i) {
        whole[i % count] += parts[i], size[i % count] += std::abs(parts[i]);
      }
      const ref::Array got = take(device, LATHE_F32, from, count);
      for (size_t i = 0; i < count; ++i) CHECK(std::abs(got[i] - whole[i]) <= 1e-6 * size[i]);
    };
    check(rates, p.dA_log, static_cast<size_t>(heads));
    check(biases, p.ddt_bias, columns);
  }
}

// Registers are what the kernel was cut to: a spill would be in its innermost loop.
TEST_CASE("the gradients of kda: nothing is spilt up to a width of 128") {
  if (!compiled(finish_spec())) return;
  for (const char* flags : {"l2norm gate_a factor bias sigmoid", "packed l2norm grouped"}) {
    const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, 128, 4, flags};
    CAPTURE(std::string(flags));
    CHECK(compiled(gradient_spec(s), "sm_90a")->report.spill_stores == 0);
  }
  for (const Setup& s : kSetups) {
    CAPTURE(gradient_spec(s).text());
    CHECK((s.width > 128 || s.has("wide_block") ||
           compiled(gradient_spec(s))->report.spill_stores == 0));
  }
}
