// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover packed queries over pages by Hopper's kernels: pages, lengths, groups, widths
// and options against float64, the order of the work, what nobody can check, and one plan for many
// batches.
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/graph_client.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

// The kernel by warpgroups alone has so many threads.
bool by_warpgroups(const Answer& answer) {
  return std::ranges::any_of(answer.launches,
                             [](const auto& launch) { return launch.at("block")[0] == 384; });
}

struct Widths {
  lathe_dtype dtype;
  int64_t head_dim, value_dim;
};
const std::vector<Widths> kWidths = {
    {LATHE_BF16, 128, 128}, {LATHE_F16, 64, 64},   {LATHE_BF16, 256, 256}, {LATHE_F16, 192, 128},
    {LATHE_BF16, 96, 72},   {LATHE_F16, 192, 192}, {LATHE_BF16, 40, 200},
};

DecodeCase random_case(const Widths& widths, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const std::vector<int64_t>& list) {
    return list[random() % list.size()];
  };
  DecodeCase c;
  c.seed = seed;
  c.dtype = widths.dtype, c.head_dim = widths.head_dim, c.value_dim = widths.value_dim;
  c.page = one_of({16, 48, 64, 128, 256});
  c.ratio = one_of({1, 3, 4, 8});
  c.kv_heads = c.ratio > 3 ? 1 : one_of({1, 2});
  c.append = random() % 2 == 0;
  c.causal = random() % 2 == 0;
  c.sinks = random() % 2 == 0;
  c.rows = {one_of({150, 280}), 1, one_of({0, 1, 5}), one_of({16, 33, 64}), 1};
  c.cached.clear();
  for (const int64_t rows : c.rows) {
    const int64_t least = c.append ? 0 : rows;
    c.cached.push_back(std::max(
        least, one_of({0, 1, c.page - 1, c.page, c.page + 1, 127, 129, 400, 2 * c.page + 3})));
  }
  c.cached.back() = one_of({600, 1100});
  c.padding = one_of({0, 0, 7});
  const int64_t longest = *std::ranges::max_element(c.cached) + 300;
  c.table_width = (longest + c.page - 1) / c.page;
  c.wild_entries = random() % 2 == 0;
  c.cu_dtype = random() % 2 == 0 ? LATHE_I32 : LATHE_I64;
  c.splits = random() % 3 == 0 ? "3" : random() % 4 == 0 ? "1" : "0";
  if (random() % 3 == 0) c.window_left = one_of({0, 1, 40, 127, 300});
  if (!c.causal && random() % 3 == 0) c.window_right = one_of({0, 3, 64});
  if (random() % 4 == 0) c.softcap = 3;
  if (random() % 4 == 0) c.slopes = DecodeCase::per_sequence;
  // With few keys to a row the rounding of a turned query shows in its lse.
  if (random() % 4 == 0 && c.window_left < 0) c.rotary = std::min<int64_t>(c.head_dim, 32);
  if (c.rotary > 0) c.positions = DecodeCase::of_sequences;
  return c;
}

// First, while no other test has opened the simulator: children run under other schedules.
TEST_CASE("random batches of every width, under several schedules") {
  std::vector<DecodeCase> cases;
  for (const Widths& widths : kWidths) {
    for (int turn = 0; turn < 4; ++turn) {
      cases.push_back(random_case(widths, static_cast<uint32_t>(cases.size()) + 1));
    }
  }
  under_schedules(
      cases.size(), [&](size_t i) { return run_decode(cases[i], make_decode(cases[i])); },
      [&](size_t i, const Answer& answer) {
        INFO(cases[i].text());
        check_decode(cases[i], make_decode(cases[i]), answer);
        check_no_spills(answer);
        CHECK(by_warpgroups(answer));
      });
}

Answer checked(const DecodeCase& c, const DecodeInputs& in) {
  INFO(c.text());
  Answer answer = run_decode(c, in);
  check_decode(c, in, answer);
  check_no_spills(answer);
  CHECK(by_warpgroups(answer));
  return answer;
}
Answer checked(const DecodeCase& c) { return checked(c, make_decode(c)); }

DecodeCase batch(uint32_t seed) {
  DecodeCase c;
  c.rows = {1, 0, 70, 1, 3, 17, 2}, c.cached = {100, 37, 130, 191, 3, 17, 2};
  c.padding = 5;
  c.kv_heads = 2, c.ratio = 3;
  c.causal = true;
  c.table_width = 14;
  c.seed = seed;
  return c;
}

TEST_CASE("thousands of new tokens beside sequences that decode, and a long context") {
  DecodeCase c = batch(1);
  c.head_dim = c.value_dim = 128, c.kv_heads = 1, c.ratio = 2, c.page = 64;
  c.rows = {1100, 1, 40, 1}, c.cached = {1300, 2100, 900, 5}, c.table_width = 40;
  c.padding = 0;
  checked(c);
  c.append = true, c.causal = false;
  checked(c);
}

TEST_CASE("one plan serves other batches, pages and strides without a compile") {
  DecodeCase c = batch(2);
  c.append = true, c.ratio = 4;
  std::vector<std::string> kernels;
  const auto serve = [&](std::vector<int64_t> rows, std::vector<int64_t> cached, int64_t page,
                         int64_t gap) {
    c.rows = std::move(rows), c.cached = std::move(cached), c.page = page, ++c.seed;
    c.table_width = (700 + page - 1) / page;
    c.gaps = Placement{.token_gap = gap, .batch_gap = 2 * gap, .offset = gap, .guard = gap};
    const Answer answer = checked(c);
    std::vector<std::string> found;
    for (const Kernel& kernel : answer.kernels) found.push_back(kernel.spec);
    if (kernels.empty()) kernels = found;
    CHECK(found == kernels);
    CHECK((c.seed == 3 || answer.compiled == 0));
  };
  serve({1, 30, 0, 2}, {600, 40, 9, 20}, 16, 0);
  serve({64}, {0}, 64, 8);
  serve({200, 1}, {7, 640}, 128, 24);
  serve({5, 5, 5, 5, 5, 5, 5, 5, 5}, {1, 2, 3, 16, 17, 15, 400, 64, 63}, 32, 0);
}

TEST_CASE("wide heads in a given number of splits") {
  for (const int64_t width : {128, 192, 256}) {
    DecodeCase c = batch(60);
    c.dtype = LATHE_F16, c.causal = false, c.append = true, c.splits = "3";
    c.head_dim = 192, c.value_dim = width;
    if (width == 256) c.head_dim = 256;
    c.page = 48, c.table_width = 19, c.kv_heads = 1, c.ratio = 4;
    checked(c);
    c.window_right = 3;
    checked(c);
  }
}

// More sequences than a block of threads sorts at a time.
TEST_CASE("hundreds of sequences") {
  DecodeCase c = batch(20);
  c.kv_heads = 1, c.ratio = 2, c.table_width = 3, c.append = true;
  std::mt19937 random(7);
  c.rows.clear(), c.cached.clear();
  for (int i = 0; i < 1100; ++i) {
    c.rows.push_back(random() % 5 == 0 ? 0 : 5 + random() % 12);
    c.cached.push_back(static_cast<int64_t>(random() % 30));
  }
  checked(c);
}

// A captured call deals its tiles out again by the lengths that it finds in each replay.
TEST_CASE("a graph replays with other lengths, pages and sequences") {
  DecodeCase c = batch(80);
  c.append = true;
  DecodeInputs in = make_decode(c);
  const Call call = decode_call(c, in);
  PlannedCall planned(shared_context(), call);
  const CapturedGraph graph(shared_context(), planned.stream(), [&] { planned.enqueue(); });
  for (size_t turn = 0; turn < c.rows.size(); ++turn) {
    INFO(c.text());
    const Answer answer = execute(planned, [&] {
      planned.reset();
      for (const auto& [name, tensor] : decode_call(c, in).tensors) {
        REQUIRE(tensor.shape == call.tensors.at(name).shape);
        if (!tensor.values.empty()) planned.upload(name, tensor.values);
      }
      graph.launch();
      planned.synchronize();
    });
    check_decode(c, in, answer);
    CHECK(by_warpgroups(answer));
    std::ranges::rotate(c.rows, c.rows.begin() + 1);
    std::ranges::rotate(c.cached, c.cached.begin() + 1);
    ++c.seed;
    in = make_decode(c);
  }
}

// Splits follow from all sequences of a call, and so do bits; of one batch they repeat.
TEST_CASE("results repeat bit for bit") {
  DecodeCase c = batch(30);
  c.rows = {1, 60, 2}, c.cached = {1500, 300, 700}, c.table_width = 100;
  const DecodeInputs in = make_decode(c);
  const Answer first = checked(c, in), second = checked(c, in);
  for (const char* name : {"out", "lse"}) CHECK(first.at(name) == second.at(name));
}

// Nobody can check what is on the device: pages that are not there read as zeros, and offsets and
// lengths are cut to what there is.
TEST_CASE("pages that are not there, offsets and lengths out of range stay in bounds") {
  DecodeCase c = batch(40);
  c.append = true;
  const DecodeInputs in = make_decode(c);
  std::mt19937 random(3);
  for (int turn = 0; turn < 6; ++turn) {
    Call call = decode_call(c, in);
    const auto spoil = [&](const char* name, const std::vector<double>& values) {
      for (double& value : call.tensors.at(name).values) {
        if (random() % 2 == 0) value = values[random() % values.size()];
      }
    };
    if (turn % 3 == 0) spoil("block_table", {-1, -2147483648.0, 2147483647.0, 1e6});
    if (turn % 3 == 1) spoil("cu_seqlens_q", {-5, 99, 1000000, 2147483647.0, -2147483648.0});
    if (turn % 3 == 2) spoil("cache_seqlens", {-1, 2147483647.0, -2147483648.0, 1e6});
    const Answer answer = execute(shared_context(), call);
    CHECK(answer.error == "");
    // Rows that two sequences claim are written twice.
    for (const std::string& finding : answer.findings) {
      if (turn % 3 != 1 || finding.find("racecheck") == std::string::npos) FAIL_CHECK(finding);
    }
    CHECK(by_warpgroups(answer));
  }
}

TEST_CASE("calls that Hopper's kernel does not take are the portable one's") {
  DecodeCase c = batch(50);
  c.page = 24, c.table_width = 10;  // no multiple of 16
  Answer answer = run_decode(c, make_decode(c));
  check_decode(c, make_decode(c), answer);
  CHECK_FALSE(by_warpgroups(answer));
  c = batch(51);
  c.rows = {1, 1, 1}, c.cached = {100, 3, 40}, c.padding = 0;
  answer = run_decode(c, make_decode(c));
  check_decode(c, make_decode(c), answer);
  CHECK_FALSE(by_warpgroups(answer));
}

}  // namespace
