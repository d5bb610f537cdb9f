// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sparse_flash_attention without a device: every refusal by table, what a problem
// becomes, and calls that end before a launch.
#include "ops/sparse/run.h"
#include "tests/harness/problems.h"

namespace {

using lathe::Code;
using namespace test;

const Tensors kBatch = {{"q", LATHE_BF16, {-1, -1, 8, 64}},
                        {"k", LATHE_BF16, {-1, -1, 2, 64}},
                        {"v", LATHE_BF16, {-1, -1, 2, 32}},
                        {"indices", LATHE_I32, {-1, -1, 2, -1}},
                        {"out", LATHE_BF16, {-1, -1, 8, 32}}};
const Tensors kPacked = {{"q", LATHE_BF16, {-1, 8, 64}},    {"k", LATHE_BF16, {-1, 2, 64}},
                         {"v", LATHE_BF16, {-1, 2, 32}},    {"indices", LATHE_I32, {-1, 2, -1}},
                         {"cu_seqlens_q", LATHE_I64, {-1}}, {"cu_seqlens_k", LATHE_I64, {-1}},
                         {"out", LATHE_BF16, {-1, 8, 32}}};
const Options kScaled = {{"scale", "0.125"}};

const Requests<lathe::SparseRequest> request = {"sparse_flash_attention", lathe::sparse_request};

TEST_CASE("sparse attention: a second cache, rows of bytes and sinks that do not fit") {
  const Tensors tokens = {{"q", LATHE_BF16, {-1, 8, 576}},
                          {"k", LATHE_BF16, {-1, 1, 576}},
                          {"indices", LATHE_I32, {-1, 1, -1}},
                          {"out", LATHE_BF16, {-1, 8, 512}}};
  const Tensors extra = {{"k_extra", LATHE_BF16, {-1, 1, 576}},
                         {"indices_extra", LATHE_I32, {-1, 1, -1}}};
  const Options absolute = {{"scale", "0.125"}, {"index_space", "absolute"}};
  const Options bytes = {
      {"scale", "0.125"}, {"index_space", "absolute"}, {"row_format", "e4m3_656"}};
  const Tensors rows = with(tokens, {{"k", LATHE_U8, {-1, 656}}});
  CHECK(request.accepted(with(tokens, extra), absolute).problem.extra);
  CHECK(request.accepted(rows, bytes).problem.byte_rows);
  const Tensors gradients = {{"dout", LATHE_BF16, {-1, 8, 512}},
                             {"lse", LATHE_F32, {8, -1}},
                             {"dq", LATHE_BF16, {-1, 8, 576}}};
  request.check_refused({
      {with(tokens, {extra[0]}), absolute, {"k_extra", "indices_extra"}},
      {with(tokens, {extra[1]}), absolute, {"indices_extra", "k_extra"}},
      {with(tokens, extra), kScaled, {"k_extra", "index_space is sequence", "absolute"}},
      {with(with(tokens, extra), gradients), absolute, {"dout", "k_extra", "forward alone"}},
      {with(with(tokens, extra), {{"v", LATHE_BF16, {-1, 1, 512}}}),
       absolute,
       {"v is declared and k_extra", "columns of the keys"}},
      {with(with(tokens, extra), {{"k_extra", LATHE_F16, {-1, 1, 576}}}),
       absolute,
       {"k_extra has dtype f16", "bf16"}},
      {rows, absolute, {"k has dtype u8", "row_format is none"}},
      {tokens, bytes, {"k has dtype bf16", "e4m3_656"}},
      {with(tokens, {{"k", LATHE_U8, {-1, 1, 576}}}), bytes, {"k has dtype u8", "two dims"}},
      {with(rows, {{"k", LATHE_U8, {-1, 640}}}), bytes, {"640 bytes", "656"}},
      {with(rows, {{"q", LATHE_BF16, {-1, 8, 512}}}), bytes, {"D = 512", "576"}},
      {with(rows, {{"indices", LATHE_I32, {-1, 2, -1}}}), bytes, {"HK = 2"}},
      {with(with(tokens, gradients), {{"sinks", LATHE_F32, {8}}}),
       {{"scale", "0.125"}, {"sinks_in_statistics", "0"}},
       {"dout", "sinks_in_statistics is 0"}},
  });
}

TEST_CASE("sparse attention: tensors that do not fit are refused by name, with what is allowed") {
  request.check_refused({
      {without(kBatch, "indices"), kScaled, {"indices is not declared"}},
      {without(kBatch, "out"), kScaled, {"nothing to compute", "out"}},
      {with(kBatch, {{"indices", LATHE_I64, {-1, -1, 2, -1}}}), kScaled, {"indices", "i64", "i32"}},
      {with(kBatch, {{"indices", LATHE_I32, {-1, -1, -1}}}),
       kScaled,
       {"indices has rank 3", "[B,Sq,HK,topk]"}},
      {with(kBatch, {{"indices", LATHE_I32, {-1, -1}}}), kScaled, {"indices has rank 2"}},
      {with(kBatch, {{"indices", LATHE_I32, {-1, -1, 8, -1}}}),
       kScaled,
       {"indices", "HK is 8", "HK is 2"}},
      {with(kBatch, {{"indices", LATHE_I32, {-1, -1, 2, 0}}}), kScaled, {"indices has topk = 0"}},
      {with(kBatch, {{"k", LATHE_F16, {-1, -1, 2, 64}}}), kScaled, {"k has dtype f16", "bf16"}},
      {with(kBatch, {{"q", LATHE_F32, {-1, -1, 8, 64}}}), kScaled, {"q has dtype f32", "f16|bf16"}},
      {with(kBatch, {{"k", LATHE_BF16, {-1, -1, 2, 128}}}), kScaled, {"k", "D is 128", "D is 64"}},
      {with(kBatch, {{"k", LATHE_BF16, {-1, 2, 64}}}),
       kScaled,
       {"k has rank 3", "[B,Sk,HK,D]", "q is"}},
      {with(kPacked, {{"v", LATHE_BF16, {-1, -1, 2, 32}}}),
       kScaled,
       {"v has rank 4", "[Tk,HK,DV]"}},
      {with(kPacked, {{"q_pos", LATHE_I32, {-1, -1}}}), kScaled, {"q_pos has rank 2", "[Tq]"}},
      {with(kBatch, {{"q_pos", LATHE_I32, {-1}}}), kScaled, {"q_pos has rank 1", "[B,Sq]"}},
      {with(kBatch, {{"q_pos", LATHE_I64, {-1, -1}}}), kScaled, {"q_pos", "i64", "i32"}},
      {with(kBatch, {{"cu_seqlens_q", LATHE_I32, {-1}}, {"cu_seqlens_k", LATHE_I32, {-1}}}),
       kScaled,
       {"cu_seqlens_q is declared and q has rank 4", "[Tq,H,D]"}},
      {without(kPacked, "cu_seqlens_k"),
       kScaled,
       {"cu_seqlens_q is declared without cu_seqlens_k"}},
      {without(kPacked, "cu_seqlens_q"), kScaled, {"cu_seqlens_k", "cu_seqlens_q"}},
      {with(kPacked, {{"cu_seqlens_k", LATHE_I32, {-1}}}),
       kScaled,
       {"cu_seqlens_k has dtype i32", "i64"}},
      {with(kPacked, {{"cu_seqlens_q", LATHE_I64, {4}}, {"cu_seqlens_k", LATHE_I64, {5}}}),
       kScaled,
       {"N is 4", "N is 3"}},
      {with(kBatch, {{"q", LATHE_BF16, {-1, -1, 7, 64}}, {"out", LATHE_BF16, {-1, -1, 7, 32}}}),
       kScaled,
       {"q has H = 7", "HK = 2", "multiple of HK"}},
      {with(kBatch, {{"q_rope", LATHE_BF16, {-1, -1, 8, 16}}}),
       kScaled,
       {"q_rope is declared without k_rope"}},
      {with(kBatch, {{"k_rope", LATHE_BF16, {-1, -1, 2, 16}}}),
       kScaled,
       {"k_rope is declared without q_rope"}},
      {with(kBatch,
            {{"q_rope", LATHE_BF16, {-1, -1, 8, 16}}, {"k_rope", LATHE_BF16, {-1, -1, 2, 32}}}),
       kScaled,
       {"k_rope", "R is 32", "R is 16"}},
      {with(kBatch,
            {{"q_rope", LATHE_BF16, {-1, -1, 8, 12}}, {"k_rope", LATHE_BF16, {-1, -1, 2, 12}}}),
       kScaled,
       {"q_rope has R = 12", "multiples of 8"}},
      {with(kBatch, {{"q", LATHE_BF16, {-1, -1, 8, 512}},
                     {"k", LATHE_BF16, {-1, -1, 2, 512}},
                     {"q_rope", LATHE_BF16, {-1, -1, 8, 128}},
                     {"k_rope", LATHE_BF16, {-1, -1, 2, 128}}}),
       kScaled,
       {"D = 512", "R = 128", "D + R up to 576"}},
      {with(kBatch, {{"q", LATHE_BF16, {-1, -1, 8, 60}}, {"k", LATHE_BF16, {-1, -1, 2, 60}}}),
       kScaled,
       {"q has D = 60", "multiples of 8 up to 576"}},
      {with(kBatch, {{"q", LATHE_BF16, {-1, -1, 8, -1}}, {"k", LATHE_BF16, {-1, -1, 2, -1}}}),
       kScaled,
       {"q has D = -1", "must be given"}},
      {with(kBatch, {{"v", LATHE_BF16, {-1, -1, 2, 520}}, {"out", LATHE_BF16, {-1, -1, 8, 520}}}),
       kScaled,
       {"v has DV = 520", "up to 512"}},
      {without(with(kBatch, {{"out", LATHE_BF16, {-1, -1, 8, 72}}}), "v"),
       kScaled,
       {"out has DV = 72", "k has D = 64", "DV up to D"}},
      {with(kBatch, {{"sinks", LATHE_F32, {4}}}), kScaled, {"sinks", "H is 4", "H is 8"}},
      {with(kBatch, {{"sinks", LATHE_BF16, {8}}}), kScaled, {"sinks", "bf16", "f32"}},
      {with(kBatch, {{"out", LATHE_F16, {-1, -1, 8, 32}}}),
       kScaled,
       {"out has dtype f16", "bf16", "or f32"}},
      {with(kBatch, {{"out", LATHE_F32, {-1, -1, 8, 32}},
                     {"dout", LATHE_BF16, {-1, -1, 8, 32}},
                     {"lse", LATHE_F32, {-1, 8, -1}},
                     {"dq", LATHE_BF16, {-1, -1, 8, 64}}}),
       kScaled,
       {"out has dtype f32", "bf16", "gradients"}},
      {with(kBatch, {{"softmax_max", LATHE_F32, {-1, 2, -1, 8}}}),
       kScaled,
       {"softmax_max has G = 8", "8 / 2 = 4"}},
      {with(kBatch, {{"dout", LATHE_BF16, {-1, -1, 8, 32}}}),
       kScaled,
       {"dout is declared without lse"}},
      {with(kBatch, {{"dout", LATHE_BF16, {-1, -1, 8, 32}}, {"lse", LATHE_F32, {-1, 8, -1}}}),
       kScaled,
       {"dout is declared, but no gradient is"}},
      {with(kBatch, {{"dq", LATHE_BF16, {-1, -1, 8, 64}}}),
       kScaled,
       {"dq is declared without dout"}},
      {without(with(kBatch, {{"dout", LATHE_BF16, {-1, -1, 8, 32}},
                             {"lse", LATHE_F32, {-1, 8, -1}},
                             {"dv", LATHE_BF16, {-1, -1, 2, 32}}}),
               "v"),
       kScaled,
       {"dv is declared without v"}},
  });
}

TEST_CASE("sparse attention: options that do not fit are refused") {
  request.check_refused({
      {kBatch, {}, {"option scale is not set", "requires it", "above 0"}},
      {kBatch, {{"scale", "0"}}, {"option scale is '0'", ">0"}},
      {kBatch, {{"scale", "-1"}}, {"option scale is '-1'", ">0"}},
      {kBatch, {{"scale", "inf"}}, {"option scale is 'inf'", ">0"}},
      {kBatch, {{"scale", "nan"}}, {"option scale is 'nan'", ">0"}},
      {kBatch, {{"scale", "1e300"}}, {"option scale", "float32"}},
      {kBatch, {{"scale", "1e-300"}}, {"option scale", "float32"}},
      {kBatch, {{"block_size", "3"}}, {"option block_size is '3'", "1|2|4|8|16|32|64|128"}},
      {kBatch, {{"block_size", "256"}}, {"option block_size is '256'"}},
      {kBatch,
       {{"scale", "1"}, {"block_size", "2"}, {"index_space", "absolute"}},
       {"option block_size is 2", "absolute", "allowed is 1"}},
      {kBatch, {{"sparse_mode", "1"}}, {"option sparse_mode is '1'", "0|3"}},
      {kBatch, {{"sparse_mode", "4"}}, {"option sparse_mode is '4'", "0|3"}},
      {kBatch, {{"index_space", "page"}}, {"option index_space is 'page'", "sequence|absolute"}},
      {kBatch, {{"num_splits", "-1"}}, {"option num_splits is '-1'", ">=0"}},
      {kBatch, {{"pre_tokens", "5"}}, {"no option 'pre_tokens'"}},
  });
  request.check_refused({{with(kBatch, {{"indices", LATHE_I32, {-1, -1, 2, 1 << 24}}}),
                          {{"scale", "1"}, {"block_size", "128"}},
                          {"topk = 16777216", "block_size is 128"}}},
                        Code::unsupported);
  request.check_refused(
      {kBatch, kScaled, {"multiples of 8 bytes", "rows of q, k, v", "pieces of 16"}},
      Code::unsupported, 8);
}

TEST_CASE("sparse attention: a problem becomes flags of the code and numbers of the launch") {
  const auto plain = request.accepted(kBatch, kScaled);
  CHECK(plain.problem.element == lathe::Dtype::bf16);
  CHECK(plain.problem.head_dim == 64);
  CHECK(plain.problem.rope_dim == 0);
  CHECK(plain.problem.value_dim == 32);
  CHECK(plain.problem.group == 4);
  check_flags(true, {plain.problem.forward, plain.problem.split});
  check_flags(false,
              {plain.problem.packed, plain.problem.values_in_keys, plain.tokens, plain.causal});
  CHECK(plain.scale == 0.125f);
  CHECK(plain.block_shift == 0);

  const auto rich = request.accepted(
      without(with(kPacked, {{"q_pos", LATHE_I32, {-1}},
                             {"sinks", LATHE_F32, {8}},
                             {"q_rope", LATHE_BF16, {-1, 8, 24}},
                             {"k_rope", LATHE_BF16, {-1, 2, 24}}}),
              "v"),
      {{"scale", "0.5"}, {"sparse_mode", "3"}, {"block_size", "64"}, {"deterministic", "1"}});
  CHECK(rich.problem.packed);
  CHECK(rich.problem.cu_seqlens == lathe::Dtype::i64);
  check_flags(true, {rich.problem.values_in_keys, rich.problem.sinks});
  CHECK(rich.problem.rope_dim == 24);
  CHECK_FALSE(rich.problem.split);
  check_flags(true, {rich.tokens, rich.causal, rich.positions});
  CHECK(rich.block_shift == 6);

  // One sequence of packed rows needs no offsets; positions count with sparse_mode 3 only.
  const auto flat = request.accepted(
      with(without(without(kPacked, "cu_seqlens_q"), "cu_seqlens_k"), {{"q_pos", LATHE_I32, {-1}}}),
      {{"scale", "1"}, {"index_space", "absolute"}, {"num_splits", "4"}});
  check_flags(true, {flat.tokens, flat.absolute});
  CHECK(flat.splits == 4);
  check_flags(false, {flat.problem.packed, flat.positions});
}

struct Fixture : ExecutorCall {
  explicit Fixture(const Tensors& tensors, const Options& options = kScaled)
      : ExecutorCall("sparse_flash_attention", tensors, options) {}
  void fill(int64_t batch, int64_t rows, int64_t keys, int64_t topk) {
    arrays["q"] = Array(LATHE_BF16, {batch, rows, 8, 64});
    arrays["k"] = Array(LATHE_BF16, {batch, keys, 2, 64});
    arrays["v"] = Array(LATHE_BF16, {batch, keys, 2, 32});
    arrays["indices"] = Array(LATHE_I32, {batch, rows, 2, topk});
    arrays["out"] = Array(LATHE_BF16, {batch, rows, 8, 32});
  }
};

TEST_CASE("sparse attention: nothing to write, no launch") {
  Fixture fixture(kBatch);
  fixture.fill(0, 5, 9, 4);
  CHECK(fixture.run().ok());
  fixture.fill(3, 0, 9, 4);
  CHECK(fixture.run().ok());
  CHECK(fixture.estimate().launches == 0);
}

TEST_CASE("sparse attention: calls that do not fit are refused before a launch") {
  Fixture fixture(kBatch);
  fixture.fill(2, 5, 9, 0);
  fixture.check_refused({"indices has topk = 0"});
  fixture.fill(2, 5, 9, 4);
  fixture.arrays["indices"] = Array(LATHE_I32, {2, 4, 2, 4});
  fixture.check_refused({"indices has shape [2, 4, 2, 4]", "Sq is 4", "Sq = 5"});
  fixture.fill(2, 5, 9, 4);
  fixture.arrays["k"].strides = {9 * 130, 130, 65, 1};
  fixture.check_refused({"k", "multiples of 16 bytes"});
  fixture.fill(1, (int64_t{1} << 30) + 1, 9, 4);
  fixture.check_refused({"q has Sq = 1073741825"}, Code::unsupported);
  fixture.fill(1 << 16, 1 << 16, 9, 4);
  fixture.check_refused({"rows", "split the rows"}, Code::unsupported);
  Fixture packed(kPacked);
  packed.arrays["q"] = Array(LATHE_BF16, {5, 8, 64});
  packed.arrays["k"] = Array(LATHE_BF16, {9, 2, 64});
  packed.arrays["v"] = Array(LATHE_BF16, {9, 2, 32});
  packed.arrays["indices"] = Array(LATHE_I32, {5, 2, 4});
  packed.arrays["out"] = Array(LATHE_BF16, {5, 8, 32});
  packed.arrays["cu_seqlens_q"] = Array(LATHE_I64, {3});
  packed.arrays["cu_seqlens_k"] = Array(LATHE_I64, {4});
  packed.check_refused({"cu_seqlens_k has shape [4]", "N is 3", "N = 2"});
}

TEST_CASE("sparse attention: an estimate counts lists as full, and parts of them") {
  Fixture fixture(kBatch, {{"scale", "1"}, {"num_splits", "1"}});
  fixture.fill(1, 100, 1000, 256);
  const uint64_t held = fixture.estimate().cost.bytes;  // keys that the cache has room for
  fixture.fill(1, 100, 1'000'000, 256);
  const lathe::Estimate one = fixture.estimate();
  CHECK(one.launches == 1);
  CHECK(one.cost.flops == 2ull * 100 * 8 * 256 * (64 + 32));
  CHECK(one.cost.tensor_ops >= one.cost.flops);
  CHECK(one.cost.bytes >= 100ull * 2 * 256 * (64 + 32) * 2);
  CHECK(held < one.cost.bytes / 5);
  Fixture parts(kBatch, {{"scale", "1"}, {"num_splits", "2"}});
  parts.fill(1, 100, 1'000'000, 256);
  CHECK(parts.estimate().launches == 2);
  CHECK(parts.estimate().cost.bytes > one.cost.bytes);
}

}  // namespace
