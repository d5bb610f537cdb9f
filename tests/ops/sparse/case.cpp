// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/sparse/case.h"

#include <numeric>
#include <sstream>

#include "reference/sparse_plain.h"
#include "tests/compare.h"
#include "tests/harness/check.h"

namespace apitest {
namespace {

double round_f16(double value) { return numbers::rounded(LATHE_F16, value); }
double round_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }

// Shapes of a case's tensors.
class Shapes {
 public:
  Shapes(const SparseCase& c, const ref::SparseAttention& a) : c_(c), a_(a) {}
  // [B, S, heads, width] or [T, heads, width].
  std::vector<int64_t> rows(int64_t heads, int64_t width) const {
    return tokens(c_.shape.rows, c_.shape.padding_q, heads, width);
  }
  std::vector<int64_t> keys(int64_t heads, int64_t width) const {
    return tokens(c_.shape.keys, c_.shape.padding_k, heads, width);
  }
  std::vector<int64_t> lse() const {
    const auto shape = rows(a_.heads, 1);
    if (flat()) return {a_.heads, shape[0]};
    return {shape[0], a_.heads, shape[1]};
  }
  std::vector<int64_t> statistic() const {
    const auto shape = rows(a_.kv_heads, a_.group());
    if (flat()) return {a_.kv_heads, shape[0], a_.group()};
    return {shape[0], a_.kv_heads, shape[1], a_.group()};
  }
  std::vector<int64_t> positions() const {
    auto shape = rows(1, 1);
    shape.resize(shape.size() - 2);
    return shape;
  }

 private:
  bool flat() const { return c_.shape.packed || c_.tokens; }
  std::vector<int64_t> tokens(const std::vector<int>& lengths, int64_t padding, int64_t heads,
                              int64_t width) const {
    if (flat()) return {std::accumulate(lengths.begin(), lengths.end(), padding), heads, width};
    const int64_t length = lengths.empty() ? 7 : lengths[0];
    return {static_cast<int64_t>(lengths.size()), length, heads, width};
  }

  const SparseCase& c_;
  const ref::SparseAttention& a_;
};

void put_inputs(const SparseCase& c, const ref::SparseAttention& a, Call* call) {
  const Shapes shapes(c, a);
  const auto& s = c.shape;
  call->put("q", c.dtype, shapes.rows(a.heads, a.head_dim), a.q);
  call->put("k", c.dtype, shapes.keys(a.kv_heads, a.head_dim), a.k);
  if (!s.values_in_keys) call->put("v", c.dtype, shapes.keys(a.kv_heads, a.value_dim), a.v);
  if (s.rope_dim > 0) {
    call->put("q_rope", c.dtype, shapes.rows(a.heads, a.rope_dim), a.q_rope);
    call->put("k_rope", c.dtype, shapes.keys(a.kv_heads, a.rope_dim), a.k_rope);
  }
  call->put("indices", LATHE_I32, shapes.rows(a.kv_heads, a.topk),
            {a.indices.begin(), a.indices.end()});
  if (s.packed) {
    Values ends(1, 0.0);
    ends.insert(ends.end(), a.end_k.begin(), a.end_k.end());
    const auto count = static_cast<int64_t>(ends.size());
    call->put("cu_seqlens_q", c.cu_dtype, {count}, {a.begin_q.begin(), a.begin_q.end()});
    call->put("cu_seqlens_k", c.cu_dtype, {count}, ends);
  }
  if (s.q_pos) {
    call->put("q_pos", LATHE_I32, shapes.positions(), {a.q_pos.begin(), a.q_pos.end()});
  }
  if (s.sinks) call->put("sinks", LATHE_F32, {a.heads}, a.sinks);
  call->set("scale", a.scale);
  call->options["sparse_mode"] = s.causal ? "3" : "0";
  call->options["index_space"] = s.absolute ? "absolute" : "sequence";
  call->set("block_size", int64_t{s.block});
  call->set("num_splits", c.splits);
  call->options["deterministic"] = c.deterministic ? "1" : "0";
}

void put_gradients(const SparseCase& c, const ref::SparseAttention& a, Call* call) {
  const Shapes shapes(c, a);
  const auto& s = c.shape;
  call->put("dout", c.dtype, shapes.rows(a.heads, a.value_dim), a.dout);
  if (c.wants("dq")) call->want("dq", c.dtype, shapes.rows(a.heads, a.head_dim));
  if (c.wants("dk")) call->want("dk", c.dtype, shapes.keys(a.kv_heads, a.head_dim));
  if (c.wants("dv") && !s.values_in_keys) {
    call->want("dv", c.dtype, shapes.keys(a.kv_heads, a.value_dim));
  }
  if (s.rope_dim > 0) {
    if (c.wants("dq")) call->want("dq_rope", c.dtype, shapes.rows(a.heads, a.rope_dim));
    if (c.wants("dk")) call->want("dk_rope", c.dtype, shapes.keys(a.kv_heads, a.rope_dim));
  }
  if (s.sinks && c.wants("dsinks")) call->want("dsinks", LATHE_F32, {a.heads});
}

// Checks FlashAttention's rule, and the direction, which sees a wrong block that the largest error
// forgives. In the reference's forward, a row of one key and a sink has a delta near dp. A gradient
// that is all but cancelled has no direction of its own: then the gradient that follows from out as
// it is, whose errors have been checked, is off too.
void check_near(const SparseCase& c, const std::string& name, const std::vector<double>& actual,
                const std::vector<double>& exact, const std::vector<double>& plain,
                const std::vector<double>& from_out) {
  const ref::Round round = c.dtype == LATHE_F16 ? round_f16 : round_bf16;
  const double ratio = c.shape.sinks && (c.shape.packed || c.given_forward) ? 3 : 2;
  const double bound = ref::max2x_bound(exact, plain, ratio, round);
  const auto verdict = compare::compare(name, actual, exact, {static_cast<int64_t>(exact.size())},
                                        {compare::Rule::kMax2x, bound, 0});
  CHECK_MESSAGE(verdict.ok, verdict.text);
  const double allowed = std::max({1e-5, 2 * ref::cosine_difference(plain, exact),
                                   2 * ref::cosine_difference(from_out, exact)});
  const double found = ref::cosine_difference(actual, exact);
  CHECK_MESSAGE(found < allowed, name, ": cosine difference ", found, ", allowed ", allowed);
}

void check_gradients(const SparseCase& c, const ref::SparseAttention& a,
                     const ref::SparseForward& exact, const Outputs& actual) {
  const ref::Round round = c.dtype == LATHE_F16 ? round_f16 : round_bf16;
  ref::SparseBackward right = ref::sparse_backward(a, exact);
  ref::SparseBackward plain = ref::sparse_plain_backward(a, round);
  // These gradients follow from out as it is: its errors, which have been checked, are in delta.
  ref::SparseForward rounded = exact;
  const auto out = actual.find("out");
  for (double& value : rounded.out) value = round(value);
  if (out != actual.end()) rounded.out = out->second;
  ref::SparseBackward from_out = ref::sparse_backward(a, rounded);
  if (c.shape.values_in_keys) {  // dk holds the sum
    const auto d = static_cast<size_t>(a.head_dim), dv = static_cast<size_t>(a.value_dim);
    for (ref::SparseBackward* each : {&right, &plain, &from_out}) {
      for (size_t i = 0; i < each->dv.size(); ++i) each->dk[i / dv * d + i % dv] += each->dv[i];
    }
  }
  for (size_t h = 0; h < right.dsinks.size(); ++h) {
    if (std::abs(from_out.dsinks[h] - right.dsinks[h]) >
        std::abs(plain.dsinks[h] - right.dsinks[h])) {
      plain.dsinks[h] = from_out.dsinks[h];
    }
  }
  using Gradient = ref::Array ref::SparseBackward::*;
  const std::pair<const char*, Gradient> all[] = {
      {"dq", &ref::SparseBackward::dq},           {"dk", &ref::SparseBackward::dk},
      {"dv", &ref::SparseBackward::dv},           {"dq_rope", &ref::SparseBackward::dq_rope},
      {"dk_rope", &ref::SparseBackward::dk_rope}, {"dsinks", &ref::SparseBackward::dsinks}};
  for (const auto& [name, of] : all) {
    const auto found = actual.find(name);
    if (found == actual.end()) continue;
    check_near(c, name, found->second, right.*of, plain.*of, from_out.*of);
  }
}

}  // namespace

std::string SparseCase::text() const {
  std::ostringstream out;
  const auto list = [&](const char* name, const std::vector<int>& values) {
    out << ' ' << name << '[';
    for (size_t i = 0; i < values.size(); ++i) out << (i ? " " : "") << values[i];
    out << ']';
  };
  const auto& s = shape;
  out << (dtype == LATHE_BF16 ? "bf16" : "f16") << " D" << s.head_dim << '+' << s.rope_dim << " DV"
      << s.value_dim << (s.values_in_keys ? " in k" : "") << " HK" << s.kv_heads << " G" << s.group
      << " topk " << s.topk << " block " << s.block << " lists " << static_cast<int>(s.lists);
  list("rows", s.rows);
  list("keys", s.keys);
  if (s.packed) out << (cu_dtype == LATHE_I64 ? " packed/i64" : " packed/i32");
  if (s.padding_q || s.padding_k) out << " padding " << s.padding_q << ',' << s.padding_k;
  out << (tokens ? " tokens" : "") << (s.causal ? " causal" : "") << (s.absolute ? " absolute" : "")
      << (s.q_pos ? " q_pos" : "") << (s.sinks ? " sinks" : "") << (statistics ? "" : " lse alone");
  if (splits > 0) out << " splits " << splits;
  if (placement.token_gap || placement.batch_gap) out << " gaps";
  out << (backward ? " " + gradients : "") << (deterministic ? " deterministic" : "")
      << (saved_forward ? " saved" : "") << (given_forward ? " given" : "")
      << (fixed ? " fixed" : "") << (tile.empty() ? "" : " tile ") << tile
      << (main_tile.empty() ? "" : " main tile ") << main_tile << " seed " << seed;
  return out.str();
}

ref::SparseAttention make_sparse(const SparseCase& c) {
  return sparse_case::make(c.shape, c.dtype, c.seed);
}

Call sparse_call(const SparseCase& c, const ref::SparseAttention& a, SparsePart part,
                 const Outputs& saved) {
  const Shapes shapes(c, a);
  Call call;
  call.op = "sparse_flash_attention";
  call.fixed = c.fixed;
  put_inputs(c, a, &call);
  call.want("out", c.dtype, shapes.rows(a.heads, a.value_dim));
  call.want("lse", LATHE_F32, shapes.lse());
  if (part == SparsePart::backward) {
    for (const char* name : {"out", "lse"}) call.tensors.at(name).values = saved.at(name);
    call.options["saved_forward"] = "1";
  } else {
    if (!c.tile.empty()) call.tiles["sparse_forward"] = c.tile;
    for (const char* name : {"softmax_max", "softmax_sum"}) {
      if (c.statistics) call.want(name, LATHE_F32, shapes.statistic());
    }
  }
  if (part != SparsePart::forward) {
    put_gradients(c, a, &call);
    if (!c.main_tile.empty()) call.tiles["sparse_backward"] = c.main_tile;
  }
  call.place(c.placement);
  return call;
}

Answer run_sparse(lathe_context* context, const SparseCase& c, const ref::SparseAttention& a) {
  if (c.given_forward) {
    const ref::SparseForward forward = ref::sparse_forward(a);
    const Outputs given = {{"out", forward.out}, {"lse", forward.lse}};
    return execute(context, sparse_call(c, a, SparsePart::backward, given));
  }
  if (!c.backward) return execute(context, sparse_call(c, a, SparsePart::forward));
  if (!c.saved_forward) return execute(context, sparse_call(c, a, SparsePart::both));
  const Answer first = execute(context, sparse_call(c, a, SparsePart::forward));
  return joined(first, execute(context, sparse_call(c, a, SparsePart::backward, first.outputs)));
}

void check_sparse(const SparseCase& c, const ref::SparseAttention& a, const Answer& answer) {
  check_clean(answer);
  if (!answer.error.empty()) return;
  const Outputs& actual = answer.outputs;
  const ref::Round round = c.dtype == LATHE_F16 ? round_f16 : round_bf16;
  const ref::SparseForward exact = ref::sparse_forward(a);
  if (actual.contains("out")) {
    check_near(c, "out", actual.at("out"), exact.out, ref::sparse_plain_out(a, round), exact.out);
    check_near(actual.at("lse"), exact.lse, 1e-5, 1e-6, "lse");
    size_t not_zero = 0;  // in rows that see no key
    for (size_t i = 0; i < exact.out.size(); ++i) {
      not_zero += exact.out[i] == 0 && actual.at("out")[i] != 0;
    }
    CHECK(not_zero == 0);
    if (actual.contains("softmax_max")) {
      check_near(actual.at("softmax_max"), exact.softmax_max, 3e-6, 1e-6, "softmax_max");
      check_near(actual.at("softmax_sum"), exact.softmax_sum, 1e-6, 1e-5, "softmax_sum");
    }
  }
  if (c.backward) check_gradients(c, a, exact, actual);
}

Answer checked(const SparseCase& c, const ref::SparseAttention& a) {
  INFO(c.text());
  Answer answer = run_sparse(shared_context(), c, a);
  check_sparse(c, a, answer);
  return answer;
}

}  // namespace apitest
