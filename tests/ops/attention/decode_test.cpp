// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_decode: every page size and number of splits, groups, widths,
// options and tiles; lengths and pages that nobody can check; pages far apart.
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

// First, while no other test has opened the simulator: children run under other schedules.
struct Row {
  lathe_dtype dtype;
  int64_t head_dim, value_dim;
  int64_t rows;  // queries times heads of a group that a block takes
  const char* tile;
  std::string flags;  // of local, softcap, alibi, sinks
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};
const std::vector<Row> kRows = {
    {LATHE_BF16, 128, 128, 16, "n=64 stages=2 warps=4", ""},
    {LATHE_F16, 64, 64, 16, "n=64 stages=3 warps=4", "local sinks"},
    {LATHE_BF16, 96, 96, 32, "n=64 stages=2 warps=4", "local alibi"},
    {LATHE_F16, 192, 128, 16, "n=32 stages=4 warps=2", "softcap sinks"},
    {LATHE_BF16, 256, 256, 16, "n=32 stages=2 warps=2", "local"},
    {LATHE_F16, 256, 256, 64, "n=32 stages=2 warps=4", "local softcap alibi sinks"},
    {LATHE_BF16, 40, 72, 64, "n=64 stages=3 warps=4", "alibi sinks"},
};

DecodeCase random_case(const Row& row, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<int64_t>& list) {
    return list[random() % list.size()];
  };
  DecodeCase c;
  c.seed = seed, c.fixed = true, c.tile = row.tile;
  c.dtype = row.dtype, c.head_dim = row.head_dim, c.value_dim = row.value_dim;
  c.page = one_of({1, 16, 48, 64, 256, 257});
  const auto tile_rows = [&c] {
    const int64_t rows = c.queries * c.ratio;
    return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  };
  do {
    c.ratio = one_of({1, 3, 8, 16});
    c.queries = c.ratio > 3 ? one_of({1, 2, 4, 5}) : one_of({1, 4, 9, 16});
  } while (tile_rows() != row.rows);
  c.kv_heads = c.ratio > 3 ? 1 : one_of({1, 2});
  c.append = random() % 2 == 0;
  const int64_t longest = one_of({64, 150, 330});
  c.cached.clear();
  for (int64_t b = one_of({1, 2, 3}); b > 0; --b) {
    c.cached.push_back(one_of({0, 1, 63, 64, longest - 1, longest}));
  }
  c.table_width = (longest + 16 + c.page - 1) / c.page + one_of({0, 2});
  c.wild_entries = random() % 2 == 0;
  const int64_t blocks = (c.page * c.table_width + 63) / 64;
  c.splits = std::to_string(std::min(one_of({1, 2, 3, 7, blocks}), blocks));
  if (row.has("softcap")) c.softcap = static_cast<double>(one_of({1, 3, 30}));
  if (row.has("alibi")) c.slopes = one_of({0, 1}) ? DecodeCase::per_head : DecodeCase::per_sequence;
  c.sinks = row.has("sinks");
  if (row.has("local")) {
    c.window_left = one_of({-1, 0, 1, 40, 64, 1000});
    c.window_right = one_of({-1, 0, 0, 3});
  }
  return c;
}

TEST_CASE("random caches on every kind of tile, on sm_80 and under several schedules") {
  std::vector<DecodeCase> cases;
  for (const Row& row : kRows) {
    for (int turn = 0; turn < 8; ++turn) {
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
  check_decode(c, in, run_decode(c, in));
}

TEST_CASE("every page size and number of splits gives the same, with append and without") {
  uint32_t seed = 1;
  for (const int64_t page : {1, 16, 48, 64, 256, 257}) {
    DecodeCase c;
    c.dtype = page % 16 == 0 ? LATHE_F16 : LATHE_BF16;
    c.page = page;
    c.table_width = (450 + page - 1) / page;  // 8 blocks of 64 keys
    c.queries = 2, c.ratio = 3;
    c.cached = {0, 130, 448};
    c.append = seed % 2 == 1;
    c.sinks = seed % 3 == 0;
    c.seed = seed++;
    const DecodeInputs in = make_decode(c);
    Values lse;
    for (const char* splits : {"1", "2", "3", "4", "5", "6", "7", "8", "1000", "0"}) {
      c.splits = splits;
      INFO(c.text());
      const Answer answer = run_decode(c, in);
      check_decode(c, in, answer);
      if (lse.empty()) lse = answer.at("lse");
      check_near(answer.at("lse"), lse, 2e-6);
    }
  }
}

TEST_CASE("groups, widths and options") {
  struct Options {
    int64_t ratio, queries, head_dim, value_dim;
    bool causal, alibi_rows, sinks;
    int64_t window_left;
    double softcap;
  };
  const Options rows[] = {
      {1, 1, 64, 64, false, false, false, -1, 0},   {1, 16, 128, 128, true, false, true, -1, 0},
      {3, 4, 96, 96, true, true, false, 60, 0},     {8, 1, 128, 128, true, false, false, -1, 2},
      {8, 16, 64, 64, true, true, true, -1, 0},     {16, 1, 192, 128, true, false, true, 20, 0},
      {16, 3, 256, 256, true, false, false, -1, 0}, {3, 1, 256, 256, false, true, true, -1, 5},
      {8, 2, 72, 40, true, false, false, 0, 0},
  };
  uint32_t seed = 100;
  for (const Options& row : rows) {
    DecodeCase c;
    c.dtype = seed % 2 ? LATHE_BF16 : LATHE_F16;
    c.queries = row.queries, c.ratio = row.ratio, c.kv_heads = row.ratio > 3 ? 1 : 2;
    c.head_dim = row.head_dim, c.value_dim = row.value_dim;
    c.causal = row.causal, c.sinks = row.sinks;
    if (row.alibi_rows) c.slopes = DecodeCase::per_sequence;
    c.window_left = row.window_left, c.softcap = row.softcap;
    c.page = 48, c.table_width = 5;
    c.cached = {200, 7};  // fewer keys than queries, too
    c.append = seed % 3 == 0;
    c.seed = seed++;
    const DecodeInputs in = make_decode(c);
    for (const char* splits : {"1", "3", "0"}) {
      c.splits = splits;
      checked(c, in);
    }
  }
}

TEST_CASE("one plan serves other batches, lengths, pages and strides") {
  DecodeCase c;
  c.ratio = 8, c.head_dim = c.value_dim = 128;
  c.append = c.causal = true;
  uint32_t seed = 200;
  const auto serve = [&](int64_t queries, int64_t page, int64_t width, std::vector<int64_t> cached,
                         int64_t gap) {
    c.queries = queries, c.page = page, c.table_width = width, c.cached = std::move(cached);
    c.gaps = Placement{.token_gap = gap, .batch_gap = 2 * gap, .offset = gap, .guard = gap};
    c.seed = seed++;
    const DecodeInputs in = make_decode(c);
    const Answer answer = run_decode(c, in);
    check_decode(c, in, answer);
    std::vector<std::string> kernels;
    for (const Kernel& kernel : answer.kernels) kernels.push_back(kernel.spec);
    return kernels;
  };
  const auto kernels = serve(1, 16, 30, {300}, 0);
  CHECK(serve(2, 64, 4, {3, 200, 0, 63}, 8) == kernels);
  CHECK(serve(9, 5, 40, {150, 100}, 24) == kernels);
  CHECK(serve(1, 16, 30, {}, 0) == kernels);
}

// Nobody can check what is on the device: lengths are cut to the table, pages that are not there
// read as zeros and are not written, and nothing out of bounds is touched.
// A server's batch has rows without a sequence: a length below 0, and whatever in their row of the
// table. Nothing of theirs is read or written, and the other rows are as without them.
TEST_CASE("padding rows read nothing, write nothing and are 0") {
  for (const bool append : {false, true}) {
    for (const char* splits : {"1", "3"}) {
      for (const bool latent : {false, true}) {
        DecodeCase c{.kv_heads = 1, .ratio = 16, .cached = {40, 40, 21}, .append = append};
        if (latent) c.latent = true, c.head_dim = 576, c.value_dim = 512;
        c.splits = splits, c.fixed = true;
        const DecodeInputs in = make_decode(c);
        PlannedCall call(shared_context(), decode_call(c, in));
        const Answer whole = execute(call);
        Values table = in.table;
        for (int64_t i = 0; i < c.table_width; ++i) {
          table[static_cast<size_t>(c.table_width + i)] = i % 2 == 0 ? -1 : 1 << 30;
        }
        call.upload("cache_seqlens", {40, -1, 21});
        call.upload("block_table", table);
        const Answer padded = execute(call);
        check_findings(padded);
        INFO("append " << append << " splits " << splits << " latent " << latent);
        const size_t row = static_cast<size_t>(c.queries * c.heads() * c.value_dim);
        for (size_t i = 0; i < padded.at("out").size(); ++i) {
          const double expected = i / row == 1 ? 0.0 : whole.at("out")[i];
          REQUIRE(padded.at("out")[i] == expected);
        }
        const auto logs = static_cast<size_t>(c.heads() * c.queries);
        for (size_t i = 0; i < padded.at("lse").size(); ++i) {
          const double expected = i / logs == 1 ? -ref::kInfinity : whole.at("lse")[i];
          REQUIRE(padded.at("lse")[i] == expected);
        }
        if (!append) continue;
        size_t changed = 0;  // places that the append of the padding row would have written
        for (size_t i = 0; i < in.k_cache.size(); ++i) {
          const double now = padded.at("k_cache")[i], then = whole.at("k_cache")[i];
          const bool same = now == then || (std::isnan(now) && std::isnan(then));
          changed += same ? 0 : 1;
        }
        CHECK(changed <= static_cast<size_t>(c.queries * c.kv_heads * c.head_dim));
      }
    }
  }
}

TEST_CASE("lengths and pages out of range stay in bounds") {
  DecodeCase c;
  c.table_width = 6, c.append = true, c.splits = "2", c.seed = 5;
  c.cached = {20, 20, 40, 40};
  DecodeInputs in = make_decode(c);
  const DecodeInputs good = in;
  const auto entry = [&](int64_t b, int64_t i) -> double& {
    return in.table[static_cast<size_t>(b * c.table_width + i)];
  };
  entry(2, 1) = static_cast<double>(in.pages);  // keys 16..31 become zeros
  entry(3, 2) = -1;                             // that of the appended key too, which is dropped
  for (ref::Array* all : {&in.whole.k, &in.whole.v}) {
    std::fill_n(all->begin() + (in.whole.begin_k[2] + 16) * 64, 16 * 64, 0.0);
    std::fill(all->begin() + (in.whole.begin_k[3] + 32) * 64, all->end(), 0.0);
  }
  check_decode_results(c, in, run_decode(c, in));
  in = good;
  entry(3, 2) = -1;
  for (const int64_t cached :
       {int64_t{-1}, -int64_t{0x80000000}, int64_t{96}, int64_t{0x7fffffff}}) {
    Call call = decode_call(c, in);
    call.tensors.at("cache_seqlens").values.assign(4, static_cast<double>(cached));
    check_clean(execute(shared_context(), call));  // what it gives is nothing
  }
}

TEST_CASE("places of pages pass 2^31 elements") {
  for (const uint32_t seed : {1, 2, 3}) {
    DecodeCase c;
    c.dtype = LATHE_F16, c.value_dim = 128, c.queries = 2, c.append = true;
    c.page = 160, c.table_width = 1, c.cached = {100}, c.splits = "1", c.seed = seed;
    const DecodeInputs in = make_decode(c);
    if (in.table[0] == 0) continue;  // page 0 is near
    constexpr int64_t kFar = (int64_t{1} << 31) + 64;
    Call call = decode_call(c, in);
    for (const char* name : {"k_cache", "v_cache"}) {
      CallTensor& cache = call.tensors.at(name);
      cache.strides = {kFar, cache.shape[3], cache.shape[3], 1};
    }
    const Answer answer = execute(shared_context(), call);
    check_decode(c, in, answer);
  }
}

}  // namespace
