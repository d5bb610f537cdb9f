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

ref::Attention make_whole(const DecodeCase& c, std::mt19937& random) {
  ref::Attention a;
  a.heads = c.heads(), a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim, a.value_dim = c.value_dim, a.packed = false;
  a.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  a.softcap = c.softcap, a.causal = c.causal;
  a.window_left = c.window_left, a.window_right = c.window_right;
  a.begin_q = a.begin_k = {0};
  for (int64_t b = 0; b < c.batch(); ++b) {
    a.begin_q.push_back(a.begin_q.back() + c.queries);
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
    for (size_t from = 0; from < a.k.size(); from += static_cast<size_t>(c.head_dim)) {
      const auto key = a.k.begin() + static_cast<int64_t>(from);
      a.v.insert(a.v.end(), key, key + c.value_dim);
    }
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

// The rows of all keys, appended ones too; and what it was everywhere else.
void check_cache(const DecodeInputs& in, const ref::Array& all, const Values& before,
                 const Values& found, int64_t row) {
  Values expected = before;
  for (size_t i = 0; i < in.rows.size(); ++i) {
    const auto from = all.begin() + static_cast<int64_t>(i) * row;
    std::copy(from, from + row, expected.begin() + in.rows[i] * row);
  }
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    wrong += std::isnan(expected[i]) ? !std::isnan(found[i]) : found[i] != expected[i];
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
      place(in.whole.k, k_row, &in.k_cache, &in.k_new);
      place(in.whole.v, v_row, &in.v_cache, &in.v_new);
    }
  }
  return in;
}

Call decode_call(const DecodeCase& c, const DecodeInputs& in) {
  Call call;
  call.op = "flash_attention_decode";
  call.fixed = c.fixed;
  const int64_t b = c.batch(), s = c.queries, h = c.heads(), k = c.kv_heads;
  call.put("q", c.dtype, {b, s, h, c.head_dim}, in.whole.q);
  call.put("k_cache", c.dtype, {in.pages, c.page, k, c.head_dim}, in.k_cache);
  if (!c.latent) call.put("v_cache", c.dtype, {in.pages, c.page, k, c.value_dim}, in.v_cache);
  for (const char* name : {"k_cache", "v_cache"}) {
    if (call.tensors.contains(name)) call.tensors.at(name).changed = true;
  }
  call.put("block_table", LATHE_I32, {b, c.table_width}, in.table);
  call.put("cache_seqlens", LATHE_I32, {b}, {c.cached.begin(), c.cached.end()});
  if (c.append) call.put("k_new", c.dtype, {b, s, k, c.head_dim}, in.k_new);
  if (c.append && !c.latent) call.put("v_new", c.dtype, {b, s, k, c.value_dim}, in.v_new);
  if (c.slopes == DecodeCase::per_head) {
    call.put("alibi_slopes", LATHE_F32, {h}, in.whole.alibi_slopes);
  } else if (c.slopes == DecodeCase::per_sequence) {
    call.put("alibi_slopes", LATHE_F32, {b, h}, in.whole.alibi_slopes);
  }
  if (c.sinks) call.put("sinks", LATHE_F32, {h}, in.whole.sinks);
  call.want("out", c.dtype, {b, s, h, c.value_dim});
  call.want("lse", LATHE_F32, {b, h, s});
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
  const ref::AttentionForward exact = ref::attention_forward(in.whole);
  const double bound = ref::max2x_bound(exact.out, ref::plain_forward(in.whole, round).out,
                                        c.softcap > 0 ? 3 : 2, round);
  check_near(answer.at("out"), exact.out, bound, 0, "out");
  CHECK(ref::cosine_difference(answer.at("out"), exact.out) < 1e-5);
  check_near(answer.at("lse"), exact.lse, 1e-5, 1e-5, "lse");
}

void check_decode(const DecodeCase& c, const DecodeInputs& in, const Answer& answer) {
  check_decode_results(c, in, answer);
  if (!answer.error.empty()) return;
  check_cache(in, in.whole.k, in.k_cache, answer.at("k_cache"), c.kv_heads * c.head_dim);
  if (c.latent) return;
  check_cache(in, in.whole.v, in.v_cache, answer.at("v_cache"), c.kv_heads * c.value_dim);
}

}  // namespace apitest
