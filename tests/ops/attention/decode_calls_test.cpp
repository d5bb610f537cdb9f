// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what a call of flash_attention_decode may have beside its pages: sequences with
// any number of new rows, keys that lie on several ranks or begin behind padding, rotary
// embeddings.
#include <random>

#include "tests/harness/check.h"
#include "tests/ops/attention/decode_case.h"

using namespace apitest;

namespace {

Answer checked(const DecodeCase& c, const DecodeInputs& in) {
  INFO(c.text());
  Answer answer = run_decode(c, in);
  check_decode(c, in, answer);
  check_no_spills(answer);
  return answer;
}
Answer checked(const DecodeCase& c) { return checked(c, make_decode(c)); }

// Decoding sequences beside prefilling ones, one without rows, one without keys, one of one page.
DecodeCase ragged_case(uint32_t seed) {
  DecodeCase c;
  c.rows = {1, 0, 70, 1, 3, 17, 2};
  c.cached = {100, 37, 130, 191, 3, 17, 0};
  c.padding = 5;
  c.kv_heads = 2, c.ratio = 3;
  c.causal = true, c.append = seed % 2 == 0;
  if (!c.append) c.cached.back() = 2;
  c.table_width = 14;
  c.seed = seed;
  return c;
}

}  // namespace

TEST_CASE("ragged queries: widths, groups, options and splits") {
  struct Row {
    lathe_dtype dtype;
    int64_t head_dim, value_dim, kv_heads, ratio, window_left;
    double softcap;
    bool sinks;
    DecodeCase::Slopes slopes;
  };
  const Row rows[] = {
      {LATHE_BF16, 64, 64, 2, 3, -1, 0, true, DecodeCase::none},
      {LATHE_F16, 128, 128, 1, 8, 24, 0, false, DecodeCase::per_head},
      {LATHE_BF16, 32, 32, 2, 2, 24, 0, true, DecodeCase::none},
      {LATHE_F16, 192, 128, 1, 16, -1, 20, true, DecodeCase::per_sequence},
      {LATHE_BF16, 256, 256, 1, 1, 60, 0, false, DecodeCase::none},
      {LATHE_F16, 96, 72, 1, 5, 0, 3, false, DecodeCase::per_sequence},
  };
  uint32_t seed = 1;
  for (const Row& row : rows) {
    for (const bool append : {false, true}) {
      DecodeCase c = ragged_case(2 * seed + (append ? 0 : 1));
      c.dtype = row.dtype, c.head_dim = row.head_dim, c.value_dim = row.value_dim;
      c.kv_heads = row.kv_heads, c.ratio = row.ratio;
      c.window_left = row.window_left, c.softcap = row.softcap;
      c.sinks = row.sinks, c.slopes = row.slopes;
      c.cu_dtype = seed % 2 == 0 ? LATHE_I64 : LATHE_I32;
      const DecodeInputs in = make_decode(c);
      for (const char* splits : {"1", "3", "0"}) {
        c.splits = splits;
        checked(c, in);
      }
      ++seed;
    }
  }
}

TEST_CASE("ragged queries: pages, and a plan that serves other batches without a compile") {
  std::vector<std::string> kernels;
  for (const int64_t page : {1, 16, 64, 257}) {
    DecodeCase c = ragged_case(40 + static_cast<uint32_t>(page));
    c.append = true, c.ratio = 4;
    c.page = page, c.table_width = (210 + page - 1) / page;
    std::vector<std::string> found;
    for (const Kernel& kernel : checked(c).kernels) found.push_back(kernel.spec);
    if (kernels.empty()) kernels = found;
    CHECK(found == kernels);
    c.rows = {200}, c.cached = {7}, c.padding = 0, ++c.seed;
    checked(c);
  }
}

TEST_CASE("ragged queries: no sequences, no rows, padding alone, one row each") {
  for (const int64_t padding : {0, 9}) {
    DecodeCase c = ragged_case(60);
    c.sinks = true, c.padding = padding;
    for (const char* splits : {"1", "2"}) {
      c.splits = splits;
      c.rows = {0, 0, 0}, c.cached = {5, 0, 20};
      if (padding > 0) checked(c);
      c.rows = {1, 1, 1};
      checked(c);
    }
  }
}

// The bits of a row tell whether its keys were cut: sums in parts round otherwise than one sum.
TEST_CASE(
    "ragged queries: one sequence of many keys has splits beside short ones, which have none") {
  for (const char* family_name : {"portable", "sm90"}) {
    const InFamily chosen(family_name);
    for (const bool latent : {false, true}) {
      DecodeCase c = ragged_case(75);
      c.rows = {1, 30, 0, 2}, c.cached = {3000, 40, 9, 20}, c.padding = 3;
      c.table_width = 190, c.sinks = true;
      if (latent)
        c.latent = true, c.head_dim = 576, c.value_dim = 512, c.kv_heads = 1, c.ratio = 16;
      const DecodeInputs in = make_decode(c);
      const Values shared_out = checked(c, in).at("lse");
      c.splits = "1";
      const Values whole = checked(c, in).at("lse");
      const size_t tokens = shared_out.size() / static_cast<size_t>(c.heads());
      CHECK(tokens == 36);
      size_t cut = 0;
      for (size_t i = 0; i < whole.size(); ++i) {
        if (i % tokens == 0) {
          cut += shared_out[i] != whole[i];
        } else {
          CHECK(shared_out[i] == whole[i]);
        }
      }
      CHECK(cut > 0);
    }
  }
}

// A server pads its batch with sequences that are below 0: they have no keys, and none are stored.
TEST_CASE("ragged queries: sequences of padding write nothing to the cache") {
  DecodeCase c = ragged_case(70);
  c.append = true;
  const DecodeInputs in = make_decode(c);
  Call call = decode_call(c, in);
  Values& lengths = call.tensors.at("cache_seqlens").values;
  std::fill(lengths.begin(), lengths.end(), -1);
  const Answer answer = execute(shared_context(), call);
  check_clean(answer);
  for (const double value : answer.at("out")) REQUIRE(value == 0);
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (const auto& [name, before] : {std::pair("k_cache", &in.k_cache), {"v_cache", &in.v_cache}}) {
    const Values& found = answer.at(name);
    CHECK_MESSAGE(std::equal(found.begin(), found.end(), before->begin(), same), name);
  }
}

TEST_CASE("ragged queries of a latent cache, by every family") {
  for (const char* family_name : {"portable", "sm90"}) {
    const InFamily chosen(family_name);
    for (const int64_t heads : {4, 16, 64}) {
      DecodeCase c = ragged_case(80 + static_cast<uint32_t>(heads));
      c.latent = true, c.head_dim = 576, c.value_dim = 512;
      c.kv_heads = 1, c.ratio = heads, c.append = true, c.sinks = heads == 16;
      c.rows = {1, 0, 9, 1}, c.cached = {100, 37, 130, 0};
      const DecodeInputs in = make_decode(c);
      for (const char* splits : {"1", "0"}) {
        c.splits = splits;
        checked(c, in);
      }
    }
  }
}

TEST_CASE("keys on several ranks: strides, offsets, windows and ALiBi") {
  uint32_t seed = 100;
  for (const int64_t stride : {1, 2, 3, 8}) {
    for (const int64_t window : {-1, 30, 0}) {
      for (const bool packed : {false, true}) {
        DecodeCase c = ragged_case(2 * seed + 1);
        if (!packed) c.rows = {}, c.padding = 0, c.queries = 4;
        c.cached = {100, 37, 130, 191, 3, 17, 2};
        c.key_stride = stride, c.key_offset = static_cast<int64_t>(seed) % stride;
        c.causal = seed % 5 != 0, c.window_left = window;
        c.sinks = seed % 3 == 0;
        if (seed % 4 == 0) c.slopes = DecodeCase::per_head;
        if (seed % 4 == 1) c.slopes = DecodeCase::per_sequence;
        c.splits = seed % 2 == 0 ? "3" : "1";
        checked(c);
        ++seed;
      }
    }
  }
}

// Each rank has every third key; their parts are joined as lse_merge joins them.
TEST_CASE("keys on several ranks: the parts of all ranks are the whole") {
  constexpr int64_t kRanks = 3;
  DecodeCase whole;
  whole.dtype = LATHE_F16, whole.queries = 5, whole.ratio = 2, whole.causal = true;
  whole.cached = {100, 7, 150}, whole.window_left = 90, whole.seed = 9;
  const DecodeInputs all = make_decode(whole);
  const Answer expected = checked(whole, all);
  const size_t rows = expected.at("lse").size(), width = 64;
  std::vector<Answer> parts;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    Call call = decode_call(whole, all);
    Values lengths, total;
    for (int64_t b = 0; b < whole.batch(); ++b) {
      const int64_t keys = whole.keys(b);
      lengths.push_back(static_cast<double>((keys - rank + kRanks - 1) / kRanks));
      total.push_back(static_cast<double>(keys));
    }
    // A rank's cache of one page a key: its table names every third of the whole's rows.
    const int64_t row = whole.head_dim, room = 51;
    Values table(static_cast<size_t>(whole.batch() * room), 0);
    for (int64_t b = 0, key = 0; b < whole.batch(); ++b) {
      for (int64_t j = 0; j < whole.keys(b); ++j, ++key) {
        if (j % kRanks == rank) {
          table[static_cast<size_t>(b * room + j / kRanks)] =
              static_cast<double>(all.rows[static_cast<size_t>(key)]);
        }
      }
    }
    call.put("k_cache", whole.dtype, {all.pages * whole.page, 1, 1, row}, all.k_cache);
    call.put("v_cache", whole.dtype, {all.pages * whole.page, 1, 1, row}, all.v_cache);
    call.put("block_table", LATHE_I32, {whole.batch(), room}, table);
    call.put("cache_seqlens", LATHE_I32, {whole.batch()}, lengths);
    call.put("total_seqlens", LATHE_I32, {whole.batch()}, total);
    call.set("key_stride", kRanks), call.set("key_offset", rank);
    parts.push_back(run(call));
  }
  const auto heads = static_cast<size_t>(whole.heads()), queries = static_cast<size_t>(5);
  for (size_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (const Answer& part : parts) sum += std::exp(part.at("lse")[i]);
    if (std::isinf(expected.at("lse")[i])) {
      REQUIRE(sum == 0);
      continue;
    }
    REQUIRE(std::abs(std::log(sum) - expected.at("lse")[i]) < 1e-5);
    // lse is [B, H, Sq] and out [B, Sq, H, DV].
    const size_t query = i % queries, head = i / queries % heads, b = i / queries / heads;
    for (size_t column = 0; column < width; ++column) {
      const size_t at = ((b * queries + query) * heads + head) * width + column;
      double value = 0;
      for (const Answer& part : parts) {
        value += std::exp(part.at("lse")[i]) / sum * part.at("out")[at];
      }
      REQUIRE(std::abs(value - expected.at("out")[at]) < 3e-3);
    }
  }
}

TEST_CASE("keys that begin behind padding") {
  uint32_t seed = 200;
  for (const bool packed : {false, true}) {
    for (const int64_t window : {-1, 40}) {
      for (const bool causal : {false, true}) {
        DecodeCase c = ragged_case(seed);
        if (!packed) c.rows = {}, c.padding = 0, c.queries = 3;
        c.leftpad = true, c.causal = causal, c.window_left = window;
        c.sinks = seed % 3 == 0, c.splits = seed % 2 == 0 ? "2" : "1";
        if (seed % 4 == 1) c.slopes = DecodeCase::per_head;
        checked(c);
        ++seed;
      }
    }
  }
}

TEST_CASE("caches in e4m3: scales, widths, append, packed and not") {
  struct Row {
    int64_t head_dim, value_dim;
    DecodeCase::Narrow narrow;
    double softcap;
    int64_t window_left;
  };
  const Row rows[] = {
      {64, 64, DecodeCase::one_scale, 0, -1},     {128, 128, DecodeCase::row_scales, 0, 40},
      {96, 64, DecodeCase::head_scales, 20, -1},  {192, 128, DecodeCase::row_scales, 0, -1},
      {256, 256, DecodeCase::head_scales, 0, 24}, {32, 80, DecodeCase::row_scales, 3, -1},
      {48, 96, DecodeCase::one_scale, 0, 0},
  };
  uint32_t seed = 600;
  for (const Row& row : rows) {
    for (const bool append : {false, true}) {
      DecodeCase c = ragged_case(seed);
      c.append = append;
      c.cached = {100, 37, 130, 191, 3, 17, append ? 0 : 2};
      if (seed / 2 % 2 == 0) c.rows = {}, c.padding = 0, c.queries = 2;
      c.dtype = seed % 4 < 2 ? LATHE_F16 : LATHE_BF16;
      c.head_dim = row.head_dim, c.value_dim = row.value_dim, c.narrow = row.narrow;
      c.softcap = row.softcap, c.window_left = row.window_left, c.sinks = seed % 3 == 0;
      c.page = seed % 2 == 0 ? 16 : 5, c.table_width = 60;
      c.splits = seed % 3 == 0 ? "1" : "3";
      checked(c);
      ++seed;
    }
  }
}

TEST_CASE("latent caches in 8 bits: codes and rows of bytes") {
  uint32_t seed = 700;
  for (const DecodeCase::Narrow narrow :
       {DecodeCase::byte_rows, DecodeCase::one_scale, DecodeCase::row_scales}) {
    for (const bool append : {false, true}) {
      for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F16}) {
        DecodeCase c = ragged_case(seed);
        c.latent = true, c.head_dim = 576, c.value_dim = 512, c.kv_heads = 1;
        c.ratio = seed % 2 == 0 ? 8 : 20, c.append = append, c.narrow = narrow, c.dtype = dtype;
        c.rows = {1, 0, 5, 1}, c.cached = {70, 37, 90, append ? 0 : 1};
        c.splits = seed % 3 == 0 ? "2" : "1";
        checked(c);
        ++seed;
      }
    }
  }
}

// Codes that are not numbers, and scales of 0 and beyond: of keys that nobody attends to, nothing.
TEST_CASE("caches in e4m3: what lies behind the keys and in other pages does not leak") {
  DecodeCase c = ragged_case(800);
  c.append = true, c.narrow = DecodeCase::row_scales;
  DecodeInputs in = make_decode(c);
  for (double& scale : in.v_scale) scale = std::isnan(scale) ? INFINITY : scale;
  in.v_scale_after = make_decode(c).v_scale_after;
  for (size_t i = 0; i < in.v_scale.size(); ++i) {
    if (std::isnan(in.v_scale_after[i])) in.v_scale_after[i] = INFINITY;
  }
  checked(c, in);
}

TEST_CASE("rotary embeddings: columns, pairs, positions, with append and without") {
  struct Row {
    int64_t head_dim, rotary;
    bool interleaved;
    DecodeCase::Positions positions;
  };
  const Row rows[] = {
      {64, 32, false, DecodeCase::by_length},     {64, 64, true, DecodeCase::by_length},
      {128, 128, false, DecodeCase::of_rows},     {96, 96, true, DecodeCase::of_sequences},
      {96, 10, false, DecodeCase::by_length},     {32, 2, true, DecodeCase::of_rows},
      {192, 64, false, DecodeCase::of_sequences}, {256, 256, false, DecodeCase::by_length},
  };
  uint32_t seed = 300;
  for (const Row& row : rows) {
    for (const bool append : {false, true}) {
      for (const bool packed : {false, true}) {
        DecodeCase c = ragged_case(seed);
        c.append = append;
        c.cached = {100, 37, 130, 191, 3, 17, append ? 0 : 2};
        c.rows.back() = 2;
        if (!packed) {
          c.rows = {}, c.padding = 0, c.queries = 2;
          if (row.positions == DecodeCase::of_rows) continue;
        }
        c.dtype = seed % 2 == 0 ? LATHE_F16 : LATHE_BF16;
        c.head_dim = row.head_dim, c.value_dim = std::min<int64_t>(row.head_dim, 64);
        c.rotary = row.rotary, c.interleaved = row.interleaved, c.positions = row.positions;
        c.splits = "2";
        checked(c);
        ++seed;
      }
    }
  }
}

TEST_CASE("rotary embeddings of a latent cache, and of keys behind padding") {
  DecodeCase c = ragged_case(400);
  c.latent = true, c.head_dim = 576, c.value_dim = 512, c.kv_heads = 1, c.ratio = 8;
  c.append = true, c.rotary = 64;
  checked(c);
  c.leftpad = true, c.seed = 401;
  checked(c);
  c = ragged_case(402);
  c.append = true, c.rotary = 16, c.leftpad = true, c.interleaved = true;
  checked(c);
}

// Positions are on the device and checked by nobody: they are cut to the tables.
TEST_CASE("rotary embeddings: positions out of range stay in bounds") {
  DecodeCase c = ragged_case(500);
  c.append = true, c.rotary = 32, c.positions = DecodeCase::of_sequences;
  const DecodeInputs in = make_decode(c);
  for (const double position : {-5.0, 698.0, 2147483647.0, -2147483648.0}) {
    Call call = decode_call(c, in);
    Values& positions = call.tensors.at("rope_positions").values;
    std::fill(positions.begin(), positions.end(), position);
    check_clean(execute(shared_context(), call));
  }
}
