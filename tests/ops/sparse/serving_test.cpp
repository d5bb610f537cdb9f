// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what servers ask of sparse_flash_attention: lists of which some entries count,
// sinks that statistics leave out, a second cache in the same softmax, rows of bytes.
#include <random>

#include "tests/harness/check.h"
#include "tests/ops/sparse/case.h"

using namespace apitest;

namespace {

SparseCase sample(uint32_t seed) {
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 128, s.value_dim = 128, s.kv_heads = 1, s.group = 8;
  s.rows = {9, 9}, s.keys = {90, 90}, s.topk = 40;
  c.dtype = seed % 2 == 0 ? LATHE_F16 : LATHE_BF16;
  c.seed = seed;
  return c;
}

// Lengths of lists: none, one, some, all, more than there are, below 0.
Values lengths_of(int64_t rows, int64_t topk) {
  Values lengths;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t each[] = {0, 1, topk / 2, topk - 1, topk, topk + 3, -5};
    lengths.push_back(static_cast<double>(each[i % 7]));
  }
  return lengths;
}

// Entries that do not count name nothing.
void cut_lists(const Values& lengths, ref::SparseAttention* a) {
  const int64_t all = a->kv_heads * a->topk;
  for (size_t i = 0; i < a->indices.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / all, entry = static_cast<int64_t>(i) % a->topk;
    if (static_cast<double>(entry) >= lengths[static_cast<size_t>(row)]) a->indices[i] = -1;
  }
}

void check_lengths(const SparseCase& c) {
  INFO(c.text());
  ref::SparseAttention a = make_sparse(c);
  const Values lengths = lengths_of(a.rows(), a.topk);
  Call call = sparse_call(c, a, c.backward ? SparsePart::both : SparsePart::forward);
  const bool flat = c.shape.packed || c.tokens;
  const auto rows = static_cast<int64_t>(lengths.size());
  call.put(
      "topk_length", LATHE_I32,
      flat ? std::vector<int64_t>{rows} : std::vector<int64_t>{a.sequences(), rows / a.sequences()},
      lengths);
  cut_lists(lengths, &a);
  check_sparse(c, a, execute(shared_context(), call));
}

}  // namespace

TEST_CASE("sparse: lists of which some entries count, forward and backward") {
  for (const bool backward : {false, true}) {
    for (const int64_t splits : {1, 3}) {
      SparseCase c = sample(10 + static_cast<uint32_t>(splits) + backward);
      c.backward = backward, c.splits = splits;
      check_lengths(c);
      c.shape.packed = true, c.shape.kv_heads = 2, c.shape.block = 2;
      c.shape.rows = {4, 0, 9}, c.shape.keys = {30, 5, 90}, c.shape.padding_q = 3;
      check_lengths(c);
    }
  }
}

TEST_CASE("sparse: statistics without the sinks, which out counts") {
  for (const int64_t splits : {1, 2}) {
    SparseCase c = sample(20);
    c.shape.sinks = true, c.splits = splits, c.shape.topk = 60;
    const ref::SparseAttention a = make_sparse(c);
    Call call = sparse_call(c, a, SparsePart::forward);
    call.options["sinks_in_statistics"] = "0";
    const Answer answer = execute(shared_context(), call);
    check_clean(answer);
    const ref::SparseForward with = ref::sparse_forward(a);
    ref::SparseAttention plain = a;
    plain.sinks.clear();
    const ref::SparseForward without = ref::sparse_forward(plain);
    check_near(answer.at("out"), with.out, c.dtype == LATHE_F16 ? 2e-3 : 1.6e-2);
    check_near(answer.at("lse"), without.lse, 1e-5, 1e-6, "lse");
    check_near(answer.at("softmax_max"), without.softmax_max, 3e-6, 1e-6, "softmax_max");
    check_near(answer.at("softmax_sum"), without.softmax_sum, 1e-6, 1e-5, "softmax_sum");
  }
}

namespace {

// A problem over two caches, and the same over one: the second one's rows follow the first one's.
struct TwoCaches {
  SparseCase c;
  ref::SparseAttention first, whole;
  Values extra, list, lengths;
  int64_t topk = 0;
};

TwoCaches two_caches(uint32_t seed, int width, int values, int kv_heads) {
  TwoCaches out;
  SparseCase& c = out.c;
  c = sample(seed);
  auto& s = c.shape;
  s.head_dim = width, s.value_dim = values, s.values_in_keys = true, s.absolute = true;
  s.kv_heads = kv_heads, s.rows = {11}, s.keys = {50}, s.topk = 24;
  c.tokens = true;
  out.first = make_sparse(c);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  constexpr int64_t kMore = 33;
  const int64_t row = kv_heads * width, rows = out.first.rows();
  for (int64_t i = 0; i < kMore * row; ++i) {
    out.extra.push_back(numbers::rounded(c.dtype, normal(random)));
  }
  out.topk = 20;
  for (int64_t i = 0; i < rows * kv_heads * out.topk; ++i) {
    out.list.push_back(static_cast<double>(static_cast<int64_t>(random() % (kMore + 4)) - 2));
  }
  out.lengths = lengths_of(rows, out.topk);
  // The second list behind the first; entries that name nothing stay so.
  ref::SparseAttention& w = out.whole;
  w = out.first;
  const int64_t keys = out.first.keys();
  w.k.insert(w.k.end(), out.extra.begin(), out.extra.end());
  w.v.clear();
  for (int64_t i = 0; i < (keys + kMore) * kv_heads; ++i) {
    const auto from = w.k.begin() + i * width;
    w.v.insert(w.v.end(), from, from + values);
  }
  w.end_k = {keys + kMore}, w.topk = out.first.topk + out.topk;
  w.indices.clear();
  for (int64_t i = 0; i < rows * kv_heads; ++i) {
    for (int64_t e = 0; e < out.first.topk; ++e) {
      const int32_t entry = out.first.indices[static_cast<size_t>(i * out.first.topk + e)];
      w.indices.push_back(entry < keys ? entry : -1);
    }
    for (int64_t e = 0; e < out.topk; ++e) {
      const auto entry = static_cast<int32_t>(out.list[static_cast<size_t>(i * out.topk + e)]);
      const bool there = entry >= 0 && entry < kMore &&
                         static_cast<double>(e) < out.lengths[static_cast<size_t>(i / kv_heads)];
      w.indices.push_back(there ? static_cast<int32_t>(keys) + entry : -1);
    }
  }
  return out;
}

Call call_of(const TwoCaches& two) {
  Call call = sparse_call(two.c, two.first, SparsePart::forward);
  const int64_t rows = two.first.rows(), heads = two.first.kv_heads, width = two.first.head_dim;
  call.put("k_extra", two.c.dtype,
           {static_cast<int64_t>(two.extra.size()) / (heads * width), heads, width}, two.extra);
  call.put("indices_extra", LATHE_I32, {rows, heads, two.topk}, two.list);
  call.put("topk_length_extra", LATHE_I32, {rows}, two.lengths);
  return call;
}

}  // namespace

TEST_CASE("sparse: a second cache is more keys in the same softmax") {
  uint32_t seed = 30;
  for (const auto& [width, values, heads] :
       {std::tuple(128, 128, 1), std::tuple(512, 512, 1), std::tuple(192, 128, 2)}) {
    for (const int64_t splits : {1, 2}) {
      TwoCaches two = two_caches(seed++, width, values, heads);
      two.c.splits = splits;
      INFO(two.c.text());
      check_sparse(two.c, two.whole, execute(shared_context(), call_of(two)));
    }
  }
}

namespace {

// Makes rows of bytes of drawn codes and scales, and sets what they stand for: code times scale,
// rounded once to q's dtype.
Values byte_rows(lathe_dtype dtype, std::mt19937& random, ref::Array* keys) {
  Values bytes;
  std::normal_distribution<double> normal;
  for (size_t row = 0; row < keys->size() / 576; ++row) {
    unsigned char raw[656];
    for (size_t part = 0; part < 4; ++part) {
      const float scale = 0.004f * static_cast<float>(1 + random() % 3);
      numbers::encode(LATHE_F32, scale, raw + 512 + 4 * part);
      for (size_t i = 0; i < 128; ++i) {
        const size_t column = 128 * part + i;
        numbers::encode(LATHE_F8_E4M3, 100 * normal(random), raw + column);
        const auto code = static_cast<float>(numbers::decode(LATHE_F8_E4M3, raw + column));
        (*keys)[row * 576 + column] = numbers::rounded(dtype, code * scale);
      }
    }
    for (size_t i = 0; i < 64; ++i) {
      numbers::encode(LATHE_BF16, normal(random), raw + 528 + 2 * i);
      (*keys)[row * 576 + 512 + i] =
          numbers::rounded(dtype, numbers::decode(LATHE_BF16, raw + 528 + 2 * i));
    }
    bytes.insert(bytes.end(), raw, raw + 656);
  }
  return bytes;
}

}  // namespace

TEST_CASE("sparse: rows of bytes, alone and with a second cache of such") {
  for (const bool extra : {false, true}) {
    for (const int64_t splits : {1, 2}) {
      TwoCaches two = two_caches(40 + static_cast<uint32_t>(splits), 576, 512, 1);
      two.c.splits = splits;
      std::mt19937 random(7);
      const Values bytes = byte_rows(two.c.dtype, random, &two.whole.k);
      const int64_t keys = two.first.keys();
      two.whole.v.clear();
      for (size_t from = 0; from < two.whole.k.size(); from += 576) {
        const auto key = two.whole.k.begin() + static_cast<int64_t>(from);
        two.whole.v.insert(two.whole.v.end(), key, key + 512);
      }
      Call call = extra ? call_of(two) : sparse_call(two.c, two.first, SparsePart::forward);
      const auto middle = bytes.begin() + keys * 656;
      call.put("k", LATHE_U8, {keys, 656}, {bytes.begin(), middle});
      call.options["row_format"] = "e4m3_656";
      if (extra) {
        const auto rest = static_cast<int64_t>(bytes.end() - middle);
        call.put("k_extra", LATHE_U8, {rest / 656, 656}, {middle, bytes.end()});
      } else {
        for (int32_t& entry : two.whole.indices) entry = entry < keys ? entry : -1;
      }
      INFO(two.c.text());
      const Answer answer = execute(shared_context(), call);
      check_sparse(two.c, two.whole, answer);
      check_no_spills(answer);
    }
  }
}
