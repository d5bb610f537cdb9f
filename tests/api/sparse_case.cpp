// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/sparse_case.h"

#include <doctest/doctest.h>

#include <sstream>

#include "tests/compare.h"
#include "tests/ref/sparse_plain.h"

namespace apitest {
namespace {

double round_f16(double value) { return numbers::rounded(LATHE_F16, value); }
double round_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }

// One plan and one run of it.
class SparseRun {
 public:
  SparseRun(lathe_context* context, const SparseCase& sparse)
      : context_(context), case_(sparse), stream_(context) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, "sparse_flash_attention"));
    problem_.reset(problem);
  }

  void add_inputs(const ref::SparseAttention& a) {
    const auto& s = case_.shape;
    input("q", case_.dtype, rows(a.heads, a.head_dim), a.q);
    input("k", case_.dtype, keys(a.kv_heads, a.head_dim), a.k);
    if (!s.values_in_keys) input("v", case_.dtype, keys(a.kv_heads, a.value_dim), a.v);
    if (s.rope_dim > 0) {
      input("q_rope", case_.dtype, rows(a.heads, a.rope_dim), a.q_rope);
      input("k_rope", case_.dtype, keys(a.kv_heads, a.rope_dim), a.k_rope);
    }
    input("indices", LATHE_I32, rows(a.kv_heads, a.topk), {a.indices.begin(), a.indices.end()});
    if (s.packed) {
      std::vector<double> ends(1, 0.0);
      ends.insert(ends.end(), a.end_k.begin(), a.end_k.end());
      const auto count = static_cast<int64_t>(ends.size());
      input("cu_seqlens_q", case_.cu_dtype, {count}, {a.begin_q.begin(), a.begin_q.end()});
      input("cu_seqlens_k", case_.cu_dtype, {count}, ends);
    }
    if (s.q_pos) {
      auto shape = rows(1, 1);
      shape.resize(shape.size() - 2);
      input("q_pos", LATHE_I32, shape, {a.q_pos.begin(), a.q_pos.end()});
    }
    if (s.sinks) input("sinks", LATHE_F32, {a.heads}, a.sinks);
    API(lathe_problem_set_double(problem_.get(), "scale", a.scale));
    option("sparse_mode", s.causal ? "3" : "0");
    option("index_space", s.absolute ? "absolute" : "sequence");
    option("block_size", std::to_string(s.block));
    option("num_splits", std::to_string(case_.splits));
    option("deterministic", case_.deterministic ? "1" : "0");
  }
  void add_outputs(const ref::SparseAttention& a) {
    output("out", case_.dtype, rows(a.heads, a.value_dim));
    output("lse", LATHE_F32, lse_shape(a));
    if (!case_.statistics) return;
    for (const char* name : {"softmax_max", "softmax_sum"}) {
      output(name, LATHE_F32, statistic_shape(a));
    }
  }
  void add_saved(const ref::SparseAttention& a, const SparseValues& saved) {
    input("out", case_.dtype, rows(a.heads, a.value_dim), saved.at("out"));
    input("lse", LATHE_F32, lse_shape(a), saved.at("lse"));
    option("saved_forward", "1");
  }
  void add_gradients(const ref::SparseAttention& a) {
    const auto& s = case_.shape;
    input("dout", case_.dtype, rows(a.heads, a.value_dim), a.dout);
    output("dq", case_.dtype, rows(a.heads, a.head_dim));
    output("dk", case_.dtype, keys(a.kv_heads, a.head_dim));
    if (!s.values_in_keys) output("dv", case_.dtype, keys(a.kv_heads, a.value_dim));
    if (s.rope_dim > 0) {
      output("dq_rope", case_.dtype, rows(a.heads, a.rope_dim));
      output("dk_rope", case_.dtype, keys(a.kv_heads, a.rope_dim));
    }
    if (s.sinks) output("dsinks", LATHE_F32, {a.heads});
  }

  SparseAnswer operator()() {
    SparseAnswer answer;
    lathe_context_info before = {}, after = {};
    before.size = after.size = sizeof(lathe_context_info);
    API(lathe_context_get_info(context_, &before));
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context_, problem_.get()));
    const Plan owner(plan);
    API(lathe_context_get_info(context_, &after));
    answer.compiled = after.compiled - before.compiled;
    for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
      lathe_kernel_info info{};
      info.size = sizeof info;
      API(lathe_plan_kernel(plan, i, &info));
      answer.kernels.push_back(info.spec);
    }
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan), nullptr);
    for (const auto& [name, tensor] : tensors_) {
      size_t slot = 0;
      API(lathe_plan_slot(plan, name.c_str(), &slot));
      slots.at(slot) = tensor->dl();
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(plan, slots.data(), nullptr, &bytes));
    const Memory workspace(context_, bytes);
    for (const auto& name : outputs_) tensors_.at(name)->poison();
    API(lathe_plan_run(plan, slots.data(), bytes == 0 ? nullptr : workspace.data(), bytes,
                       stream_.get()));
    API(lathe_stream_synchronize(context_, stream_.get()));
    for (const auto& name : outputs_) answer.outputs[name] = tensors_.at(name)->download();
    return answer;
  }

 private:
  bool flat() const { return case_.shape.packed || case_.tokens; }
  // [B, S, heads, width] or [T, heads, width].
  std::vector<int64_t> rows(int64_t heads, int64_t width) const {
    const auto& s = case_.shape;
    return place(s.rows, s.padding_q, heads, width);
  }
  std::vector<int64_t> keys(int64_t heads, int64_t width) const {
    const auto& s = case_.shape;
    return place(s.keys, s.padding_k, heads, width);
  }
  std::vector<int64_t> place(const std::vector<int>& lengths, int64_t padding, int64_t heads,
                             int64_t width) const {
    if (!flat()) {
      const int64_t length = lengths.empty() ? 7 : lengths[0];
      return {static_cast<int64_t>(lengths.size()), length, heads, width};
    }
    int64_t total = padding;
    for (const int length : lengths) total += length;
    return {total, heads, width};
  }
  std::vector<int64_t> lse_shape(const ref::SparseAttention& a) const {
    const auto shape = rows(a.heads, 1);
    if (flat()) return {a.heads, shape[0]};
    return {shape[0], a.heads, shape[1]};
  }
  std::vector<int64_t> statistic_shape(const ref::SparseAttention& a) const {
    const auto shape = rows(a.kv_heads, a.group());
    if (flat()) return {a.kv_heads, shape[0], a.group()};
    return {shape[0], a.kv_heads, shape[1], a.group()};
  }
  // Batch, tokens, sequences and entries vary from run to run; heads and widths do not.
  std::vector<int64_t> open(const std::string& name, std::vector<int64_t> shape) const {
    if (case_.fixed || name.find("sinks") < name.npos) return shape;
    if (name == "lse") {
      if (shape.size() == 3) shape[0] = -1;
      shape.back() = -1;
    } else if (name.starts_with("softmax")) {
      if (shape.size() == 4) shape[0] = -1;
      shape[shape.size() - 2] = -1;
    } else if (name == "q_pos" || name.starts_with("cu_")) {
      std::fill(shape.begin(), shape.end(), -1);
    } else {
      std::fill(shape.begin(), shape.end() - 2, -1);
      if (name == "indices") shape.back() = -1;
    }
    return shape;
  }
  void input(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape,
             const std::vector<double>& values) {
    add(name, dtype, shape);
    tensors_.at(name)->upload(values);
  }
  void output(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
    add(name, dtype, shape);
    outputs_.push_back(name);
  }
  void add(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
    const std::vector<int64_t> declared = open(name, shape);
    API(lathe_problem_tensor(problem_.get(), name.c_str(), dtype, static_cast<int>(shape.size()),
                             declared.data()));
    const bool strided = dtype == LATHE_F16 || dtype == LATHE_BF16;
    tensors_[name] = std::make_unique<Tensor>(
        context_, dtype, shape, strided ? case_.placement : Placement{}, stream_.get());
  }
  void option(const char* name, const std::string& value) {
    API(lathe_problem_set_string(problem_.get(), name, value.c_str()));
  }

  lathe_context* context_;
  const SparseCase& case_;
  Stream stream_;
  Problem problem_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<std::string> outputs_;
};

// FlashAttention's rule, and the direction, which sees a wrong block that the largest error
// forgives.
// A gradient that is all but cancelled has none of its own: then what follows from out as it is,
// whose errors have been checked, is off too.
void check_near(const SparseCase& c, const std::string& name, const std::vector<double>& actual,
                const std::vector<double>& exact, const std::vector<double>& plain,
                const std::vector<double>& from_out) {
  const ref::Round round = c.dtype == LATHE_F16 ? round_f16 : round_bf16;
  const double ratio = c.shape.sinks && c.shape.packed ? 3 : 2;
  const double bound = ref::max2x_bound(exact, plain, ratio, round);
  const auto verdict = compare::compare(name, actual, exact, {static_cast<int64_t>(exact.size())},
                                        {compare::Rule::kMax2x, bound, 0});
  CHECK_MESSAGE(verdict.ok, verdict.text);
  const double allowed = std::max({1e-5, 2 * ref::cosine_difference(plain, exact),
                                   2 * ref::cosine_difference(from_out, exact)});
  const double found = ref::cosine_difference(actual, exact);
  CHECK_MESSAGE(found < allowed, name, ": cosine difference ", found, ", allowed ", allowed);
}

void check_float(const char* name, const SparseValues& actual, const ref::Array& exact,
                 double absolute, double relative) {
  const auto found = actual.find(name);
  if (found == actual.end()) return;
  REQUIRE(found->second.size() == exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double a = found->second[i], e = exact[i];
    const bool good =
        a == e || (std::isfinite(e) && std::abs(a - e) <= absolute + relative * std::abs(e));
    if (!good) FAIL(name << "[" << i << "]: " << a << " for " << e);
  }
}

void check_gradients(const SparseCase& c, const ref::SparseAttention& a,
                     const ref::SparseForward& exact, const SparseValues& actual) {
  const ref::Round round = c.dtype == LATHE_F16 ? round_f16 : round_bf16;
  ref::SparseBackward right = ref::sparse_backward(a, exact);
  ref::SparseBackward plain = ref::sparse_plain_backward(a, round);
  // What follows from out as it is: its errors, which have been checked, are in delta.
  ref::SparseForward rounded = exact;
  rounded.out = actual.at("out");
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
  out << (backward ? " backward" : "") << (deterministic ? " deterministic" : "")
      << (saved_forward ? " saved" : "") << (fixed ? " fixed" : "") << " seed " << seed;
  return out.str();
}

ref::SparseAttention make_sparse(const SparseCase& c) {
  return sparse_case::make(c.shape, c.dtype, c.seed);
}

SparseAnswer run_sparse(lathe_context* context, const SparseCase& c,
                        const ref::SparseAttention& inputs) {
  SparseRun first(context, c);
  first.add_inputs(inputs);
  first.add_outputs(inputs);
  if (c.backward && !c.saved_forward) first.add_gradients(inputs);
  SparseAnswer answer = first();
  if (!c.backward || !c.saved_forward) return answer;
  SparseRun second(context, c);
  second.add_inputs(inputs);
  second.add_saved(inputs, answer.outputs);
  second.add_gradients(inputs);
  SparseAnswer gradients = second();
  answer.outputs.merge(gradients.outputs);
  answer.compiled += gradients.compiled;
  answer.kernels.insert(answer.kernels.end(), gradients.kernels.begin(), gradients.kernels.end());
  return answer;
}

void check_sparse(const SparseCase& c, const ref::SparseAttention& a, const SparseValues& actual) {
  const ref::Round round = c.dtype == LATHE_F16 ? round_f16 : round_bf16;
  const ref::SparseForward exact = ref::sparse_forward(a);
  check_near(c, "out", actual.at("out"), exact.out, ref::sparse_plain_out(a, round), exact.out);
  check_float("softmax_max", actual, exact.softmax_max, 3e-6, 1e-6);
  check_float("softmax_sum", actual, exact.softmax_sum, 1e-6, 1e-5);
  check_float("lse", actual, exact.lse, 1e-5, 1e-6);
  if (c.backward) check_gradients(c, a, exact, actual);
  for (const auto& finding : take_report().findings) FAIL_CHECK(finding);
}

}  // namespace apitest
