// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_decode without a device: refusals, what a problem becomes, and
// calls that end before a launch.
#include "ops/attention/decode/run.h"
#include "tests/harness/problems.h"

namespace {

using lathe::Code;
using namespace test;

const Tensors kDecode = {{"q", LATHE_BF16, {-1, -1, 8, 64}},
                         {"k_cache", LATHE_BF16, {-1, -1, 2, 64}},
                         {"v_cache", LATHE_BF16, {-1, -1, 2, 128}},
                         {"block_table", LATHE_I32, {-1, -1}},
                         {"cache_seqlens", LATHE_I32, {-1}},
                         {"out", LATHE_BF16, {-1, -1, 8, 128}},
                         {"lse", LATHE_F32, {-1, 8, -1}}};
const Tensors kNew = {{"k_new", LATHE_BF16, {-1, -1, 2, 64}},
                      {"v_new", LATHE_BF16, {-1, -1, 2, 128}}};

const Requests<lathe::DecodeRequest> request = {"flash_attention_decode", lathe::decode_request};

TEST_CASE("decode: tensors that do not fit are refused by name, with what is allowed") {
  request.check_refused({
      {without(kDecode, "block_table"), {}, {"block_table is not declared"}},
      {without(kDecode, "k_cache"), {}, {"k_cache is not declared"}},
      {without(kDecode, "lse"), {}, {"out", "without lse"}},
      {with(kDecode, {kNew[0]}), {}, {"k_new", "without v_new"}},
      {with(kDecode, {kNew[1]}), {}, {"v_new", "without k_new"}},
      {with(kDecode, {{"block_table", LATHE_I64, {-1, -1}}}), {}, {"block_table", "i64", "i32"}},
      {with(kDecode, {{"k_cache", LATHE_F16, {-1, -1, 2, 64}}}), {}, {"k_cache", "f16", "bf16"}},
      {with(kDecode, {{"k_cache", LATHE_BF16, {-1, -1, 2, 72}}}), {}, {"k_cache", "72", "D is 64"}},
      {with(kDecode, {{"v_cache", LATHE_BF16, {-1, -1, 4, 128}}}), {}, {"v_cache", "HK is 4"}},
      {with(kDecode, {{"k_cache", LATHE_BF16, {-1, 2, 64}}}),
       {},
       {"k_cache", "[P,page,bytes]", "[P,page,HK,D]"}},
      {with(kDecode, {{"k_cache", LATHE_BF16, {-1, 0, 2, 64}}}),
       {},
       {"k_cache", "page = 0", "1 and"}},
      {with(kDecode,
            {{"k_cache", LATHE_BF16, {-1, -1, 3, 64}}, {"v_cache", LATHE_BF16, {-1, -1, 3, 128}}}),
       {},
       {"H = 8", "k_cache has HK = 3", "multiple of HK"}},
      {with(kDecode,
            {{"q", LATHE_BF16, {-1, -1, 8, 60}}, {"k_cache", LATHE_BF16, {-1, -1, 2, 60}}}),
       {},
       {"D = 60", "multiples of 8 up to 256"}},
      {with(kDecode, {{"q", LATHE_BF16, {3, -1, 8, 64}}, {"cache_seqlens", LATHE_I32, {2}}}),
       {},
       {"cache_seqlens", "B is 2", "B is 3"}},
      {with(with(kDecode, kNew),
            {{"q", LATHE_BF16, {-1, 3, 8, 64}}, {"k_new", LATHE_BF16, {-1, 2, 2, 64}}}),
       {},
       {"k_new", "Sq is 2", "Sq is 3"}},
  });
}

const Tensors kPacked = with(kDecode, {{"q", LATHE_BF16, {-1, 8, 64}},
                                       {"cu_seqlens_q", LATHE_I32, {-1}},
                                       {"out", LATHE_BF16, {-1, 8, 128}},
                                       {"lse", LATHE_F32, {8, -1}}});
const Tensors kTurns = {{"rope_cos", LATHE_F32, {-1, 16}}, {"rope_sin", LATHE_F32, {-1, 16}}};

TEST_CASE("decode: packed queries, keys on ranks and rotary embeddings that do not fit") {
  const Tensors total = {{"total_seqlens", LATHE_I32, {-1}}};
  request.check_refused({
      {with(kDecode, {{"cu_seqlens_q", LATHE_I32, {-1}}}), {}, {"q has shape [B,Sq,H,D]", "Tq"}},
      {without(kPacked, "cu_seqlens_q"), {}, {"q has shape [Tq,H,D]", "not declared", "Sq"}},
      {with(kPacked, kNew), {}, {"k_new has shape [B,Sq,HK,D]", "Tq"}},
      {with(kPacked, {{"lse", LATHE_F32, {-1, 8, -1}}}), {}, {"lse has shape [B,H,Sq]", "Tq"}},
      {with(kPacked, {{"cu_seqlens_q", LATHE_I32, {4}}, {"cache_seqlens", LATHE_I32, {4}}}),
       {},
       {"cu_seqlens_q", "B is 3", "B is 4"}},
      {kDecode, {{"key_stride", "2"}}, {"key_stride is 2", "total_seqlens is not", "1"}},
      {kDecode, {{"key_offset", "1"}}, {"key_offset is 1", "total_seqlens is not", "0"}},
      {with(kDecode, total), {{"key_stride", "0"}}, {"key_stride", "'0'"}},
      {with(kDecode, total),
       {{"key_stride", "2"}, {"key_offset", "2"}},
       {"key_offset is 2", "0 to 1"}},
      {with(with(kDecode, kNew), total), {}, {"k_new", "total_seqlens"}},
      {with(kDecode, {kTurns[0]}), {}, {"rope_cos", "without rope_sin"}},
      {with(kDecode, {{"rope_cos", LATHE_F32, {-1, 33}}, {"rope_sin", LATHE_F32, {-1, 33}}}),
       {},
       {"R/2 = 33", "1 to 32", "D = 64"}},
      {with(kDecode, {kTurns[0], {"rope_sin", LATHE_F16, {-1, 16}}}),
       {},
       {"rope_sin", "f16", "f32"}},
      {with(kDecode, {{"rope_positions", LATHE_I32, {-1}}}), {}, {"rope_positions", "rope_cos"}},
  });
}

TEST_CASE("decode: caches in 8 bits that do not fit") {
  const Tensors codes = {{"k_cache", LATHE_F8_E4M3, {-1, -1, 2, 64}},
                         {"v_cache", LATHE_F8_E4M3, {-1, -1, 2, 128}}};
  const Tensors scales = {{"k_scale", LATHE_F32, {-1}}, {"v_scale", LATHE_F32, {-1}}};
  const Tensors narrow = with(with(kDecode, codes), scales);
  CHECK(request.accepted(narrow).attention.problem.narrow == lathe::kHeadScales);
  request.check_refused({
      {with(kDecode, codes), {}, {"k_scale is not declared", "f8_e4m3 needs it"}},
      {with(kDecode, scales), {}, {"k_scale is declared", "belongs to f8_e4m3"}},
      {with(narrow, {{"v_cache", LATHE_BF16, {-1, -1, 2, 128}}}),
       {},
       {"v_cache", "bf16", "f8_e4m3"}},
      {with(narrow, {{"v_scale", LATHE_F32, {-1, -1, 2}}}), {}, {"k_scale and v_scale", "kinds"}},
      {without(narrow, "v_scale"), {}, {"v_scale is not declared"}},
      {narrow, {{"row_format", "e4m3_656"}}, {"k_cache", "f8_e4m3", "row_format is e4m3_656"}},
      {with(kDecode, {{"k_cache", LATHE_U8, {-1, -1, 2, 64}}}), {}, {"k_cache", "u8"}},
      {with(narrow,
            {{"q", LATHE_BF16, {-1, -1, 8, 72}}, {"k_cache", LATHE_F8_E4M3, {-1, -1, 2, 72}}}),
       {},
       {"f8_e4m3", "D = 72", "multiples of 16"}},
  });
  const Tensors latent = {
      {"q", LATHE_BF16, {-1, -1, 8, 576}},   {"k_cache", LATHE_U8, {-1, -1, 656}},
      {"block_table", LATHE_I32, {-1, -1}},  {"cache_seqlens", LATHE_I32, {-1}},
      {"out", LATHE_BF16, {-1, -1, 8, 512}}, {"lse", LATHE_F32, {-1, 8, -1}}};
  CHECK(request.accepted(latent, {{"row_format", "e4m3_656"}}).attention.problem.narrow ==
        lathe::kByteRows);
  request.check_refused({
      {latent, {}, {"k_cache has dtype u8", "row_format is none"}},
      {with(latent, {{"k_cache", LATHE_U8, {-1, -1, 640}}}),
       {{"row_format", "e4m3_656"}},
       {"640 bytes", "656"}},
  });
}

TEST_CASE("decode: what a call has beside its pages becomes flags of the code") {
  const auto plain = request.accepted(kDecode).attention.problem;
  check_flags(false, {plain.ragged, plain.spread, plain.rotary, plain.local});
  const auto packed = request.accepted(
      with(kPacked, {{"cu_seqlens_q", LATHE_I64, {-1}}, {"leftpad", LATHE_I32, {-1}}}));
  check_flags(true, {packed.attention.problem.ragged, packed.attention.problem.spread,
                     packed.attention.problem.local});
  CHECK(packed.attention.problem.cu_seqlens == lathe::Dtype::i64);
  const auto rich =
      request.accepted(with(with(kDecode, kTurns), {{"total_seqlens", LATHE_I32, {-1}}}),
                       {{"key_stride", "4"}, {"key_offset", "3"}, {"rope_interleaved", "1"}});
  check_flags(true, {rich.attention.problem.spread, rich.attention.problem.rotary,
                     rich.attention.problem.interleaved});
  CHECK(rich.key_stride == 4);
  CHECK(rich.key_offset == 3);
}

TEST_CASE("decode: what is legal but not covered is refused by name") {
  const Tensors far = with(kDecode, {{"k_cache", LATHE_BF16, {-1, 1 << 16, 2, 64}},
                                     {"block_table", LATHE_I32, {-1, (1 << 14) + 1}}});
  request.check_refused({{far, {}, {"M = 16385", "page = 65536", "1073741824"}}},
                        Code::unsupported);
  request.check_refused({kDecode, {{"num_splits", "-1"}}, {"num_splits", "-1", "0|>=0"}});
}

// Values that are columns of the keys.
const Tensors kLatent = {
    {"q", LATHE_BF16, {-1, -1, 128, 576}},   {"k_cache", LATHE_BF16, {-1, -1, 1, 576}},
    {"block_table", LATHE_I32, {-1, -1}},    {"cache_seqlens", LATHE_I32, {-1}},
    {"out", LATHE_BF16, {-1, -1, 128, 512}}, {"lse", LATHE_F32, {-1, 128, -1}}};

TEST_CASE("decode: without a cache of values, the widths are those of latent attention") {
  const auto plain = request.accepted(kLatent);
  CHECK((plain.attention.problem.latent && !plain.attention.problem.append));
  CHECK(plain.attention.problem.head_dim == 576);
  CHECK(plain.attention.problem.value_dim == 512);
  CHECK(plain.attention.softmax_scale == doctest::Approx(1.0 / 24));
  const Tensors fresh = with(kLatent, {{"k_new", LATHE_BF16, {-1, -1, 1, 576}}});
  CHECK(request.accepted(fresh).attention.problem.append);
  CHECK_FALSE(request.accepted(kDecode).attention.problem.latent);
  request.check_refused({
      {without(kDecode, "v_cache"), {}, {"v_cache is not declared", "D = 64", "D = 576"}},
      {with(kLatent, {{"out", LATHE_BF16, {-1, -1, 128, 256}}}), {}, {"DV = 256", "512"}},
      {with(kLatent, {{"k_cache", LATHE_BF16, {-1, -1, 2, 576}}}), {}, {"HK = 2", "allowed is 1"}},
      {with(kLatent, {{"v_cache", LATHE_BF16, {-1, -1, 1, 512}}}),
       {},
       {"D = 576", "multiples of 8 up to 256"}},
      {with(fresh, {{"v_new", LATHE_BF16, {-1, -1, 1, 512}}}), {}, {"v_new", "without v_cache"}},
  });
}

TEST_CASE("decode: what a problem becomes") {
  const auto plain = request.accepted(kDecode);
  check_flags(true, {plain.attention.problem.decode, plain.attention.problem.split});
  check_flags(false, {plain.attention.problem.append, plain.attention.problem.local});
  CHECK(plain.attention.problem.head_dim == 64);
  CHECK(plain.attention.problem.value_dim == 128);
  CHECK(plain.queries == lathe::kUnknown);
  CHECK(plain.attention.ratio == 4);
  CHECK(plain.attention.softmax_scale == 0.125f);
  CHECK(plain.splits == 0);
  const auto full = request.accepted(
      with(with(kDecode, kNew), {{"q", LATHE_BF16, {-1, 3, 8, 64}},
                                 {"sinks", LATHE_F32, {8}},
                                 {"alibi_slopes", LATHE_F32, {-1, 8}}}),
      {{"num_splits", "1"}, {"causal", "1"}, {"softcap", "2"}, {"softmax_scale", "0.5"}});
  const auto& asked = full.attention;
  CHECK((asked.problem.append && asked.problem.local && asked.problem.softcap));
  CHECK((asked.problem.alibi && asked.problem.sinks && asked.alibi_rows));
  CHECK_FALSE(asked.problem.split);  // one part needs no combine
  CHECK(asked.window_right == 0);
  CHECK(full.queries == 3);
  CHECK(full.splits == 1);
  CHECK(request(kDecode, {{"num_splits", "9223372036854775807"}})->splits > 256);
}

// A call of a plan in a context without a device: shapes alone.
TEST_CASE("decode: workspace is a function of capacities, and calls out of range are refused") {
  const Folder folder;
  const auto context = make_context(LATHE_DEVICE_NONE, folder.path, "sm_90a");
  REQUIRE_MESSAGE(context, error());
  Builder builder("flash_attention_decode");
  builder.tensors(with(kDecode, kNew)).set("num_splits", "5");
  REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
  lathe_plan* made = nullptr;
  if (lathe_plan_create(&made, context.get(), builder.problem.get()) != LATHE_OK) {
    MESSAGE("skipped, no compiler: ", error());
    return;
  }
  const Plan plan(made);
  CHECK(lathe_plan_kernel_count(made) == 4);  // append, one query, many, combine
  struct Sizes {
    int64_t batch, queries, pages, page, width;
  };
  size_t bytes = 0;
  const auto ask = [&](const Sizes& s) {
    std::map<std::string, Array> arrays;
    arrays["q"] = Array(LATHE_BF16, {s.batch, s.queries, 8, 64});
    arrays["k_cache"] = Array(LATHE_BF16, {s.pages, s.page, 2, 64});
    arrays["v_cache"] = Array(LATHE_BF16, {s.pages, s.page, 2, 128});
    arrays["block_table"] = Array(LATHE_I32, {s.batch, s.width});
    arrays["cache_seqlens"] = Array(LATHE_I32, {s.batch});
    arrays["k_new"] = Array(LATHE_BF16, {s.batch, s.queries, 2, 64});
    arrays["v_new"] = Array(LATHE_BF16, {s.batch, s.queries, 2, 128});
    arrays["out"] = Array(LATHE_BF16, {s.batch, s.queries, 8, 128});
    arrays["lse"] = Array(LATHE_F32, {s.batch, 8, s.queries});
    const auto slots = slots_of(made, arrays);
    return lathe_plan_workspace(made, slots.data(), nullptr, &bytes);
  };
  CHECK(ask({3, 2, 100, 16, 200}) == LATHE_OK);
  const size_t most = (5 * 3 * 8 * 2 * (128 + 1) * 4 + 255) / 256 * 256;
  CHECK(bytes == most);
  CHECK(ask({3, 2, 7, 16, 200}) == LATHE_OK);  // pages of the cache change nothing
  CHECK(bytes == most);
  CHECK(ask({3, 2, 100, 16, 4}) == LATHE_OK);  // one block of keys
  CHECK(bytes == 0);
  for (const Sizes& none : {Sizes{0, 2, 100, 16, 200}, Sizes{3, 0, 100, 16, 200}}) {
    CHECK(ask(none) == LATHE_OK);
    CHECK(bytes == 0);
  }
  CHECK(ask({1, 1, 10, 0, 4}) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "page = 0"));
  CHECK(ask({1, 1, 10, 1 << 20, 2000}) == LATHE_UNSUPPORTED);
  CHECK(contains(error(), "M = 2000"));
  CHECK(ask({1 << 30, 4, 10, 16, 20}) == LATHE_UNSUPPORTED);
  CHECK(contains(error(), "Sq = 4"));
  CHECK(ask({1 << 28, 1, 10, 16, 100}) == LATHE_UNSUPPORTED);
  CHECK(contains(error(), "split the batch"));
}

}  // namespace
