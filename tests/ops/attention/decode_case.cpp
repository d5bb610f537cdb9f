// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/decode_case.h"

#include <algorithm>
#include <random>
#include <sstream>

#include "reference/attention_plain.h"
#include "tests/harness/check.h"
#include "tests/numbers.h"

namespace apitest {
namespace {

ref::Array columns_of_keys(const DecodeCase& c, const ref::Array& keys) {
  ref::Array values;
  for (size_t from = 0; from < keys.size(); from += static_cast<size_t>(c.head_dim)) {
    const auto key = keys.begin() + static_cast<int64_t>(from);
    values.insert(values.end(), key, key + c.value_dim);
  }
  return values;
}

ref::Attention make_whole(const DecodeCase& c, std::mt19937& random) {
  ref::Attention a;
  a.heads = c.heads(), a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim, a.value_dim = c.value_dim, a.packed = false;
  a.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  a.softcap = c.softcap, a.causal = c.causal;
  a.window_left = c.window_left, a.window_right = c.window_right;
  a.begin_q = a.begin_k = {0};
  for (int64_t b = 0; b < c.batch(); ++b) {
    a.begin_q.push_back(a.begin_q.back() + c.rows_of(b));
    a.begin_k.push_back(a.begin_k.back() + c.keys(b));
  }
  std::normal_distribution<double> normal;
  const auto fill = [&](int64_t tokens, int64_t columns) {
    Values values(static_cast<size_t>(tokens * columns));
    for (double& value : values) value = numbers::rounded(c.dtype, normal(random));
    return values;
  };
  a.q = fill(a.begin_q.back(), a.heads * a.head_dim);
  a.k = fill(a.begin_k.back(), a.kv_heads * a.head_dim);
  if (c.latent) {
    a.v = columns_of_keys(c, a.k);
  } else {
    a.v = fill(a.begin_k.back(), a.kv_heads * a.value_dim);
  }
  const int64_t slopes = c.slopes == DecodeCase::none       ? 0
                         : c.slopes == DecodeCase::per_head ? a.heads
                                                            : a.heads * c.batch();
  for (int64_t i = 0; i < slopes; ++i) {
    a.alibi_slopes.push_back(std::exp2(-1.0 - static_cast<double>(i % 7)));
  }
  for (int64_t i = 0; c.sinks && i < a.heads; ++i) {
    a.sinks.push_back(i == 0 && c.seed % 3 == 0 ? -ref::kInfinity : static_cast<double>(i) / 4 - 1);
  }
  return a;
}

// Draws which keys do not count and which lie on other ranks, and tells the reference by a mask and
// by scores: it knows of keys in one piece.
void spread_keys(const DecodeCase& c, std::mt19937& random, DecodeInputs* in) {
  if (!c.leftpad && c.key_stride == 0) return;
  const int64_t stride = std::max<int64_t>(c.key_stride, 1);
  for (int64_t b = 0; b < c.batch(); ++b) {
    const int64_t keys = c.keys(b);
    in->leftpad.push_back(c.leftpad ? static_cast<double>(random() % (keys + 2)) : 0);
    const int64_t more = c.key_stride > 0 ? static_cast<int64_t>(random() % stride) : 0;
    in->total.push_back(static_cast<double>(c.key_stride == 0 ? keys
                                            : keys == 0
                                                ? c.rows_of(b)
                                                : (keys - 1) * stride + c.key_offset + 1 + more));
  }
  ref::Attention& a = in->whole;
  const auto ahead = [c, stride, total = in->total](int64_t b, int64_t i, int64_t j) {
    const auto rows = static_cast<double>(c.rows_of(b));
    const double row = total[static_cast<size_t>(b)] - rows + static_cast<double>(i);
    return static_cast<int64_t>(row) - (j * stride + c.key_offset);
  };
  a.causal = false, a.window_left = a.window_right = -1;
  a.mask_mod = [c, ahead, first = in->leftpad](int64_t b, int64_t, int64_t i, int64_t j) {
    const int64_t distance = ahead(b, i, j), right = c.causal ? 0 : c.window_right;
    return j >= static_cast<int64_t>(first[static_cast<size_t>(b)]) &&
           (c.window_left < 0 || distance <= c.window_left) && (right < 0 || -distance <= right);
  };
  if (a.alibi_slopes.empty()) return;
  a.score_mod = [c, ahead, slopes = a.alibi_slopes](double x, int64_t b, int64_t h, int64_t i,
                                                    int64_t j) {
    const int64_t row = c.slopes == DecodeCase::per_head ? 0 : b * c.heads();
    return x - slopes[static_cast<size_t>(row + h)] * static_cast<double>(std::abs(ahead(b, i, j)));
  };
  a.alibi_slopes.clear();
}

// Turns a token's heads, `width` columns each.
void turn(const DecodeCase& c, const DecodeInputs& in, int64_t position, double* token,
          int64_t heads, int64_t width) {
  const int64_t pairs = c.rotary / 2;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < pairs; ++i) {
      double& first = token[h * width + (c.interleaved ? 2 * i : i)];
      double& second = token[h * width + (c.interleaved ? 2 * i + 1 : i + pairs)];
      const auto at = static_cast<size_t>(position * pairs + i);
      const double x = first, y = second, cosine = in.cosines[at], sine = in.sines[at];
      first = numbers::rounded(c.dtype, x * cosine - y * sine);
      second = numbers::rounded(c.dtype, y * cosine + x * sine);
    }
  }
}

constexpr int64_t kPositions = 700;  // of the tables

// Draws tables and positions. The whole has queries and appended keys that are turned; returns
// these keys as they were.
ref::Array rotate(const DecodeCase& c, std::mt19937& random, DecodeInputs* in) {
  ref::Attention& a = in->whole;
  in->q = a.q;
  ref::Array keys = a.k;
  if (c.rotary == 0) return keys;
  std::uniform_real_distribution<double> angle(-3.2, 3.2);
  for (int64_t i = 0; i < kPositions * c.rotary / 2; ++i) {
    const double at = angle(random);
    in->cosines.push_back(numbers::rounded(LATHE_F32, std::cos(at)));
    in->sines.push_back(numbers::rounded(LATHE_F32, std::sin(at)));
  }
  for (int64_t b = 0; b < c.batch(); ++b) {
    const int64_t rows = c.rows_of(b), stored = c.cached[static_cast<size_t>(b)];
    int64_t first = c.append ? stored : stored - rows;
    if (c.positions != DecodeCase::by_length) first = static_cast<int64_t>(random() % 300);
    if (c.positions == DecodeCase::of_sequences)
      in->positions.push_back(static_cast<double>(first));
    for (int64_t i = 0; i < rows; ++i) {
      int64_t position = first + i;
      if (c.positions == DecodeCase::of_rows) {
        position = static_cast<int64_t>(random() % kPositions);
        in->positions.push_back(static_cast<double>(position));
      }
      const int64_t row = a.begin_q[static_cast<size_t>(b)] + i;
      turn(c, *in, position, &a.q[static_cast<size_t>(row * c.heads() * c.head_dim)], c.heads(),
           c.head_dim);
      const int64_t key = a.begin_k[static_cast<size_t>(b)] + stored + i;
      if (!c.append) continue;
      turn(c, *in, position, &a.k[static_cast<size_t>(key * c.kv_heads * c.head_dim)], c.kv_heads,
           c.head_dim);
    }
  }
  for (int64_t i = 0; c.positions == DecodeCase::of_rows && i < c.padding; ++i) {
    in->positions.push_back(0);
  }
  return keys;
}

// The rows of all keys, appended ones too; and what it was everywhere else. Keys that turned may be
// off by a rounding.
void check_cache(const DecodeInputs& in, const ref::Array& all, const Values& before,
                 const Values& found, int64_t row, bool turned) {
  Values expected = before;
  for (size_t i = 0; i < in.rows.size(); ++i) {
    const auto from = all.begin() + static_cast<int64_t>(i) * row;
    std::copy(from, from + row, expected.begin() + in.rows[i] * row);
  }
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double off = std::abs(found[i] - expected[i]);
    wrong += std::isnan(expected[i]) ? !std::isnan(found[i])
             : turned                ? !(off <= 0x1p-7 * std::abs(expected[i]) + 1e-6)
                                     : found[i] != expected[i];
  }
  CHECK(wrong == 0);
}

}  // namespace

std::string DecodeCase::text() const {
  std::ostringstream out;
  out << (dtype == LATHE_BF16 ? "bf16" : "f16") << " D" << head_dim << " DV" << value_dim << " Sq"
      << queries << " HK" << kv_heads << " G" << ratio << " page " << page << " table "
      << table_width << " cached";
  for (const int64_t each : cached) out << ' ' << each;
  if (packed()) out << " rows";
  for (const int64_t each : rows) out << ' ' << each;
  if (packed()) out << " padding " << padding << (cu_dtype == LATHE_I64 ? " i64" : "");
  if (key_stride > 0) out << " key_stride " << key_stride << " key_offset " << key_offset;
  if (rotary > 0) out << " rotary " << rotary << (interleaved ? " pairs" : " halves") << positions;
  out << (leftpad ? " leftpad" : "");
  const char* const kNarrow[] = {"", " one scale", " head scales", " row scales", " rows of bytes"};
  out << kNarrow[narrow];
  out << (latent ? " latent" : "") << (append ? " append" : "") << (causal ? " causal" : "")
      << (sinks ? " sinks" : "");
  if (window_left >= 0 || window_right >= 0)
    out << " window " << window_left << ',' << window_right;
  if (softcap > 0) out << " softcap " << softcap;
  if (slopes != none) out << (slopes == per_head ? " alibi[H]" : " alibi[B,H]");
  out << " splits " << splits << (tile.empty() ? "" : " tile ") << tile << " seed " << seed;
  return out.str();
}

DecodeInputs make_decode(const DecodeCase& c) {
  std::mt19937 random(c.seed);
  DecodeInputs in;
  in.whole = make_whole(c, random);
  in.slopes = in.whole.alibi_slopes;
  const ref::Array fresh_keys = rotate(c, random, &in);
  if (c.latent) in.whole.v = columns_of_keys(c, in.whole.k);
  spread_keys(c, random, &in);
  in.pages = 3;  // that nobody uses
  for (int64_t b = 0; b < c.batch(); ++b) in.pages += (c.keys(b) + c.page - 1) / c.page;
  std::vector<int64_t> order(static_cast<size_t>(in.pages));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (int64_t i = 0; i < c.batch() * c.table_width; ++i) {
    const double wild = i % 2 == 0 ? -7 : 0x7fffffff;
    in.table.push_back(c.wild_entries ? wild : static_cast<double>(order.back()));
  }
  const int64_t k_row = c.kv_heads * c.head_dim, v_row = c.kv_heads * c.value_dim;
  in.k_cache.assign(static_cast<size_t>(in.pages * c.page * k_row), NAN);
  in.v_cache.assign(static_cast<size_t>(in.pages * c.page * v_row), NAN);
  size_t next = 0;
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t j = 0; j < c.keys(b); ++j) {
      double& entry = in.table[static_cast<size_t>(b * c.table_width + j / c.page)];
      if (j % c.page == 0) entry = static_cast<double>(order[next++]);
      in.rows.push_back(static_cast<int64_t>(entry) * c.page + j % c.page);
      // Into the cache, or among those to append.
      const auto place = [&](const ref::Array& all, int64_t width, Values* cache, Values* fresh) {
        const auto from = all.begin() + static_cast<int64_t>(in.rows.size() - 1) * width;
        if (j >= c.cached[static_cast<size_t>(b)]) {
          fresh->insert(fresh->end(), from, from + width);
        } else {
          std::copy(from, from + width, cache->begin() + in.rows.back() * width);
        }
      };
      place(fresh_keys, k_row, &in.k_cache, &in.k_new);
      place(in.whole.v, v_row, &in.v_cache, &in.v_new);
      // What does not count may be anything: no number, but where codes are made of it.
      if (c.leftpad && j < static_cast<int64_t>(in.leftpad[static_cast<size_t>(b)]) &&
          j < c.cached[static_cast<size_t>(b)]) {
        const double held = c.narrow == DecodeCase::wide ? std::nan("") : 7.0;
        const auto forget = [&](ref::Array& all, int64_t width, Values* cache) {
          std::fill_n(cache->begin() + in.rows.back() * width, width, held);
          std::fill_n(all.begin() + static_cast<int64_t>(in.rows.size() - 1) * width, width, held);
        };
        forget(in.whole.k, k_row, &in.k_cache);
        forget(in.whole.v, v_row, &in.v_cache);
      }
    }
  }
  narrow_cache(c, &in);
  return in;
}

Call decode_call(const DecodeCase& c, const DecodeInputs& in) {
  Call call;
  call.op = "flash_attention_decode";
  call.fixed = c.fixed;
  const int64_t b = c.batch(), h = c.heads(), k = c.kv_heads;
  const auto tokens = [&](std::vector<int64_t> more) {
    if (c.packed()) {
      more.insert(more.begin(), in.whole.begin_q.back() + c.padding);
    } else {
      more.insert(more.begin(), {b, c.queries});
    }
    return more;
  };
  const auto padded = [&](Values values, int64_t row) {
    values.resize(values.size() + static_cast<size_t>(c.padding * row), NAN);
    return values;
  };
  call.put("q", c.dtype, tokens({h, c.head_dim}), padded(in.q, h * c.head_dim));
  const bool wide = c.narrow == DecodeCase::wide;
  if (wide) call.put("k_cache", c.dtype, {in.pages, c.page, k, c.head_dim}, in.k_cache);
  if (wide && !c.latent)
    call.put("v_cache", c.dtype, {in.pages, c.page, k, c.value_dim}, in.v_cache);
  for (const char* name : {"k_cache", "v_cache"}) {
    if (call.tensors.contains(name)) call.tensors.at(name).changed = true;
  }
  put_narrow(c, in, &call);
  call.put("block_table", LATHE_I32, {b, c.table_width}, in.table);
  call.put("cache_seqlens", LATHE_I32, {b}, {c.cached.begin(), c.cached.end()});
  if (c.append) {
    call.put("k_new", c.dtype, tokens({k, c.head_dim}), padded(in.k_new, k * c.head_dim));
  }
  if (c.append && !c.latent) {
    call.put("v_new", c.dtype, tokens({k, c.value_dim}), padded(in.v_new, k * c.value_dim));
  }
  if (c.packed()) {
    call.put("cu_seqlens_q", c.cu_dtype, {b + 1},
             {in.whole.begin_q.begin(), in.whole.begin_q.end()});
  }
  if (c.leftpad) call.put("leftpad", LATHE_I32, {b}, in.leftpad);
  if (c.key_stride > 0) {
    call.put("total_seqlens", LATHE_I32, {b}, in.total);
    call.set("key_stride", c.key_stride), call.set("key_offset", c.key_offset);
  }
  if (c.rotary > 0) {
    call.put("rope_cos", LATHE_F32, {kPositions, c.rotary / 2}, in.cosines);
    call.put("rope_sin", LATHE_F32, {kPositions, c.rotary / 2}, in.sines);
    call.options["rope_interleaved"] = c.interleaved ? "1" : "0";
    const auto entries = static_cast<int64_t>(in.positions.size());
    if (entries > 0) call.put("rope_positions", LATHE_I32, {entries}, in.positions);
  }
  if (c.slopes == DecodeCase::per_head) {
    call.put("alibi_slopes", LATHE_F32, {h}, in.slopes);
  } else if (c.slopes == DecodeCase::per_sequence) {
    call.put("alibi_slopes", LATHE_F32, {b, h}, in.slopes);
  }
  if (c.sinks) call.put("sinks", LATHE_F32, {h}, in.whole.sinks);
  call.want("out", c.dtype, tokens({h, c.value_dim}));
  call.want("lse", LATHE_F32,
            c.packed() ? std::vector<int64_t>{h, in.whole.begin_q.back() + c.padding}
                       : std::vector<int64_t>{b, h, c.queries});
  call.options["num_splits"] = c.splits;
  call.options["causal"] = c.causal ? "1" : "0";
  call.set("window_left", c.window_left), call.set("window_right", c.window_right);
  call.set("softcap", c.softcap);
  call.place(c.gaps);
  if (!c.tile.empty()) {
    call.tiles[c.latent ? "attention_decode_latent" : "attention_decode"] = c.tile;
  }
  return call;
}

Answer run_decode(const DecodeCase& c, const DecodeInputs& in) {
  return execute(shared_context(), decode_call(c, in));
}

void check_decode_results(const DecodeCase& c, const DecodeInputs& in, const Answer& answer) {
  check_clean(answer);
  if (!answer.error.empty()) return;
  const ref::Round round = c.dtype == LATHE_BF16
                               ? +[](double x) { return numbers::rounded(LATHE_BF16, x); }
                               : +[](double x) { return numbers::rounded(LATHE_F16, x); };
  ref::Attention whole = in.whole;
  whole.packed = c.packed();
  const ref::AttentionForward exact = ref::attention_forward(whole);
  // Rows of padding have no result.
  const auto own = in.whole.begin_q.back() * c.heads();
  Values out = answer.at("out"), lse;
  for (size_t i = static_cast<size_t>(own * c.value_dim); i < out.size(); ++i) {
    REQUIRE(out[i] == 0);
  }
  out.resize(static_cast<size_t>(own * c.value_dim));
  const int64_t all = in.whole.begin_q.back() + c.padding;
  for (int64_t i = 0; i < static_cast<int64_t>(answer.at("lse").size()); ++i) {
    const double value = answer.at("lse")[static_cast<size_t>(i)];
    if (c.packed() && i % all >= in.whole.begin_q.back()) {
      REQUIRE(value == -ref::kInfinity);
    } else {
      lse.push_back(value);
    }
  }
  const double bound = ref::max2x_bound(exact.out, ref::plain_forward(whole, round).out,
                                        c.softcap > 0 ? 3 : 2, round);
  check_near(out, exact.out, bound, 0, "out");
  CHECK(ref::cosine_difference(out, exact.out) < 1e-5);
  check_near(lse, exact.lse, 1e-5, 1e-5, "lse");
}

void check_decode(const DecodeCase& c, const DecodeInputs& in, const Answer& answer) {
  check_decode_results(c, in, answer);
  if (!answer.error.empty()) return;
  if (c.narrow != DecodeCase::wide) return check_narrow(c, in, answer);
  check_cache(in, in.whole.k, in.k_cache, answer.at("k_cache"), c.kv_heads * c.head_dim,
              c.rotary > 0);
  if (c.latent) return;
  check_cache(in, in.whole.v, in.v_cache, answer.at("v_cache"), c.kv_heads * c.value_dim, false);
}

}  // namespace apitest
