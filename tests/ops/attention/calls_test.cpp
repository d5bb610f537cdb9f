// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover calls of flash_attention that end before a launch: refusals, nothing to do, and
// the workspace.
#include "ops/attention/run.h"
#include "tests/harness/problems.h"
#include "tests/ops/attention/problems.h"

namespace {

using lathe::Code;
using test::Array;
using test::kBackward;
using test::kBatched;
using test::kPacked;

// A call of kBatched or kPacked; nothing of it is ever launched.
struct Fixture : test::ExecutorCall {
  explicit Fixture(const test::Tensors& tensors) : ExecutorCall("flash_attention", tensors) {}
  void batched(int64_t batch, int64_t queries, int64_t keys, int64_t heads = 8) {
    arrays["q"] = Array(LATHE_BF16, {batch, queries, heads, 64});
    arrays["k"] = Array(LATHE_BF16, {batch, keys, 2, 64});
    arrays["v"] = Array(LATHE_BF16, {batch, keys, 2, 128});
    arrays["out"] = Array(LATHE_BF16, {batch, queries, heads, 128});
    arrays["lse"] = Array(LATHE_F32, {batch, heads, queries});
  }
  void packed(int64_t sequences, int64_t queries, int64_t keys) {
    arrays["q"] = Array(LATHE_F16, {queries, 8, 64});
    arrays["k"] = Array(LATHE_F16, {keys, 2, 64});
    arrays["v"] = Array(LATHE_F16, {keys, 2, 128});
    arrays["cu_seqlens_q"] = Array(LATHE_I64, {sequences + 1});
    arrays["cu_seqlens_k"] = Array(LATHE_I64, {sequences + 1});
    arrays["out"] = Array(LATHE_F16, {queries, 8, 128});
    arrays["lse"] = Array(LATHE_F32, {8, queries});
  }
};

TEST_CASE("nothing to write: no launch") {
  Fixture fixture(kBatched);
  fixture.batched(0, 16, 16);
  CHECK(fixture.run().ok());
  fixture.batched(2, 0, 16);
  CHECK(fixture.run().ok());
  fixture.batched(2, 0, 0);
  CHECK(fixture.run().ok());
  Fixture packed(kPacked);
  packed.packed(3, 0, 16);
  CHECK(packed.run().ok());
  packed.packed(0, 0, 0);
  CHECK(packed.run().ok());
}

// Each of the first three took from eight seconds to minutes, or the memory of 2^30 masks.
TEST_CASE("an estimate takes no time of each sequence, row or tile") {
  constexpr int64_t kMany = int64_t{1} << 30;
  const auto estimate = [](Fixture& fixture) {
    return fixture.estimate(lathe::Checks::shapes).cost;
  };
  Fixture fixture(kBatched);
  fixture.batched(kMany, 0, 16);
  CHECK(estimate(fixture).flops == 0);
  fixture.batched(1, kMany, kMany);
  CHECK(estimate(fixture).flops == UINT64_MAX);
  Fixture packed(kPacked);
  packed.packed(kMany / 16, 5, 7);
  CHECK(estimate(packed).flops == 5 * 2 * (64 + 128) * 8);
  // Rows 2 2 1 1 1, keys 3 3 3 2 2: 19 pairs.
  packed.packed(5, 7, 13);
  CHECK(estimate(packed).flops == 19 * 2 * (64 + 128) * 8);
}

TEST_CASE("calls that do not fit are refused before a launch") {
  Fixture fixture(kBatched);
  fixture.batched(2, 0, 16);
  fixture.arrays["k"] = Array(LATHE_BF16, {2, 17, 2, 64});
  fixture.check_refused({"v has shape [2, 16, 2, 128]", "Sk is 16", "Sk = 17"});
  fixture.batched(2, 16, 16);
  fixture.arrays["k"] = Array(LATHE_BF16, {3, 16, 2, 64});
  fixture.check_refused({"k has shape [3, 16, 2, 64]", "B is 3", "B = 2"});
  fixture.batched(2, 16, 16);
  fixture.arrays["lse"] = Array(LATHE_F32, {2, 8, 15});
  fixture.check_refused({"lse", "Sq is 15", "Sq = 16"});
  // Rows of 16 bytes: any token stride that is a multiple of 8 elements, and no other.
  fixture.batched(2, 16, 16);
  fixture.arrays["q"].strides = {16 * 516, 516, 64, 1};
  fixture.check_refused({"q", "stride 516", "multiples of 16 bytes"});
  fixture.batched(2, 16, 16);
  fixture.arrays["q"].strides = {16 * 512, 512, 32, 1};
  fixture.check_refused({"q", "overlap"});
  fixture.batched(2, 16, 16);
  fixture.arrays["v"].strides = {16 * 512, 512, 256, 2};
  fixture.check_refused({"v", "the last must be 1"});
  fixture.batched(64, 1 << 30, 16);
  fixture.check_refused({"blocks", "split the batch"}, Code::unsupported);
  fixture.batched(1, (int64_t{1} << 30) + 1, 16);
  fixture.check_refused({"q has Sq = 1073741825", "1073741824"}, Code::unsupported);

  Fixture packed(kPacked);
  packed.packed(3, 16, 16);
  packed.arrays["cu_seqlens_k"] = Array(LATHE_I64, {5});
  packed.check_refused({"cu_seqlens_k", "N is 4", "N = 3"});
}

TEST_CASE("the backward's workspace follows from the call's shape alone") {
  Fixture fixture(kBackward);
  const auto bytes = [&](int64_t batch, int64_t queries, int64_t keys) {
    fixture.batched(batch, queries, keys);
    fixture.arrays["dout"] = fixture.arrays["out"];
    fixture.arrays["dq"] = fixture.arrays["q"];
    fixture.arrays["dk"] = fixture.arrays["k"];
    fixture.arrays["dv"] = fixture.arrays["v"];
    return fixture.workspace(lathe::Checks::shapes);
  };
  // lse2 and delta, dq, and, of few blocks, dk and dv of each query head.
  CHECK(*bytes(2, 16, 32) == 2 * 1024 + 65536 + 131072 + 262144);
  CHECK(*bytes(2, 16, 32) == *bytes(2, 16, 32));
  CHECK(*bytes(0, 16, 32) == 0);
  CHECK(*bytes(2, 0, 32) == 131072 + 262144);
  CHECK(*bytes(2, 16, 0) == 2 * 1024 + 65536);
  // 108 multiprocessors: of 2 * 2 * 22 blocks of 128 keys no more are needed.
  CHECK(*bytes(2, 16, 2816) == 2 * 1024 + 65536);
  const auto refused = bytes(64, 1 << 30, 16);
  REQUIRE_FALSE(refused.ok());
  test::check_refused(refused.status(), {"split the batch"}, Code::unsupported);
}

TEST_CASE("heads left open are checked by the call") {
  std::vector<test::Declaration> open = kBatched;
  for (auto& each : open) each.shape[each.name == "lse" ? 1 : 2] = -1;
  Fixture fixture(open);
  fixture.batched(2, 16, 16, 7);
  fixture.check_refused({"H = 7 and k has HK = 2"});
}

}  // namespace
