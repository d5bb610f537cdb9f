// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of the attention backward on the simulator: its three kernels, their specs, data and
// workspace. What is expected of it is tests/ref/attention.h's business.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention_backward.h"
#include "tests/numbers.h"
#include "tests/ref/attention.h"

namespace backward {

using lathe::Constant;
using lathe::Dtype;
using lathe::KernelSpec;
using ref::Array;
using ref::kInfinity;

struct Setup {
  lathe_dtype element;
  int width, value_width, m, n, stages, width_warps, warps;
  std::string
      flags;  // of packed, wide (offsets), local, softcap, alibi, sinks, dlse, ordered, apart
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

// One call. Without `packed` every sequence has the same lengths.
struct Call {
  std::vector<int> rows, keys;  // by sequence
  int padding_q = 0, padding_k = 0;
  int kv_heads = 1, group = 1;
  int head_dim = 64, value_dim = 64;
  int left = -1, right = -1;
  double scale = 0.125, softcap = 0;
  bool slope_per_sequence = false;
  int slices = 2;  // of a deterministic backward
  int gap = 0;     // elements between tokens
  uint32_t seed = 1;

  int heads() const { return kv_heads * group; }
};

struct Specs {
  KernelSpec prepare, main, finish;
};

inline constexpr int kPrepareRows = 64, kLightThreads = 256;

inline KernelSpec spec_named(const std::string& name, const std::string& params, int bytes,
                             const char* last, int offset, int threads) {
  KernelSpec spec;
  spec.kernel = name;
  spec.source = "attention/" + name + ".cuh";
  spec.params = params;
  spec.params_bytes = bytes;
  spec.last_field = last;
  spec.last_field_offset = offset;
  spec.threads = threads;
  return spec;
}

inline Specs specs_of(const Setup& s) {
  using lathe::AttentionBackwardFinishParams;
  using lathe::AttentionBackwardParams;
  using lathe::AttentionBackwardPrepareParams;
  const auto element = Constant::type("element", "Element",
                                      s.element == LATHE_BF16  ? Dtype::bf16
                                      : s.element == LATHE_F16 ? Dtype::f16
                                                               : Dtype::f32);
  const auto offsets = Constant::type("cu", "CuSeqlens", s.has("wide") ? Dtype::i64 : Dtype::i32);
  const auto packed = Constant::flag("packed", "kPacked", s.has("packed"));
  Specs specs;
  specs.prepare = spec_named("attention_backward_prepare", "AttentionBackwardPrepareParams",
                             sizeof(AttentionBackwardPrepareParams), "tiles",
                             offsetof(AttentionBackwardPrepareParams, tiles), kLightThreads);
  specs.prepare.smem = "AttentionBackwardPrepareSmem";
  specs.prepare.smem_bytes = kLightThreads / 8;
  specs.prepare.constants = {element,
                             offsets,
                             Constant::integer("value_width", "kValueWidth", s.value_width),
                             Constant::integer("m", "kTileM", kPrepareRows),
                             packed,
                             Constant::flag("sinks", "kSinks", s.has("sinks")),
                             Constant::flag("dlse", "kDlse", s.has("dlse"))};
  specs.main =
      spec_named("attention_backward", "AttentionBackwardParams", sizeof(AttentionBackwardParams),
                 "softcap", offsetof(AttentionBackwardParams, softcap), 32 * s.warps);
  specs.main.smem = "AttentionBackwardSmem";
  const bool split = s.element == LATHE_F32;  // in three planes; p is not exchanged
  specs.main.smem_bytes = (split ? 6 : 2) * (s.n * (s.width + s.value_width) +
                                             s.m * (s.stages * s.width + s.value_width) +
                                             (split ? 1 : s.width_warps) * s.m * s.n) +
                          8 * s.m + 128;
  specs.main.constants = {element,
                          offsets,
                          Constant::integer("width", "kWidth", s.width),
                          Constant::integer("value_width", "kValueWidth", s.value_width),
                          Constant::integer("m", "kTileM", s.m),
                          Constant::integer("n", "kTileN", s.n),
                          Constant::integer("stages", "kStages", s.stages),
                          Constant::integer("width_warps", "kWidthWarps", s.width_warps),
                          packed,
                          Constant::flag("local", "kLocal", s.has("local")),
                          Constant::flag("softcap", "kSoftcap", s.has("softcap")),
                          Constant::flag("alibi", "kAlibi", s.has("alibi")),
                          Constant::flag("deterministic", "kDeterministic", s.has("ordered")),
                          Constant::flag("heads_apart", "kHeadsApart", s.has("apart"))};
  specs.finish = spec_named("attention_backward_finish", "AttentionBackwardFinishParams",
                            sizeof(AttentionBackwardFinishParams), "reserved",
                            offsetof(AttentionBackwardFinishParams, reserved), kLightThreads);
  specs.finish.constants = {element};
  return specs;
}

struct Kernels {
  Specs specs;
  lathe::CompiledUnit prepare, main, finish;
};

// Each kernel is compiled once for all tests of the program.
Kernels kernels_of(const lathe::Compiler& compiler, const Setup& s, const std::string& arch);

inline double round_to(lathe_dtype dtype, double value) { return numbers::rounded(dtype, value); }

// Random input of the element type; padding rows hold NaN, which must reach nothing.
inline ref::Attention make_input(const Setup& s, const Call& c) {
  ref::Attention a;
  std::mt19937 random(c.seed);
  std::normal_distribution<double> normal;
  a.heads = c.heads(), a.kv_heads = c.kv_heads, a.head_dim = c.head_dim, a.value_dim = c.value_dim;
  a.packed = s.has("packed");
  a.scale = c.scale, a.softcap = s.has("softcap") ? c.softcap : 0;
  a.window_left = c.left, a.window_right = c.right;
  a.begin_q = a.begin_k = {0};
  for (const int n : c.rows) a.begin_q.push_back(a.begin_q.back() + n);
  for (const int n : c.keys) a.begin_k.push_back(a.begin_k.back() + n);
  const auto fill = [&](Array* x, int64_t tokens, int padding, int heads, int width) {
    const size_t row = static_cast<size_t>(heads) * width;
    x->resize(tokens * row);
    for (double& value : *x) value = round_to(s.element, normal(random));
    x->resize((tokens + padding) * row, std::nan(""));
  };
  fill(&a.q, a.begin_q.back(), c.padding_q, c.heads(), c.head_dim);
  fill(&a.k, a.begin_k.back(), c.padding_k, c.kv_heads, c.head_dim);
  fill(&a.v, a.begin_k.back(), c.padding_k, c.kv_heads, c.value_dim);
  fill(&a.dout, a.begin_q.back(), c.padding_q, c.heads(), c.value_dim);
  if (s.has("alibi")) {
    const size_t slopes = c.heads() * (c.slope_per_sequence ? c.rows.size() : 1);
    for (size_t i = 0; i < slopes; ++i) a.alibi_slopes.push_back(std::exp2(-1.0 - double(i)));
  }
  if (s.has("sinks")) {
    for (int h = 0; h < c.heads(); ++h) a.sinks.push_back(static_cast<float>(normal(random)));
    if (c.seed % 3 == 0) a.sinks[0] = -kInfinity;
  }
  if (s.has("dlse")) {
    a.dlse.resize(static_cast<size_t>(a.rows() * a.heads));
    for (double& value : a.dlse) value = static_cast<float>(normal(random));
  }
  return a;
}

// What a backward gives, as it lies in memory (the bits of elements), and as numbers.
struct Outcome {
  std::vector<uint32_t> dq, dk, dv;  // [token][head][width]
  std::vector<float> dsinks;
  sim::Counters counters;  // of the main kernel

  ref::AttentionBackward numbers(lathe_dtype dtype) const {
    const auto decoded = [dtype](const std::vector<uint32_t>& words) {
      Array values;
      for (const uint32_t word : words) {
        const uint64_t padded = word;
        values.push_back(numbers::decode(dtype, &padded));
      }
      return values;
    };
    return {decoded(dq), decoded(dk), decoded(dv), Array(dsinks.begin(), dsinks.end())};
  }
};

// dq, dk, dv within the bound of a plain computation in the element type and in its direction;
// dsinks within what the rounding of out costs.
void expect_gradients(const Setup& s, const ref::Attention& a, const ref::AttentionForward& forward,
                      const Outcome& outcome);

// Runs the three kernels. `out` and `lse` are those of the forward; out is rounded here.
class Launch {
 public:
  Launch(sim::test::Device& device, const Kernels& kernels, const Setup& s, const Call& c)
      : device_(device), kernels_(kernels), s_(s), c_(c) {}

  Outcome run(const ref::Attention& a, const ref::AttentionForward& forward);

 private:
  struct Placed {
    void* at = nullptr;
    long long batch = 0, token = 0, head = 0;
  };
  static void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
  static uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

  // A tensor of `tokens` rows, with NaN in the gaps; `seq` rows to a batch.
  Placed place(const Array* values, int64_t tokens, int heads, int width, int seq);
  std::vector<uint32_t> fetch(const Placed& from, int64_t tokens, int heads, int width) const;
  void* floats(const Array& values) {
    std::vector<float> narrow(values.begin(), values.end());
    narrow.resize(narrow.size() + 4);
    return pointer(device_.upload(narrow));
  }
  void* offsets(const std::vector<int64_t>& begin) {
    if (s_.has("wide")) return pointer(device_.upload(begin));
    return pointer(device_.upload(std::vector<int32_t>(begin.begin(), begin.end())));
  }
  template <class Params>
  sim::Counters launch(const KernelSpec& spec, const lathe::CompiledUnit& unit, int64_t blocks,
                       const Params& params);

  sim::test::Device& device_;
  const Kernels& kernels_;
  const Setup& s_;
  const Call& c_;
};

}  // namespace backward
