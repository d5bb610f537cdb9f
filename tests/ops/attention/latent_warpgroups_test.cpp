// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover latent decoding by warpgroups: numbers of key blocks that leave a pair half
// empty, lengths beside the borders of blocks, copies of 64 and of 16 rows, rows that fill no tile,
// and what no sequence owns, which is NaN. The portable kernel takes what this one does not.
#include <algorithm>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

const bool kFamily = choose_family("sm90");

DecodeCase latent_case(int64_t heads, int64_t queries, uint32_t seed) {
  DecodeCase c;
  c.latent = true, c.head_dim = 576, c.value_dim = 512;
  c.kv_heads = 1, c.ratio = heads, c.queries = queries;
  c.page = 64, c.table_width = 7;
  c.seed = seed;
  return c;
}

// Whether the kernel by warpgroups ran: the plan has the portable one too. No other one has as many
// threads.
bool ran_by_warpgroups(const Answer& answer) {
  return std::any_of(answer.launches.begin(), answer.launches.end(),
                     [](const nlohmann::json& launch) { return launch.at("block").at(0) == 384; });
}

void check_by_warpgroups(const DecodeCase& c, const DecodeInputs& in, const Answer& answer,
                         bool takes = true) {
  INFO(c.text());
  check_decode(c, in, answer);
  check_no_spills(answer);
  CHECK(ran_by_warpgroups(answer) == takes);
}

// First, while no other test has opened the simulator: children run under other schedules.
DecodeCase random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<int64_t>& list) {
    return list[random() % list.size()];
  };
  DecodeCase c = latent_case(one_of({16, 33, 64, 100}), 1, seed);
  c.fixed = true;
  if (c.ratio == 16) c.queries = one_of({3, 4, 5});
  c.dtype = seed % 2 ? LATHE_BF16 : LATHE_F16;
  c.page = one_of({16, 48, 64, 128});
  c.append = random() % 2 == 0;
  c.cached = {one_of({0, 1, 64, 65, 127, 300}), one_of({63, 130, 192, 260})};
  c.table_width = (310 + c.page - 1) / c.page;
  c.wild_entries = random() % 2 == 0;
  c.splits = std::to_string(one_of({1, 1, 2, 5}));
  c.sinks = random() % 2 == 0;
  if (seed % 3 == 0) c.window_left = one_of({-1, 1, 100}), c.window_right = 0;
  if (seed % 3 == 1) c.softcap = 3, c.slopes = DecodeCase::per_head;
  return c;
}

TEST_CASE("latent decoding by warpgroups: random caches under several schedules") {
  REQUIRE(kFamily);
  std::vector<DecodeCase> cases;
  for (uint32_t seed = 1; seed <= 9; ++seed) cases.push_back(random_case(seed));
  under_schedules(
      cases.size(), [&](size_t i) { return run_decode(cases[i], make_decode(cases[i])); },
      [&](size_t i, const Answer& answer) {
        check_by_warpgroups(cases[i], make_decode(cases[i]), answer);
      },
      "sm_90a");
}

// One kernel, so that what it does at the borders costs no compilation.
TEST_CASE("latent decoding by warpgroups: 0 to 7 blocks of keys, and lengths beside them") {
  DecodeCase c = latent_case(64, 1, 50);
  for (const std::vector<int64_t>& cached :
       {std::vector<int64_t>{0, 1, 63, 64, 65}, {127, 128, 129, 191}, {192, 193, 255, 300, 448}}) {
    c.cached = cached, ++c.seed;
    const DecodeInputs in = make_decode(c);
    for (const char* splits : {"1", "3"}) {
      c.splits = splits;
      check_by_warpgroups(c, in, run_decode(c, in));
    }
  }
}

TEST_CASE("latent decoding by warpgroups: one plan serves pages of both kinds, and the others") {
  DecodeCase c = latent_case(16, 1, 70);
  c.append = c.causal = true;
  std::vector<std::string> kernels;
  struct Turn {
    int64_t queries, page, gap;
    bool takes;
  };
  for (const Turn& turn : {Turn{4, 64, 0, true},
                           {4, 32, 8, true},
                           {9, 16, 24, true},
                           {4, 5, 0, false},
                           {1, 64, 0, false}}) {
    c.queries = turn.queries, c.page = turn.page;
    c.table_width = 320 / turn.page;
    c.cached = {300, 2, 0, 130};
    c.gaps = Placement{.token_gap = turn.gap, .batch_gap = 2 * turn.gap, .offset = turn.gap};
    ++c.seed;
    const DecodeInputs in = make_decode(c);
    const Answer answer = run_decode(c, in);
    check_by_warpgroups(c, in, answer, turn.takes);
    std::vector<std::string> found;
    for (const Kernel& kernel : answer.kernels) found.push_back(kernel.spec);
    if (kernels.empty()) kernels = found;
    CHECK(found == kernels);
  }
}

TEST_CASE("latent decoding by warpgroups: lengths and pages out of range stay in bounds") {
  DecodeCase c = latent_case(64, 1, 5);
  c.page = 16, c.table_width = 6, c.append = true, c.splits = "2";
  c.cached = {20, 20, 40, 40};
  DecodeInputs in = make_decode(c);
  in.table[2 * 6 + 1] = static_cast<double>(in.pages);  // keys 16..31 become zeros
  std::fill_n(in.whole.k.begin() + (in.whole.begin_k[2] + 16) * 576, 16 * 576, 0.0);
  std::fill_n(in.whole.v.begin() + (in.whole.begin_k[2] + 16) * 512, 16 * 512, 0.0);
  check_decode_results(c, in, run_decode(c, in));
  for (const int64_t cached :
       {int64_t{-1}, -int64_t{0x80000000}, int64_t{96}, int64_t{0x7fffffff}}) {
    Call call = decode_call(c, in);
    call.tensors.at("cache_seqlens").values.assign(4, static_cast<double>(cached));
    check_clean(execute(shared_context(), call));  // what it gives is nothing
  }
}

}  // namespace
