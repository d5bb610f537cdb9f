// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_decode with values that are columns of the keys, by the kernels
// of every family: pages, parts of the keys, head counts, options and tiles, numbers of key blocks
// that leave a pair half empty, rows that fill no tile, and what no sequence owns, which is NaN.
#include <algorithm>
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/case.h"
#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

DecodeCase latent_case(int64_t heads, uint32_t seed) {
  DecodeCase c;
  c.latent = true, c.head_dim = 576, c.value_dim = 512;
  c.kv_heads = 1, c.ratio = heads;
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

// The kernel by warpgroups takes calls with rows that fill tiles well enough, of whole pages of 16.
enum class Takes { no, yes, either };

Answer checked(const DecodeCase& c, const DecodeInputs& in, Takes takes = Takes::either) {
  INFO(c.text());
  Answer answer = run_decode(c, in);
  check_decode(c, in, answer);
  check_no_spills(answer);
  if (by_warpgroups() && takes != Takes::either) {
    CHECK(ran_by_warpgroups(answer) == (takes == Takes::yes));
  }
  return answer;
}

// First, while no other test has opened the simulator: children run under other schedules.
struct Row {
  lathe_dtype dtype;
  int64_t queries, heads;
  const char* tile;
  std::string flags;  // of local, softcap, alibi, sinks
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};
const std::vector<Row> kRows = {
    {LATHE_BF16, 1, 16, "n=32 stages=3 warps=4", ""},
    {LATHE_F16, 2, 16, "n=32 stages=2 warps=8", "local sinks"},
    {LATHE_BF16, 1, 64, "n=32 stages=2 warps=8", "softcap alibi"},
    {LATHE_F16, 3, 5, "n=16 stages=3 warps=4", "local"},
};

DecodeCase case_of_row(const Row& row, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<int64_t>& list) {
    return list[random() % list.size()];
  };
  DecodeCase c = latent_case(row.heads, seed);
  c.fixed = true, c.tile = row.tile;
  c.dtype = row.dtype, c.queries = row.queries;
  c.page = one_of({1, 16, 48, 64, 128});
  c.append = random() % 2 == 0;
  const int64_t longest = one_of({64, 100});
  c.cached = {one_of({0, 1, 63, longest}), longest - 1};
  c.table_width = (longest + 16 + c.page - 1) / c.page + one_of({0, 2});
  c.wild_entries = random() % 2 == 0;
  c.splits = std::to_string(one_of({1, 2, 3}));
  if (row.has("softcap")) c.softcap = 3;
  if (row.has("alibi")) c.slopes = DecodeCase::per_head;
  c.sinks = row.has("sinks");
  if (row.has("local")) c.window_left = one_of({-1, 1, 40}), c.window_right = 0;
  return c;
}

FAMILY_CASE("portable",
            "random latent caches on kinds of tiles, on sm_80 and under several schedules") {
  std::vector<DecodeCase> cases;
  for (const Row& row : kRows) {
    for (int turn = 0; turn < 3; ++turn) {
      cases.push_back(case_of_row(row, static_cast<uint32_t>(cases.size()) + 1));
    }
  }
  under_schedules(
      cases.size(), [&](size_t i) { return run_decode(cases[i], make_decode(cases[i])); },
      [&](size_t i, const Answer& answer) {
        INFO(cases[i].text());
        check_decode(cases[i], make_decode(cases[i]), answer);
        check_no_spills(answer);
      },
      "sm_80");
}

// The same under the schedules of sm_90a.
DecodeCase random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<int64_t>& list) {
    return list[random() % list.size()];
  };
  DecodeCase c = latent_case(one_of({16, 33, 64, 100}), seed);
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

EVERY_FAMILY_CASE("latent decoding: random caches under several schedules") {
  std::vector<DecodeCase> cases;
  for (uint32_t seed = 1; seed <= 9; ++seed) cases.push_back(random_case(seed));
  under_schedules(
      cases.size(), [&](size_t i) { return run_decode(cases[i], make_decode(cases[i])); },
      [&](size_t i, const Answer& answer) {
        INFO(cases[i].text());
        check_decode(cases[i], make_decode(cases[i]), answer);
        check_no_spills(answer);
        CHECK(ran_by_warpgroups(answer) == in_family("sm90"));
      },
      "sm_90a");
}

EVERY_FAMILY_CASE(
    "latent decoding: every page size and number of splits of a latent cache gives the same") {
  uint32_t seed = 1;
  for (const int64_t page : {1, 16, 32, 48, 64, 128, 257}) {
    DecodeCase c = latent_case(16, seed);
    c.dtype = page % 16 == 0 ? LATHE_F16 : LATHE_BF16;
    c.page = page;
    c.table_width = (300 + page - 1) / page;
    c.queries = 2;
    c.cached = {0, 130, 298};
    c.append = c.causal = seed % 2 == 1;
    c.sinks = seed % 3 == 0;
    ++seed;
    const DecodeInputs in = make_decode(c);
    for (const char* splits : {"1", "2", "5", "0"}) {
      c.splits = splits;
      checked(c, in);
    }
  }
}

EVERY_FAMILY_CASE("latent decoding: head counts, queries and options of a latent cache") {
  struct Options {
    int64_t heads, queries;
    bool causal, alibi_rows, sinks;
    int64_t window_left;
    double softcap;
  };
  const Options rows[] = {
      {1, 1, false, false, false, -1, 0},  {16, 1, true, false, true, -1, 0},
      {16, 4, true, true, false, 60, 0},   {128, 1, true, false, false, -1, 2},
      {64, 2, true, false, true, -1, 0},   {128, 3, true, false, false, -1, 0},
      {20, 3, false, false, false, -1, 0}, {96, 1, false, true, true, 3, 5},
  };
  uint32_t seed = 100;
  for (const Options& row : rows) {
    DecodeCase c = latent_case(row.heads, seed);
    c.dtype = seed % 2 ? LATHE_BF16 : LATHE_F16;
    c.queries = row.queries;
    c.causal = row.causal, c.sinks = row.sinks;
    if (row.alibi_rows) c.slopes = DecodeCase::per_sequence;
    c.window_left = row.window_left, c.softcap = row.softcap;
    c.cached = {200, 2, 129, 64};  // fewer keys than queries, too
    c.append = seed % 3 == 0;
    ++seed;
    const DecodeInputs in = make_decode(c);
    for (const char* splits : {"1", "0"}) {
      c.splits = splits;
      checked(c, in);
    }
  }
}

EVERY_FAMILY_CASE(
    "latent decoding: one plan of a latent cache serves other batches, lengths, pages and "
    "strides") {
  DecodeCase c = latent_case(16, 200);
  c.append = c.causal = true;
  const auto serve = [&](int64_t queries, int64_t page, int64_t width, std::vector<int64_t> cached,
                         int64_t gap) {
    c.queries = queries, c.page = page, c.table_width = width, c.cached = std::move(cached);
    c.gaps = Placement{.token_gap = gap, .batch_gap = 2 * gap, .offset = gap, .guard = gap};
    ++c.seed;
    const DecodeInputs in = make_decode(c);
    const Answer answer = checked(c, in);
    std::vector<std::string> kernels;
    for (const Kernel& kernel : answer.kernels) kernels.push_back(kernel.spec);
    return kernels;
  };
  const auto kernels = serve(1, 16, 20, {300}, 0);
  CHECK(serve(2, 64, 4, {3, 200, 0, 63}, 8) == kernels);
  CHECK(serve(5, 5, 40, {150, 100}, 24) == kernels);
  CHECK(serve(1, 16, 30, {}, 0) == kernels);
}

// One kernel, so that what it does at the borders costs no compilation.
EVERY_FAMILY_CASE("latent decoding: 0 to 7 blocks of keys, and lengths beside them") {
  DecodeCase c = latent_case(64, 50);
  for (const std::vector<int64_t>& cached :
       {std::vector<int64_t>{0, 1, 63, 64, 65}, {127, 128, 129, 191}, {192, 193, 255, 300, 448}}) {
    c.cached = cached, ++c.seed;
    const DecodeInputs in = make_decode(c);
    for (const char* splits : {"1", "3"}) {
      c.splits = splits;
      checked(c, in, Takes::yes);
    }
  }
}

EVERY_FAMILY_CASE("latent decoding: one plan serves pages of both kinds, and the others") {
  DecodeCase c = latent_case(16, 70);
  c.append = c.causal = true;
  std::vector<std::string> kernels;
  struct Turn {
    int64_t queries, page, gap;
    Takes takes;
  };
  for (const Turn& turn : {Turn{4, 64, 0, Takes::yes},
                           {4, 32, 8, Takes::yes},
                           {9, 16, 24, Takes::yes},
                           {4, 5, 0, Takes::no},
                           {1, 64, 0, Takes::no}}) {
    c.queries = turn.queries, c.page = turn.page;
    c.table_width = 320 / turn.page;
    c.cached = {300, 2, 0, 130};
    c.gaps = Placement{.token_gap = turn.gap, .batch_gap = 2 * turn.gap, .offset = turn.gap};
    ++c.seed;
    const DecodeInputs in = make_decode(c);
    const Answer answer = checked(c, in, turn.takes);
    std::vector<std::string> found;
    for (const Kernel& kernel : answer.kernels) found.push_back(kernel.spec);
    if (kernels.empty()) kernels = found;
    CHECK(found == kernels);
  }
}

// Nobody can check what is on the device: lengths are cut to the table, and pages that are not
// there read as zeros.
EVERY_FAMILY_CASE("latent decoding: lengths and pages out of range stay in bounds") {
  DecodeCase c = latent_case(64, 5);
  c.page = 16, c.table_width = 6, c.append = true, c.splits = "2";
  c.cached = {20, 20, 40, 40};
  DecodeInputs in = make_decode(c);
  const auto entry = [&](int64_t b, int64_t i) -> double& {
    return in.table[static_cast<size_t>(b * c.table_width + i)];
  };
  entry(2, 1) = static_cast<double>(in.pages);  // keys 16..31 become zeros
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
