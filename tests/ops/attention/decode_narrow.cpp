// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Caches in 8 bits: codes, scales and rows of bytes, by the definition.
#include <cstring>

#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/attention/decode_case.h"

namespace apitest {
namespace {

float f32(double value) { return static_cast<float>(value); }

// Returns max|x| / 448 of some numbers, 1 if all are 0.
double own_scale(const double* x, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(x[i]));
  return most > 0 ? f32(most) / 448.0f : 1.0f;
}

// Numbers become codes, and what is attended to: code times scale, rounded once.
void quantise(lathe_dtype dtype, double scale, double* x, double* codes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = numbers::rounded(LATHE_F8_E4M3, f32(x[i]) / f32(scale));
    x[i] = numbers::rounded(dtype, f32(f32(codes[i]) * f32(scale)));
  }
}

bool is_new(const DecodeCase& c, const DecodeInputs& in, size_t key) {
  size_t b = 0;
  while (static_cast<int64_t>(key) >= in.whole.begin_k[b + 1]) ++b;
  return static_cast<int64_t>(key) - in.whole.begin_k[b] >= c.cached[b];
}

struct Side {
  ref::Array* all;  // of the whole
  int64_t width;
  Values *cache, *codes, *scale;
};

void narrow_side(const DecodeCase& c, DecodeInputs* in, const Side& side) {
  const int64_t heads = c.kv_heads, row = heads * side.width;
  side.codes->resize(side.all->size());
  const bool own = c.narrow == DecodeCase::row_scales;
  if (own) {
    side.scale->assign(static_cast<size_t>(in->pages * c.page * heads), NAN);
  } else {
    for (int64_t h = 0; h < (c.narrow == DecodeCase::one_scale ? 1 : heads); ++h) {
      side.scale->push_back(f32(0.004 + 0.003 * static_cast<double>(h)));
    }
  }
  Values expected = *side.scale;
  for (size_t key = 0; key < in->rows.size(); ++key) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<size_t>(static_cast<int64_t>(key) * row + h * side.width);
      double* const x = side.all->data() + at;
      const auto place = static_cast<size_t>(in->rows[key] * heads + h);
      const size_t number = c.narrow == DecodeCase::one_scale ? 0 : static_cast<size_t>(h);
      const double scale = own ? own_scale(x, side.width) : (*side.scale)[number];
      quantise(c.dtype, scale, x, side.codes->data() + at, side.width);
      if (own) expected[place] = scale;
      if (is_new(c, *in, key)) continue;
      if (own) (*side.scale)[place] = scale;
      std::copy_n(side.codes->data() + at, side.width,
                  side.cache->data() + place * static_cast<size_t>(side.width));
    }
  }
  (side.cache == &in->k_cache ? in->k_scale_after : in->v_scale_after) = expected;
}

// 512 codes, four scales, 64 bfloat16.
void narrow_bytes(const DecodeCase& c, DecodeInputs* in) {
  const auto pages = static_cast<size_t>(in->pages * c.page);
  in->k_cache.assign(pages * 656, 0xee);
  in->k_after = in->k_cache;
  for (size_t key = 0; key < in->rows.size(); ++key) {
    double* const x = in->whole.k.data() + key * 576;
    Values bytes;
    double codes[512];
    unsigned char raw[656];
    for (int64_t part = 0; part < 4; ++part) {
      const double scale = own_scale(x + 128 * part, 128);
      quantise(c.dtype, scale, x + 128 * part, codes + 128 * part, 128);
      numbers::encode(LATHE_F32, scale, raw + 512 + 4 * part);
    }
    for (int i = 0; i < 512; ++i) numbers::encode(LATHE_F8_E4M3, codes[i], raw + i);
    for (int i = 0; i < 64; ++i) {
      numbers::encode(LATHE_BF16, x[512 + i], raw + 528 + 2 * i);
      x[512 + i] = numbers::rounded(c.dtype, numbers::rounded(LATHE_BF16, x[512 + i]));
    }
    const auto to = static_cast<size_t>(in->rows[key]) * 656;
    for (size_t i = 0; i < 656; ++i) {
      in->k_after[to + i] = raw[i];
      if (!is_new(c, *in, key)) in->k_cache[to + i] = raw[i];
    }
  }
}

void check_equal(const char* name, const Values& found, const Values& expected) {
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    wrong += std::isnan(expected[i]) ? !std::isnan(found[i]) : found[i] != expected[i];
  }
  CHECK_MESSAGE(wrong == 0, name);
}

}  // namespace

void narrow_cache(const DecodeCase& c, DecodeInputs* in) {
  if (c.narrow == DecodeCase::wide) return;
  if (c.narrow == DecodeCase::byte_rows) {
    narrow_bytes(c, in);
  } else {
    narrow_side(c, in, {&in->whole.k, c.head_dim, &in->k_cache, &in->k_codes, &in->k_scale});
    if (!c.latent) {
      narrow_side(c, in, {&in->whole.v, c.value_dim, &in->v_cache, &in->v_codes, &in->v_scale});
    }
  }
  if (!c.latent) return;
  in->whole.v.clear();
  for (size_t from = 0; from < in->whole.k.size(); from += static_cast<size_t>(c.head_dim)) {
    const auto key = in->whole.k.begin() + static_cast<int64_t>(from);
    in->whole.v.insert(in->whole.v.end(), key, key + c.value_dim);
  }
}

void put_narrow(const DecodeCase& c, const DecodeInputs& in, Call* call) {
  if (c.narrow == DecodeCase::wide) return;
  if (c.narrow == DecodeCase::byte_rows) {
    call->put("k_cache", LATHE_U8, {in.pages, c.page, 656}, in.k_cache);
    call->tensors.at("k_cache").changed = true;
    call->options["row_format"] = "e4m3_656";
    return;
  }
  const auto put = [&](const char* cache, const char* scale, int64_t width, const Values& codes,
                       const Values& scales) {
    call->put(cache, LATHE_F8_E4M3, {in.pages, c.page, c.kv_heads, width}, codes);
    call->tensors.at(cache).changed = true;
    call->put(scale, LATHE_F32,
              c.narrow == DecodeCase::row_scales
                  ? std::vector<int64_t>{in.pages, c.page, c.kv_heads}
                  : std::vector<int64_t>{static_cast<int64_t>(scales.size())},
              scales);
    call->tensors.at(scale).changed = true;
  };
  put("k_cache", "k_scale", c.head_dim, in.k_cache, in.k_scale);
  if (!c.latent) put("v_cache", "v_scale", c.value_dim, in.v_cache, in.v_scale);
}

void check_narrow(const DecodeCase& c, const DecodeInputs& in, const Answer& answer) {
  if (c.narrow == DecodeCase::byte_rows)
    return check_equal("k_cache", answer.at("k_cache"), in.k_after);
  const auto check = [&](const char* cache, const char* scale, int64_t width, const Values& before,
                         const Values& codes, const Values& scales) {
    Values expected = before;
    const int64_t row = c.kv_heads * width;
    for (size_t i = 0; i < in.rows.size(); ++i) {
      std::copy_n(codes.begin() + static_cast<int64_t>(i) * row, row,
                  expected.begin() + in.rows[i] * row);
    }
    check_equal(cache, answer.at(cache), expected);
    check_equal(scale, answer.at(scale), scales);
  };
  check("k_cache", "k_scale", c.head_dim, in.k_cache, in.k_codes, in.k_scale_after);
  if (c.latent) return;
  check("v_cache", "v_scale", c.value_dim, in.v_cache, in.v_codes, in.v_scale_after);
}

}  // namespace apitest
