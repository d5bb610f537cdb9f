// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_decode on the host: specs, the choice of kernels, splits and
// sizes.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;
using namespace kernel_problems;

namespace {

AttentionProblem decode_of(int head_dim, int value_dim) {
  AttentionProblem problem;
  problem.head_dim = head_dim, problem.value_dim = value_dim;
  problem.decode = true;
  return problem;
}

std::vector<int64_t> rows_of(const AttentionDecodeRows& rows) {
  std::vector<int64_t> out;
  for (const auto& decode : decode_kernels(decode_of(128, 128), facts("sm_90a"), rows)) {
    out.push_back(decode->kernel->constant("m"));
  }
  return out;
}

// Returns which of the kernels a call takes.
size_t taken_of(const std::vector<std::unique_ptr<AttentionDecode>>& kernels,
                const AttentionDecodeShape& shape) {
  size_t taken = 0;
  while (taken + 1 < kernels.size() && !kernels[taken]->takes(shape)) ++taken;
  return taken;
}

}  // namespace

TEST_CASE("attention decode: specs in full") {
  AttentionProblem problem = decode_of(128, 128);
  const auto plain = decode_kernels(problem, facts("sm_80"), {1, 8});
  REQUIRE(plain.size() == 1);
  CHECK(plain[0]->kernel->text() ==
        "attention_decode element=bf16 width=128 value_width=128 m=16 n=64 stages=2 local=0 "
        "softcap=0 alibi=0 sinks=0 threads=128 smem=71680");
  CHECK(attention_combine_spec(problem).text() ==
        "attention_combine element=bf16 sinks=0 threads=128 smem=0");
  problem.element = Dtype::f16, problem.head_dim = 72, problem.value_dim = 40;
  problem.local = problem.softcap = problem.alibi = problem.sinks = problem.append = true;
  problem.split = false;
  const auto full = decode_kernels(problem, facts("sm_90a"), {16, 8});
  CHECK(full[0]->kernel->text() ==
        "attention_decode element=f16 width=96 value_width=64 m=64 n=64 stages=4 local=1 "
        "softcap=1 alibi=1 sinks=1 threads=128 smem=98304");
  CHECK(attention_append_spec(problem).text() == "attention_append threads=128 smem=0");
}

TEST_CASE("attention decode: rows of a tile by queries and heads of a group") {
  CHECK(rows_of({1, 1}) == std::vector<int64_t>{16});
  CHECK(rows_of({2, 8}) == std::vector<int64_t>{16});
  CHECK(rows_of({3, 8}) == std::vector<int64_t>{32});
  CHECK(rows_of({16, 128}) == std::vector<int64_t>{64});
  CHECK(rows_of({0, 8}) == std::vector<int64_t>{16});
  // A number of queries that varies: one kernel for a single query, one for many.
  CHECK(rows_of({-1, 1}) == std::vector<int64_t>{16, 64});
  CHECK(rows_of({-1, 20}) == std::vector<int64_t>{32, 64});
  CHECK(rows_of({-1, 64}) == std::vector<int64_t>{64});
  CHECK(rows_of({4, -1}) == std::vector<int64_t>{16, 64});
  const auto kernels = decode_kernels(decode_of(64, 64), facts("sm_80"), {-1, 8});
  AttentionDecodeShape shape{2, 1, 16, 2, 10, 16, 4};
  for (const auto& [queries, pick] : {std::pair(0, 0), {1, 0}, {2, 0}, {3, 1}, {100, 1}}) {
    shape.queries = queries;
    CHECK(taken_of(kernels, shape) == static_cast<size_t>(pick));
  }
}

TEST_CASE("attention decode: every width has a tile that fits on every architecture") {
  for (const std::string& arch : supported_archs()) {
    const DeviceFacts device = facts(arch.c_str());
    for (const int width : {64, 96, 128, 192, 256}) {
      for (const int rows : {16, 32, 64}) {
        CAPTURE(arch);
        CAPTURE(width);
        CAPTURE(rows);
        const auto all = attention_decode_candidates(decode_of(width, width), device, rows);
        REQUIRE_FALSE(all.empty());
        for (const AttentionTile& tile : all) {
          CHECK(tile.rows == rows);
          CHECK(attention_decode_smem(decode_of(width, width), tile) <=
                device.shared_bytes_per_block);
          CHECK(std::count(all.begin(), all.end(), tile) == 1);
        }
        // At width 128 two blocks share a multiprocessor.
        if (width <= 128) {
          CHECK(2 * attention_decode_smem(decode_of(width, width), all.front()) <=
                device.shared_bytes_per_multiprocessor);
        }
      }
    }
  }
  DeviceFacts small = facts("sm_86");
  small.shared_bytes_per_block = 16 << 10;
  const auto refused = make_attention_decodes({decode_of(128, 128), {1, 1}}, small);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::unsupported);
  CHECK(refused.status().text().find("16384") != std::string::npos);
}

namespace {

AttentionProblem latent_problem() {
  AttentionProblem problem = decode_of(576, 512);
  problem.latent = true;
  return problem;
}

}  // namespace

TEST_CASE("attention decode: latent specs, and tiles that fit on every architecture") {
  const auto plain = decode_kernels(latent_problem(), facts("sm_80"), {1, 128});
  REQUIRE(plain.size() == 1);
  CHECK(plain[0]->kernel->text() ==
        "attention_decode_latent element=bf16 width=576 value_width=512 m=64 n=32 stages=2 local=0 "
        "softcap=0 alibi=0 sinks=0 threads=256 smem=164352");
  // Where 64 rows do not fit, tiles have 32: one kernel serves both numbers of rows.
  const auto small = decode_kernels(latent_problem(), facts("sm_86"), {-1, 32});
  REQUIRE(small.size() == 1);
  CHECK(small[0]->kernel->constant("m") == 32);
  for (const std::string& arch : supported_archs()) {
    const DeviceFacts device = facts(arch.c_str());
    for (const int rows : {16, 32, 64}) {
      const auto all = attention_latent_candidates(latent_problem(), device, rows);
      REQUIRE_FALSE(all.empty());
      for (const AttentionTile& tile : all) {
        CHECK(tile.rows <= rows);
        CHECK(tile.rows == all.front().rows);
        CHECK(attention_latent_smem(latent_problem(), tile) <= device.shared_bytes_per_block);
        CHECK(std::count(all.begin(), all.end(), tile) == 1);
      }
    }
  }
}

TEST_CASE("attention decode: warpgroups take latent calls with many rows and pages of whole runs") {
  DeviceFacts hopper = facts("sm_90a");
  hopper.family = "sm90";
  const auto refusal = [&](const AttentionProblem& problem, const AttentionDecodeRows& rows) {
    return refusal_of(kAttentionDecodeSm90, {problem, rows}, hopper);
  };
  AttentionProblem problem = latent_problem();
  CHECK(refusal(problem, {}).empty());
  CHECK(refusal(problem, {1, 128, 64}).empty());
  CHECK(refusal(problem, {2, 16, 48}).empty());
  CHECK(refusal(problem, {1, 16, 64}) == "there are few rows");
  CHECK(refusal(problem, {1, 128, 40}) == "a page is no multiple of 16 keys");
  CHECK(refusal(decode_of(128, 128), {}) == "values have a cache of their own");
  problem.mods = {{"score_mod", "", ""}};
  CHECK(refusal(problem, {}) == "there are mods");
  hopper.arch = "sm_100";
  CHECK(refusal(latent_problem(), {}) == "the architecture is not sm_90a");
  hopper.arch = "sm_90a", hopper.family = "portable";
  CHECK(refusal(latent_problem(), {}) == "LATHE_FAMILY is portable");

  hopper.family = "sm90";
  const auto kernels = decode_kernels(latent_problem(), hopper, {-1, 16});
  REQUIRE(kernels.size() == 3);  // Hopper's, and portable ones for few rows and for many
  CHECK(kernels[0]->kernel->family == std::string_view("sm90"));
  CHECK(kernels[1]->kernel->family_reason.empty());
  CHECK(kernels[0]->kernel->text() ==
        "attention_decode_warpgroups element=bf16 width=576 value_width=512 m=64 n=64 stages=2 "
        "local=0 softcap=0 alibi=0 sinks=0 map_k=bf16x64x64x1x1/128 map_k=bf16x64x16x1x1/128 "
        "threads=384 smem=230576");
  AttentionDecodeShape shape{2, 4, 16, 1, 10, 64, 4};
  CHECK(taken_of(kernels, shape) == 0);
  shape.page = 24;
  CHECK(taken_of(kernels, shape) == 2);
  shape.page = 16, shape.queries = 1;
  CHECK(taken_of(kernels, shape) == 1);
  shape.queries = 2;
  CHECK(taken_of(kernels, shape) == 0);
  shape.pages = 0;  // there is nothing to map
  CHECK(taken_of(kernels, shape) == 2);
}

TEST_CASE("attention decode: warpgroups take packed calls with many rows and pages of whole runs") {
  DeviceFacts hopper = facts("sm_90a");
  hopper.family = "sm90";
  AttentionProblem problem = decode_of(128, 128);
  problem.ragged = problem.local = true, problem.cu_seqlens = Dtype::i32;
  const auto refusal = [&](const AttentionProblem& of, const AttentionDecodeRows& rows) {
    return refusal_of(kAttentionDecodeRaggedSm90, {of, rows}, hopper);
  };
  CHECK(refusal(problem, {}).empty());
  CHECK(refusal(problem, {-1, 4, 48}).empty());
  CHECK(refusal(problem, {-1, 4, 24}) == "a page is no multiple of 16 keys");
  CHECK(refusal(decode_of(128, 128), {}) == "queries are not packed");
  CHECK(refusal(decode_of(40, 136), {}) == "there is no tile for the head widths");
  AttentionProblem other = problem;
  other.spread = true;
  CHECK(refusal(other, {}) == "keys lie on several ranks or begin behind padding");
  other = problem, other.narrow = kHeadScales;
  CHECK(refusal(other, {}) == "the cache has 8 bits");
  other = problem, other.mods = {{"score_mod", "", ""}};
  CHECK(refusal(other, {}) == "there are mods");

  const auto kernels = decode_kernels(problem, hopper, {-1, 4});
  REQUIRE(kernels.size() == 3);  // Hopper's, and portable ones for few rows and for many
  CHECK(kernels[1]->kernel->family_reason.empty());
  CHECK(kernels[0]->slots().size() == 2);
  CHECK((*kernels[0]->slots()[0])->text() ==
        "attention_ragged_order cu=i32 m=128 n=128 bundle=4 threads=512 smem=34944");
  CHECK(kernels[0]->kernel->text() ==
        "attention_ragged_warpgroups element=bf16 cu=i32 width=128 value_width=128 m=128 n=128 "
        "stages=2 packed=1 local=1 softcap=0 alibi=0 sinks=0 pack_gqa=1 listed=0 short_first=0 "
        "whole_groups=1 map_q=bf16x64x0x0x1x1/128 map_k=bf16x64x0x1x1x1/128 "
        "map_v=bf16x64x0x1x1x1/128 threads=384 smem=164416");
  AttentionDecodeShape shape{8, 20, 8, 2, 50, 64, 8};
  shape.ragged = true, shape.packed_tokens = 160;
  CHECK(taken_of(kernels, shape) == 0);
  shape.page = 40;
  CHECK(taken_of(kernels, shape) == 2);
  shape.page = 64, shape.queries = 4;  // 16 rows
  CHECK(taken_of(kernels, shape) == 1);
  shape.queries = 5, shape.packed_tokens = 40;
  CHECK(taken_of(kernels, shape) == 0);
  shape.batch = 0;  // padding alone
  CHECK(taken_of(kernels, shape) == 2);

  // A kernel that is not taken says so for each kind of call.
  const auto portable = decode_kernels(decode_of(128, 128), hopper, {1, 4});
  CHECK(portable[0]->kernel->family_reason ==
        "not sm90: values have a cache of their own; queries are not packed");

  // 8 sequences of 40 tokens, 32 to a tile: at most 1 + 8 + 1 tiles of a key head.
  shape.batch = 8;
  const AttentionSplitTable table(132);
  const auto parts = [&](int64_t wanted) {
    AttentionProblem split = problem;
    split.split = wanted != 1;
    return *kernels[0]->parts(split, shape, table, 132, wanted);
  };
  CHECK(parts(1).blocks == 20);
  CHECK(parts(1).joined_rows == 0);
  CHECK(parts(1).turns * parts(1).blocks >= 20);
  CHECK(parts(3).blocks == 60);
  CHECK(parts(3).slots == 32 * 20 * 3);
  CHECK(parts(0).share == 132);
  CHECK(parts(0).slots == 2 * 132 * (128 + 8 * 16) / 4);
  CHECK(parts(0).slot_rows == 4);
  CHECK(parts(0).turns * parts(0).blocks >= 20 + parts(0).slots);
}

TEST_CASE("attention decode: latent keys are read once") {
  AttentionProblem problem = latent_problem();
  problem.append = true;
  const KernelSpec spec = *decode_kernels(problem, facts("sm_80"), {1, 16})[0]->kernel;
  const AttentionDecodeShape shape{2, 1, 16, 1, 50, 16, 8};
  const auto cost = attention_decode_cost(problem, spec, shape, {1, 128, -1, -1}, 0);
  const uint64_t rows = 2 * 16 * ((576 + 512) * 2 + 4), keys = 2 * 128 * 576 * 2;
  CHECK(cost.minimum_bytes == rows + keys + 2 * 2 * 576 * 2);
  CHECK(cost.bytes == cost.minimum_bytes);
  CHECK(cost.flops == 2ull * (576 + 512) * 2 * 16 * 128);
}

TEST_CASE("attention decode: splits follow from capacities") {
  const AttentionProblem problem = decode_of(128, 128);
  const KernelSpec spec = *decode_kernels(problem, facts("sm_90a"), {1, 8})[0]->kernel;
  const AttentionSplitTable table(132);
  const auto splits = [&](int64_t batch, int64_t kv_heads, int64_t width, int64_t wanted) {
    const AttentionDecodeShape shape{batch, 1, 8 * kv_heads, kv_heads, 1000, 64, width};
    return attention_decode_splits(problem, AttentionTiling(spec), shape, table, wanted);
  };
  // A page is a block of keys here: the vectors of the heuristic.
  CHECK(splits(1, 1, 1024, 0) == 109);
  CHECK(splits(1, 8, 64, 0) == 15);
  CHECK(splits(8, 1, 4, 0) == 1);
  CHECK(splits(4, 8, 128, 0) == 4);
  CHECK(splits(132, 1, 32, 0) == 1);
  CHECK(splits(1, 1, 0, 0) == 1);
  CHECK(splits(1, 1, 1024, 7) == 7);
  CHECK(splits(1, 1, 5, 7) == 5);
  CHECK(splits(1, 1, 1024, 1 << 30) == 256);
  AttentionProblem whole = problem;
  whole.split = false;
  CHECK(attention_decode_splits(whole, AttentionTiling(spec), {1, 1, 8, 1, 1000, 64, 1024}, table,
                                0) == 1);
}

TEST_CASE("attention decode: grids and workspace") {
  const AttentionProblem problem = decode_of(128, 96);
  const KernelSpec narrow = *decode_kernels(problem, facts("sm_80"), {1, 5})[0]->kernel;
  const AttentionDecodeShape shape{3, 7, 10, 2, 50, 16, 20};
  CHECK(attention_decode_tiles(AttentionTiling(narrow), shape) == 3);  // 35 rows of 16
  CHECK(attention_decode_blocks(AttentionTiling(narrow), shape, 4) == 3 * 2 * 3 * 4);
  CHECK(attention_append_blocks(shape) == 21);
  CHECK(attention_combine_blocks(210) == 53);  // four rows a block
  const AttentionSplitTable table(132);
  const auto parts = [&](const AttentionDecodeShape& of, int64_t wanted) {
    return *attention_decode_parts(problem, AttentionTiling(narrow), of, table, 264, wanted);
  };
  CHECK(parts(shape, 1).total == 0);
  CHECK(parts(shape, 1).joined_rows == 0);
  CHECK(parts(shape, 4).blocks == 3 * 2 * 3 * 4);
  CHECK(parts(shape, 4).joined_rows == 210);
  CHECK(parts(shape, 4).partial_lse == 4 * 210 * 96 * 4);
  CHECK(parts(shape, 4).total == 326'144);  // 4 * 210 * 97 * 4, up

  // Packed: 3 sequences of 21 tokens, so that at most 6 + 4 tiles of a key head have rows.
  AttentionDecodeShape packed = shape;
  packed.ragged = true, packed.packed_tokens = 21;
  CHECK(parts(packed, 1).blocks == 10 * 2);
  CHECK(parts(packed, 1).total == 0);
  CHECK(parts(packed, 3).blocks == 10 * 2 * 3);
  CHECK(parts(packed, 3).slots == 10 * 2 * 3);
  CHECK(parts(packed, 0).blocks == 10 * 2 + 264);
  CHECK(parts(packed, 0).slots == 2 * 264);
  CHECK(parts(packed, 0).joined_rows == 2 * 264 * 16);
  CHECK(parts(packed, 0).combine_list >= 2 * 264 * 16 * 97 * 4);
  packed.table_width = 4;  // one block of keys: nothing to share out
  CHECK(parts(packed, 0).blocks == 10 * 2);
  CHECK(parts(packed, 0).joined_rows == 0);
}

TEST_CASE("attention decode: costs by hand") {
  AttentionProblem problem = decode_of(64, 64);
  const KernelSpec spec = *decode_kernels(problem, facts("sm_80"), {1, 4})[0]->kernel;
  const AttentionDecodeShape shape{2, 1, 8, 2, 50, 16, 8};
  const AttentionMask mask{1, 128, -1, -1};
  const auto cost = attention_decode_cost(problem, spec, shape, mask, 0);
  const uint64_t rows = 2 * 8 * (128 * 2 + 4), keys = 2 * 2 * 128 * 128 * 2;
  CHECK(cost.minimum_bytes == rows + keys);
  CHECK(cost.bytes == rows + keys);
  CHECK(cost.flops == 2ull * 128 * 2 * 8 * 128);
  problem.append = true;
  const auto split = attention_decode_cost(problem, spec, shape, mask, 2 * 16);
  CHECK(split.minimum_bytes == rows + keys + 2 * 2 * 2 * 128 * 2);
  CHECK(split.bytes == split.minimum_bytes + 2 * 2 * 16 * 65 * 4);  // written and read
}

TEST_CASE("attention decode: a quotient by a multiplication") {
  std::mt19937 random(1);
  const auto quotient = [](const FastDivision& by, uint32_t n) {
    return static_cast<uint32_t>(((uint64_t{n} * by.magic) >> 32) + n) >> by.shift;
  };
  std::vector<int64_t> divisors = {1, 2, 3, 7, 16, 48, 64, 255, 256, 257, 1000, 0x7fffffff};
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + random() % 0x7fffffff);
  for (const int64_t divisor : divisors) {
    const FastDivision by = fast_division(divisor);
    CAPTURE(divisor);
    for (int i = 0; i < 200; ++i) {
      const uint32_t n = i < 2 ? 0x7fffffff * i : random() & 0x7fffffff;
      REQUIRE(quotient(by, n) == n / divisor);
      // Beside a multiple it is hardest.
      const uint32_t edge = static_cast<uint32_t>(n / divisor * divisor);
      REQUIRE(quotient(by, edge) == edge / divisor);
      if (edge > 0) REQUIRE(quotient(by, edge - 1) == (edge - 1) / divisor);
    }
  }
}
