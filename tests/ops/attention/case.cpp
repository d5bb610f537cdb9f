// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/case.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/numbers.h"

namespace apitest {
namespace {

std::vector<int64_t> offsets(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> begin = {0};
  for (int64_t length : lengths) begin.push_back(begin.back() + length);
  return begin;
}

// [rows, columns] with NaN in the poisoned sequence and in `padding` rows more.
std::vector<double> spoilt(const AttentionCase& c, std::vector<double> values,
                           const std::vector<int64_t>& begin, int64_t padding, int64_t columns) {
  values.resize(values.size() + static_cast<size_t>(padding * columns), std::nan(""));
  if (c.poisoned < 0) return values;
  const auto at = [&](int64_t n) { return values.begin() + begin[n] * columns; };
  std::fill(at(c.poisoned), at(c.poisoned + 1), std::nan(""));
  return values;
}

// [H, rows] as [H, rows + padding], of which the new ones are NaN, as is the poisoned sequence.
std::vector<double> spoilt_rows(const AttentionCase& c, const std::vector<double>& values,
                                const std::vector<int64_t>& begin) {
  std::vector<double> out;
  const int64_t rows = begin.back();
  for (int64_t h = 0; c.packed && h < c.heads(); ++h) {
    const std::vector<double> row(values.begin() + h * rows, values.begin() + (h + 1) * rows);
    const auto wider = spoilt(c, row, begin, c.padding_q, 1);
    out.insert(out.end(), wider.begin(), wider.end());
  }
  return c.packed ? out : values;
}

// Shapes of a case's tensors: [B, S, heads, width] or [T, heads, width].
std::vector<int64_t> tokens(const AttentionCase& c, bool of_queries, int64_t heads, int64_t width) {
  const auto& lengths = of_queries ? c.queries : c.keys;
  if (!c.packed) return {c.sequences(), lengths.empty() ? 7 : lengths[0], heads, width};
  const int64_t padding = of_queries ? c.padding_q : c.padding_k;
  return {std::accumulate(lengths.begin(), lengths.end(), padding), heads, width};
}
std::vector<int64_t> queries(const AttentionCase& c, int64_t width) {
  return tokens(c, true, c.heads(), width);
}
std::vector<int64_t> keys(const AttentionCase& c, int64_t width) {
  return tokens(c, false, c.kv_heads, width);
}
std::vector<int64_t> row_shape(const AttentionCase& c) {
  const auto shape = queries(c, 1);
  if (c.packed) return {shape[1], shape[0]};
  return {shape[0], shape[2], shape[1]};
}

void put_inputs(const AttentionCase& c, const ref::Attention& in, Call* call) {
  const auto put_rows = [&](const char* name, const std::vector<int64_t>& shape,
                            const ref::Array& values, const std::vector<int64_t>& begin,
                            int64_t padding) {
    const int64_t columns = shape[shape.size() - 2] * shape.back();
    call->put(name, c.dtype, shape, spoilt(c, values, begin, padding, columns));
  };
  put_rows("q", queries(c, c.head_dim), in.q, in.begin_q, c.padding_q);
  put_rows("k", keys(c, c.head_dim), in.k, in.begin_k, c.padding_k);
  put_rows("v", keys(c, c.value_dim), in.v, in.begin_k, c.padding_k);
  if (c.slopes == Slopes::per_head)
    call->put("alibi_slopes", LATHE_F32, {c.heads()}, in.alibi_slopes);
  if (c.slopes == Slopes::per_sequence) {
    call->put("alibi_slopes", LATHE_F32, {c.sequences(), c.heads()}, in.alibi_slopes);
  }
  if (c.sinks) call->put("sinks", LATHE_F32, {c.heads()}, in.sinks);
  if (c.packed) {
    for (const auto& [name, begin] :
         {std::pair("cu_seqlens_q", &in.begin_q), std::pair("cu_seqlens_k", &in.begin_k)}) {
      call->put(name, c.cu_dtype, {c.sequences() + 1}, {begin->begin(), begin->end()});
    }
  }
  if (!c.capture.empty()) {
    call->put("capture_0", LATHE_F32, {static_cast<int64_t>(c.capture.size())}, c.capture);
  }
  call->options = c.options, call->texts = c.texts;
  if (c.scale > 0) call->set("softmax_scale", c.scale);
  call->options["causal"] = c.causal ? "1" : "0";
  call->set("window_left", c.left), call->set("window_right", c.right);
  call->set("softcap", c.softcap);
}

void put_gradients(const AttentionCase& c, const ref::Attention& in, Call* call) {
  const int64_t columns = c.heads() * c.value_dim;
  call->put("dout", c.dtype, queries(c, c.value_dim),
            spoilt(c, in.dout, in.begin_q, c.padding_q, columns));
  if (c.dlse) call->put("dlse", LATHE_F32, row_shape(c), spoilt_rows(c, in.dlse, in.begin_q));
  const auto want = [&](const char* name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
    if (c.wants(name)) call->want(name, dtype, shape);
  };
  want("dq", c.dtype, queries(c, c.head_dim));
  want("dk", c.dtype, keys(c, c.head_dim));
  want("dv", c.dtype, keys(c, c.value_dim));
  if (c.sinks) want("dsinks", LATHE_F32, {c.heads()});
  call->options["deterministic"] = c.deterministic ? "1" : "0";
}

// out and lse of the reference, as an earlier forward with padding would have left them.
Outputs given_forward(const AttentionCase& c, const ref::Attention& in) {
  const ref::AttentionForward forward = ref::attention_forward(in);
  return {{"out", spoilt(c, forward.out, in.begin_q, c.padding_q, c.heads() * c.value_dim)},
          {"lse", spoilt_rows(c, forward.lse, in.begin_q)}};
}

}  // namespace

std::string AttentionCase::text() const {
  std::ostringstream out;
  const auto list = [&](const char* name, const std::vector<int64_t>& values) {
    out << ' ' << name << '[';
    for (size_t i = 0; i < values.size(); ++i) out << (i ? " " : "") << values[i];
    out << ']';
  };
  out << (dtype == LATHE_BF16  ? "bf16"
          : dtype == LATHE_F16 ? "f16"
                               : "f32")
      << " D" << head_dim << " DV" << value_dim << " H" << heads() << " HK" << kv_heads;
  list("queries", queries);
  list("keys", keys);
  if (packed) out << (cu_dtype == LATHE_I64 ? " packed/i64" : " packed/i32");
  if (padding_q || padding_k) out << " padding " << padding_q << ',' << padding_k;
  if (causal) out << " causal";
  if (left >= 0 || right >= 0) out << " window " << left << ',' << right;
  if (softcap > 0) out << " softcap " << softcap;
  if (scale > 0) out << " scale " << scale;
  if (slopes != Slopes::none) out << (slopes == Slopes::per_head ? " alibi[H]" : " alibi[B,H]");
  out << (sinks ? " sinks" : "") << (ones ? " ones" : "");
  if (poisoned >= 0) out << " poisoned " << poisoned;
  if (placement.token_gap || placement.batch_gap) out << " gaps";
  out << (backward ? " " + gradients : "") << (dlse ? " dlse" : "")
      << (deterministic ? " deterministic" : "") << (saved_forward ? " saved" : "")
      << (given_forward ? " given" : "") << (fixed_lengths ? " fixed" : "")
      << (tile.empty() ? "" : " tile ") << tile << (main_tile.empty() ? "" : " main tile ")
      << main_tile << " seed " << seed;
  return out.str();
}

ref::Attention make_inputs(const AttentionCase& c) {
  std::mt19937_64 random(c.seed);
  std::normal_distribution<double> normal;
  const auto draw = [&](lathe_dtype dtype, int64_t size) {
    ref::Array values(static_cast<size_t>(size));
    for (double& value : values) value = numbers::rounded(dtype, normal(random));
    return values;
  };
  ref::Attention in;
  in.heads = c.heads(), in.kv_heads = c.kv_heads;
  in.head_dim = c.head_dim, in.value_dim = c.value_dim;
  in.begin_q = offsets(c.queries), in.begin_k = offsets(c.keys);
  in.packed = c.packed;
  in.scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  in.softcap = c.softcap;
  in.causal = c.causal;
  in.window_left = c.left, in.window_right = c.right;
  in.q = draw(c.dtype, in.begin_q.back() * c.heads() * c.head_dim);
  in.k = draw(c.dtype, in.begin_k.back() * c.kv_heads * c.head_dim);
  in.v = draw(c.dtype, in.begin_k.back() * c.kv_heads * c.value_dim);
  if (c.ones) std::fill(in.v.begin(), in.v.end(), 1.0);
  if (c.sinks) in.sinks = draw(LATHE_F32, c.heads());
  if (c.sinks && c.seed % 3 == 0) in.sinks[0] = -ref::kInfinity;
  if (c.slopes != Slopes::none) {
    in.alibi_slopes =
        draw(LATHE_F32, c.heads() * (c.slopes == Slopes::per_head ? 1 : c.sequences()));
    for (double& slope : in.alibi_slopes) slope = std::abs(slope) / 8;
  }
  if (c.backward) in.dout = draw(c.dtype, in.begin_q.back() * c.heads() * c.value_dim);
  if (c.dlse) in.dlse = draw(LATHE_F32, in.begin_q.back() * c.heads());
  return in;
}

Call attention_call(const AttentionCase& c, const ref::Attention& in, AttentionPart part,
                    const Outputs& saved) {
  Call call;
  call.fixed = c.fixed_lengths;
  put_inputs(c, in, &call);
  call.want("out", c.dtype, queries(c, c.value_dim));
  call.want("lse", LATHE_F32, row_shape(c));
  if (part == AttentionPart::backward) {
    for (const char* name : {"out", "lse"}) call.tensors.at(name).values = saved.at(name);
    call.options["saved_forward"] = "1";
  } else if (!c.tile.empty()) {
    call.tiles["attention_forward"] = c.tile;
  }
  if (part != AttentionPart::forward) {
    put_gradients(c, in, &call);
    if (!c.main_tile.empty()) call.tiles[c.main_kernel] = c.main_tile;
  }
  call.place(c.placement);
  return call;
}

Answer run_attention(lathe_context* context, const AttentionCase& c, const ref::Attention& in) {
  const auto run_part = [&](AttentionPart part, const Outputs& saved = {}) {
    return execute(context, attention_call(c, in, part, saved));
  };
  if (c.given_forward) return run_part(AttentionPart::backward, given_forward(c, in));
  if (!c.backward) return run_part(AttentionPart::forward);
  if (!c.saved_forward) return run_part(AttentionPart::both);
  const Answer first = run_part(AttentionPart::forward);
  return joined(first, run_part(AttentionPart::backward, first.outputs));
}

RanksAnswer run_attention_ranks(const AttentionCase& c, const ref::Attention& in,
                                const Ranks& ranks) {
  const auto run_part = [&](AttentionPart part, const Outputs& saved = {}) {
    return run_ranks(attention_call(c, in, part, saved), ranks);
  };
  if (!c.backward) return run_part(AttentionPart::forward);
  if (!c.saved_forward) return run_part(AttentionPart::both);
  RanksAnswer first = run_part(AttentionPart::forward);
  const RanksAnswer second = run_part(AttentionPart::backward, first.outputs);
  first.outputs.insert(second.outputs.begin(), second.outputs.end());
  first.hops.insert(first.hops.end(), second.hops.begin(), second.hops.end());
  first.launches += second.launches;
  for (size_t r = 0; r < first.estimates.size(); ++r) {
    first.estimates[r].launches += second.estimates[r].launches;
    first.estimates[r].exchanges += second.estimates[r].exchanges;
    first.estimates[r].exchange_bytes += second.estimates[r].exchange_bytes;
  }
  return first;
}

std::vector<std::string> kernels_of(const Answer& answer) {
  std::vector<std::string> seen;
  for (const Kernel& kernel : answer.kernels) seen.push_back(kernel.spec);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

}  // namespace apitest
