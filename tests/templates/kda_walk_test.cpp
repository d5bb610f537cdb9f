// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward where it could go wrong: what is not finite stays with the tokens that it belongs to,
// rows of nobody, inputs that roundings add up on, and what is read and written.
#include <cstring>
#include <limits>
#include <string>

#include "tests/templates/kda_forward_case.h"

using namespace kda_case;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

const std::vector<Setup> kIsolated = {
    {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "packed single final"},
    {LATHE_BF16, LATHE_BF16, LATHE_BF16, 64, 4, "packed single l2norm gate_b bias sigmoid final"},
    {LATHE_F16, LATHE_F32, LATHE_F32, 64, 4, "packed single l2norm gate_b final"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 64, 2, "packed single final"},
};

// Which of a token's inputs are bad.
enum Bad { kBadQ = 1, kBadK = 2, kBadV = 4, kBadG = 8, kBadBeta = 16 };

ref::Kda with_bad(ref::Kda a, int64_t row, int64_t head, double value, int which) {
  for (int64_t d = 0; d < a.key_dim; ++d) {
    if (which & kBadQ) a.q[a.key_at(row, head, d)] = value;
    if (which & kBadK) a.k[a.key_at(row, head, d)] = value;
    if (which & kBadG) a.g[a.gate_at(row, head, d)] = value;
  }
  for (int64_t d = 0; d < a.value_dim && which & kBadV; ++d) a.v[a.value_at(row, head, d)] = value;
  if (which & kBadBeta) a.beta[a.beta_at(row, head)] = value;
  return a;
}

// Outputs that a bad token of sequence 1 and head 0 must not reach are the same to the bit.
void check_isolated(const ref::Kda& a, int64_t bad, const ForwardResults& good,
                    const ForwardResults& spoilt) {
  int64_t wrong = 0, reached = 0;
  for (int64_t row = 0; row < a.rows(); ++row) {
    const bool own = row >= a.begin[1] && row < a.begin[2];
    for (int64_t head = 0; head < a.value_heads; ++head) {
      for (int64_t e = 0; e < a.value_dim; ++e) {
        const size_t i = a.value_at(row, head, e);
        if (own && head == 0 && row >= bad) {
          reached += !std::isfinite(spoilt.o[i]);
        } else {
          wrong += !same_bits(good.o[i], spoilt.o[i]);
        }
      }
    }
  }
  for (int64_t n = 0; n < a.sequences(); ++n) {
    for (int64_t head = 0; head < a.value_heads; ++head) {
      if (n == 1 && head == 0) continue;
      for (int64_t i = 0; i < a.key_dim * a.value_dim; ++i) {
        const size_t at = a.state_at(n, head, 0, 0) + static_cast<size_t>(i);
        wrong += !same_bits(good.final_state[at], spoilt.final_state[at]);
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(reached > 0);
}

}  // namespace

TEST_CASE("kda_forward: what is not finite reaches no earlier token, sequence or head") {
  for (const Setup& s : kIsolated) {
    CAPTURE(forward_spec(s).text());
    const ref::Kda a = make_case(s, 3, {0, 20, 61, 90}, 2, 1, 60, 16 * s.warps);
    const auto good = forward(s, a);
    if (!good) return;
    uint32_t seed = 0;
    for (const int64_t token : {0, 1, 6, 11, 19, 40}) {
      const int which = token % 2 == 0 ? kBadQ | kBadK | kBadV | kBadG | kBadBeta : 1 << seed % 5;
      const double value = which == kBadG || token != 11 ? kNan : kInfinity;
      CAPTURE(token);
      CAPTURE(which);
      const int64_t row = a.begin[1] + token;
      const auto spoilt = forward(s, with_bad(a, row, 0, value, which), ++seed);
      check_isolated(a, row, *good, *spoilt);
    }
  }
}

TEST_CASE("kda_forward: packed rows behind the last sequence become 0 and reach nothing") {
  for (const Setup& s : kIsolated) {
    CAPTURE(forward_spec(s).text());
    const ref::Kda a = make_case(s, 5, {0, 0, 33, 50}, 2, 1, 64, 16 * s.warps + 8);
    const auto good = forward(s, a);
    if (!good) return;
    constexpr int kRest = 21;
    ref::Kda more = a;
    for (ref::Array* x : {&more.q, &more.k, &more.v, &more.g, &more.beta}) {
      x->resize(x->size() / 50 * (50 + kRest), kNan);
    }
    const auto r = forward(s, more, 2, kRest);
    int64_t wrong = 0;
    for (size_t i = 0; i < r->o.size(); ++i) {
      wrong += !same_bits(r->o[i], i < good->o.size() ? good->o[i] : 0.0);
    }
    CHECK(wrong == 0);
    CHECK(r->final_state == good->final_state);
  }
}

TEST_CASE("kda_forward: no sequence at all") {
  const Setup& s = kIsolated[0];
  ref::Kda a = make_case(s, 5, {0}, 2, 1, 64, 64);
  a.q.resize(9 * 128, kNan), a.k.resize(9 * 128, kNan), a.g.resize(9 * 128, kNan);
  a.v.resize(9 * 128, kNan), a.beta.resize(18, kNan);
  const auto r = forward(s, a, 1, 9);
  if (!r) return;
  CHECK(r->o == ref::Array(9 * 128, 0.0));
}

namespace {

struct Hard {
  const char* name;
  Setup setup;
  void (*change)(ref::Kda&, std::mt19937&);
};

void repeat_key(ref::Kda& a) {
  for (size_t i = static_cast<size_t>(a.heads * a.key_dim); i < a.k.size(); ++i) {
    a.k[i] = a.k[i - static_cast<size_t>(a.heads * a.key_dim)];
  }
}
void fill(ref::Array& x, double value) { std::fill(x.begin(), x.end(), value); }

const Setup kGiven = {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "l2norm final"};
const Setup kBounded = {LATHE_BF16, LATHE_BF16, LATHE_BF16, 64, 4, "l2norm gate_b sigmoid final"};
const Setup kHalf = {LATHE_F16, LATHE_F32, LATHE_F32, 64, 4, "l2norm gate_b sigmoid final"};
const Setup kSingle = {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "l2norm gate_b sigmoid final"};

void collinear(ref::Kda& a, std::mt19937&) { repeat_key(a), fill(a.g, -12), fill(a.beta, 8); }
void saturated(ref::Kda& a, std::mt19937&) { fill(a.g, 100); }
void saturated_or_open(ref::Kda& a, std::mt19937& random) {
  for (double& g : a.g) g = random() % 2 ? 100 : -100;
}

const std::vector<Hard> kHard = {
    {"one key, weak gate, step 1", kBounded, collinear},
    {"one key, weak gate, step 1", kHalf, collinear},
    {"one key, weak gate, step 1", kSingle, collinear},
    {"one key, no gate, step 2", kGiven,
     [](ref::Kda& a, std::mt19937&) { repeat_key(a), fill(a.g, 0), fill(a.beta, 2); }},
    {"no gate", kGiven, [](ref::Kda& a, std::mt19937&) { fill(a.g, 0); }},
    {"half of the gates -1000", kGiven,
     [](ref::Kda& a, std::mt19937& random) {
       for (double& g : a.g) g = random() % 2 ? -1000 : 0;
     }},
    {"weak gates", kGiven,
     [](ref::Kda& a, std::mt19937& random) {
       for (double& g : a.g) g = static_cast<float>(-1e-3 * (random() % 1000) / 1000);
     }},
    {"a hot channel", kGiven,
     [](ref::Kda& a, std::mt19937&) {
       for (size_t i = 3; i < a.k.size(); i += static_cast<size_t>(a.key_dim)) a.k[i] *= 32;
       for (size_t i = 3; i < a.q.size(); i += static_cast<size_t>(a.key_dim)) a.q[i] *= 32;
     }},
    {"the strongest gates", kBounded, saturated},
    {"the strongest gates", kHalf, saturated},
    {"the strongest gates", kSingle, saturated},
    {"the strongest gates and none", kBounded, saturated_or_open},
    {"the strongest gates and none", kSingle, saturated_or_open},
    {"long keys, far from 0", kBounded,
     [](ref::Kda& a, std::mt19937&) {
       for (double& k : a.k) k = numbers::rounded(LATHE_BF16, 10 * k - 50);
     }},
    {"keys of zeros", kGiven,
     [](ref::Kda& a, std::mt19937&) {
       for (size_t i = 0; i < a.k.size(); ++i) a.k[i] *= i / 64 % 3 != 0;
     }},
    {"rows of zeros beside large values", kHalf,
     [](ref::Kda& a, std::mt19937&) {
       for (size_t i = 0; i < a.k.size(); ++i) a.k[i] *= i / 64 % 3 != 0;
       for (size_t i = 0; i < a.q.size(); ++i) a.q[i] *= i / 64 % 3 != 1;
       for (double& v : a.v) v = numbers::rounded(LATHE_F16, 1000 * v);
     }},
};

}  // namespace

TEST_CASE("kda_forward: inputs that roundings add up on") {
  for (const Hard& hard : kHard) {
    const std::string name = hard.name;
    CAPTURE(name);
    CAPTURE(forward_spec(hard.setup).text());
    std::mt19937 random(11);
    ref::Kda a = make_case(hard.setup, 7, {0, 300}, 1, 1, 64, 64);
    hard.change(a, random);
    const auto r = forward(hard.setup, a);
    if (!r) return;
    const ref::KdaForward exact = ref::kda_forward(a);
    CHECK(rms(r->o, exact.o) < bound_of(hard.setup));
    CHECK(rms(r->final_state, exact.final_state) < bound_of(hard.setup));
  }
}

// Every sector of an input is asked for once and every one of o is written once, whole.
TEST_CASE("kda_forward: inputs are read once, o is written once") {
  const Setup s = {LATHE_BF16, LATHE_BF16, LATHE_BF16, 128, 8, ""};
  const int64_t tokens = 256, heads = 2;
  const ref::Kda a = make_case(s, 1, {0, tokens}, heads, 1, 128, 128);
  const auto r = forward(s, a);
  if (!r) return;
  const double row = 2.0 * 4 * 128 + 2;  // q, k, v, g and beta
  const double floor = tokens * heads * row / 32;
  CHECK(static_cast<double>(r->counters.global_load.sectors) < 1.05 * floor);
  CHECK(r->counters.global_store.sectors == tokens * heads * 2 * 128 / 32);
  CHECK(r->counters.local_load.requests == 0);
}
