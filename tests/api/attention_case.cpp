// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/attention_case.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/numbers.h"

namespace apitest {
namespace {

std::vector<std::string>& kernels() {
  static std::vector<std::string> seen;
  return seen;
}

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

// One plan and one run of it.
class AttentionRun {
 public:
  AttentionRun(lathe_context* context, const AttentionCase& attention)
      : context_(context), case_(attention), stream_(context) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, "flash_attention"));
    problem_.reset(problem);
  }

  // What every call reads.
  void add_inputs(const ref::Attention& in) {
    const AttentionCase& c = case_;
    const auto rows = [&](const ref::Array& values, const std::vector<int64_t>& begin,
                          int64_t padding,
                          int64_t columns) { return spoilt(c, values, begin, padding, columns); };
    input("q", c.dtype, tokens(true, c.heads(), c.head_dim),
          rows(in.q, in.begin_q, c.padding_q, c.heads() * c.head_dim));
    input("k", c.dtype, tokens(false, c.kv_heads, c.head_dim),
          rows(in.k, in.begin_k, c.padding_k, c.kv_heads * c.head_dim));
    input("v", c.dtype, tokens(false, c.kv_heads, c.value_dim),
          rows(in.v, in.begin_k, c.padding_k, c.kv_heads * c.value_dim));
    if (c.slopes == Slopes::per_head)
      input("alibi_slopes", LATHE_F32, {c.heads()}, in.alibi_slopes);
    if (c.slopes == Slopes::per_sequence) {
      input("alibi_slopes", LATHE_F32, {c.sequences(), c.heads()}, in.alibi_slopes);
    }
    if (c.sinks) input("sinks", LATHE_F32, {c.heads()}, in.sinks);
    if (c.packed) {
      for (const auto& [name, begin] :
           {std::pair("cu_seqlens_q", &in.begin_q), std::pair("cu_seqlens_k", &in.begin_k)}) {
        input(name, c.cu_dtype, {c.sequences() + 1}, {begin->begin(), begin->end()});
      }
    }
    if (c.scale > 0) API(lathe_problem_set_double(problem_.get(), "softmax_scale", c.scale));
    option("causal", c.causal ? "1" : "0");
    option("window_left", std::to_string(c.left));
    option("window_right", std::to_string(c.right));
    API(lathe_problem_set_double(problem_.get(), "softcap", c.softcap));
  }
  void add_gradients(const ref::Attention& in) {
    const AttentionCase& c = case_;
    input("dout", c.dtype, tokens(true, c.heads(), c.value_dim),
          spoilt(c, in.dout, in.begin_q, c.padding_q, c.heads() * c.value_dim));
    if (c.dlse) input("dlse", LATHE_F32, row_shape(), spoilt_rows(c, in.dlse, in.begin_q));
    const auto wanted = [&](const char* name, lathe_dtype dtype,
                            const std::vector<int64_t>& shape) {
      if (c.wants(name)) output(name, dtype, shape);
    };
    wanted("dq", c.dtype, tokens(true, c.heads(), c.head_dim));
    wanted("dk", c.dtype, tokens(false, c.kv_heads, c.head_dim));
    wanted("dv", c.dtype, tokens(false, c.kv_heads, c.value_dim));
    if (c.sinks) wanted("dsinks", LATHE_F32, {c.heads()});
    option("deterministic", c.deterministic ? "1" : "0");
  }
  void add_outputs() {
    output("out", case_.dtype, tokens(true, case_.heads(), case_.value_dim));
    output("lse", LATHE_F32, row_shape());
  }
  // out and lse of an earlier run.
  void add_saved(const Values& saved) {
    input("out", case_.dtype, tokens(true, case_.heads(), case_.value_dim), saved.at("out"));
    input("lse", LATHE_F32, row_shape(), saved.at("lse"));
    option("saved_forward", "1");
  }

  Values operator()() {
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context_, problem_.get()));
    const Plan owner(plan);
    for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
      lathe_kernel_info info{};
      info.size = sizeof info;
      API(lathe_plan_kernel(plan, i, &info));
      kernels().push_back(info.spec);
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
    Values out;
    for (const auto& name : outputs_) out[name] = tensors_.at(name)->download();
    return out;
  }

 private:
  // [B, S, heads, width] or [T, heads, width].
  std::vector<int64_t> tokens(bool of_queries, int64_t heads, int64_t width) const {
    const auto& lengths = of_queries ? case_.queries : case_.keys;
    if (!case_.packed) return {case_.sequences(), lengths.empty() ? 7 : lengths[0], heads, width};
    const int64_t padding = of_queries ? case_.padding_q : case_.padding_k;
    return {std::accumulate(lengths.begin(), lengths.end(), padding), heads, width};
  }
  std::vector<int64_t> row_shape() const {
    const auto shape = tokens(true, case_.heads(), 1);
    if (case_.packed) return {shape[1], shape[0]};
    return {shape[0], shape[2], shape[1]};
  }
  void declare(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
    std::vector<int64_t> declared = shape;
    if (!case_.fixed_lengths) {
      // Batch, tokens and sequences vary from run to run; heads and widths do not.
      const bool rows = name == "lse" || name == "dlse", heads = name.find("sinks") < name.npos;
      const size_t last = shape.size() - 1;
      if (name.starts_with("cu_")) declared[0] = -1;
      if (rows) declared[last] = -1;
      if (name == "alibi_slopes" || rows) declared[0] = last == 2 ? -1 : declared[0];
      if (name == "alibi_slopes" && last == 1) declared[0] = -1;
      if (!rows && !heads && last >= 2) std::fill(declared.begin(), declared.end() - 2, -1);
    }
    API(lathe_problem_tensor(problem_.get(), name.c_str(), dtype, static_cast<int>(shape.size()),
                             declared.data()));
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
    declare(name, dtype, shape);
    const bool strided = dtype == LATHE_F16 || dtype == LATHE_BF16;
    tensors_[name] = std::make_unique<Tensor>(
        context_, dtype, shape, strided ? case_.placement : Placement{}, stream_.get());
  }
  void option(const char* name, const std::string& value) {
    API(lathe_problem_set_string(problem_.get(), name, value.c_str()));
  }

  lathe_context* context_;
  const AttentionCase& case_;
  Stream stream_;
  Problem problem_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<std::string> outputs_;
};

}  // namespace

std::string AttentionCase::text() const {
  std::ostringstream out;
  const auto list = [&](const char* name, const std::vector<int64_t>& values) {
    out << ' ' << name << '[';
    for (size_t i = 0; i < values.size(); ++i) out << (i ? " " : "") << values[i];
    out << ']';
  };
  out << (dtype == LATHE_BF16 ? "bf16" : "f16") << " D" << head_dim << " DV" << value_dim << " H"
      << heads() << " HK" << kv_heads;
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
      << (fixed_lengths ? " fixed" : "") << " seed " << seed;
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

Values run_attention(lathe_context* context, const AttentionCase& c, const ref::Attention& inputs) {
  AttentionRun first(context, c);
  first.add_inputs(inputs);
  first.add_outputs();
  if (c.backward && !c.saved_forward) first.add_gradients(inputs);
  Values out = first();
  if (!c.backward || !c.saved_forward) return out;
  AttentionRun second(context, c);
  second.add_inputs(inputs);
  second.add_saved(out);
  second.add_gradients(inputs);
  out.merge(second());
  return out;
}

std::vector<std::string> take_kernels() {
  std::vector<std::string> seen;
  seen.swap(kernels());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

}  // namespace apitest
