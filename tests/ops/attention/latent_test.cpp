// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_decode with values that are columns of the keys: pages, parts
// of the keys, head counts, options and tiles, and what no sequence owns, which is NaN.
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

// Hopper's own kernel has a test of its own.
const bool kFamily = choose_family("portable");

DecodeCase latent_case(int64_t heads, uint32_t seed) {
  DecodeCase c;
  c.latent = true, c.head_dim = 576, c.value_dim = 512;
  c.kv_heads = 1, c.ratio = heads;
  c.page = 64, c.table_width = 4;
  c.seed = seed;
  return c;
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

DecodeCase random_case(const Row& row, uint32_t seed) {
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

TEST_CASE("random latent caches on kinds of tiles, on sm_80 and under several schedules") {
  std::vector<DecodeCase> cases;
  for (const Row& row : kRows) {
    for (int turn = 0; turn < 3; ++turn) {
      cases.push_back(random_case(row, static_cast<uint32_t>(cases.size()) + 1));
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

void checked(const DecodeCase& c, const DecodeInputs& in) {
  INFO(c.text());
  const Answer answer = run_decode(c, in);
  check_decode(c, in, answer);
  check_no_spills(answer);
}

TEST_CASE("every page size and number of splits of a latent cache gives the same") {
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

TEST_CASE("head counts, queries and options of a latent cache") {
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

TEST_CASE("one plan of a latent cache serves other batches, lengths, pages and strides") {
  DecodeCase c = latent_case(16, 200);
  c.append = c.causal = true;
  const auto serve = [&](int64_t queries, int64_t page, int64_t width, std::vector<int64_t> cached,
                         int64_t gap) {
    c.queries = queries, c.page = page, c.table_width = width, c.cached = std::move(cached);
    c.gaps = Placement{.token_gap = gap, .batch_gap = 2 * gap, .offset = gap, .guard = gap};
    ++c.seed;
    const DecodeInputs in = make_decode(c);
    const Answer answer = run_decode(c, in);
    check_decode(c, in, answer);
    std::vector<std::string> kernels;
    for (const Kernel& kernel : answer.kernels) kernels.push_back(kernel.spec);
    return kernels;
  };
  const auto kernels = serve(1, 16, 20, {300}, 0);
  CHECK(serve(2, 64, 4, {3, 200, 0, 63}, 8) == kernels);
  CHECK(serve(5, 5, 40, {150, 100}, 24) == kernels);
  CHECK(serve(1, 16, 30, {}, 0) == kernels);
}

// Nobody can check what is on the device: lengths are cut to the table, and pages that are not
// there read as zeros.
TEST_CASE("lengths and pages of a latent cache out of range stay in bounds") {
  DecodeCase c = latent_case(16, 5);
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
