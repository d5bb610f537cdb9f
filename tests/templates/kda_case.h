// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of the chunked KDA kernels share: configurations, random inputs of them, and their
// way to the simulator and back.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "codegen/base/text.h"
#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/kda_chunked.h"
#include "tests/numbers.h"
#include "tests/ref/kda.h"

namespace kda_case {

using lathe::Constant;
using lathe::Dtype;
using lathe::KernelSpec;

struct Setup {
  lathe_dtype element, gate, beta;
  int width, warps;
  std::string flags;
  bool has(const char* flag) const {
    return (" " + flags + " ").find(text(" ", flag, " ")) != std::string::npos;
  }

 private:
  template <class... T>
  static std::string text(const T&... parts) {
    return lathe::text(parts...);
  }
};

inline Dtype dtype_of(lathe_dtype dtype) {
  return dtype == LATHE_BF16 ? Dtype::bf16 : dtype == LATHE_F16 ? Dtype::f16 : Dtype::f32;
}

inline int block_bytes(const Setup& s) {
  const int planes = s.element == LATHE_F32 ? 3 : 1;
  const int bytes = planes * (3 * 32 * s.width + 2 * 512) + 4 * s.width + 3 * 64 + 16 * 4 * 24;
  return (bytes + 1023) / 1024 * 1024;
}

// The constants that all kernels of a configuration have in common.
inline std::vector<Constant> constants_of(const Setup& s) {
  return {
      Constant::type("element", "Element", dtype_of(s.element)),
      Constant::type("g", "GateElement", dtype_of(s.gate)),
      Constant::type("beta", "BetaElement", dtype_of(s.beta)),
      Constant::type("cu", "Offset", Dtype::i32),
      Constant::integer("width", "kWidth", s.width),
      Constant::integer("vector", "kVectorBytes", s.has("narrow") ? 8 : 16),
      Constant::integer("gate", "kGate",
                        s.has("gate_a")   ? 1
                        : s.has("gate_b") ? 2
                                          : 0),
      Constant::flag("A_log", "kAlog", s.has("factor")),
      Constant::flag("dt_bias", "kDtBias", s.has("bias")),
      Constant::flag("packed", "kPacked", s.has("packed")),
      Constant::flag("l2norm", "kL2Norm", s.has("l2norm")),
      Constant::flag("sigmoid", "kSigmoid", s.has("sigmoid")),
      Constant::flag("initial_state", "kInitialState", s.has("initial")),
      Constant::flag("state_v_first", "kStateVFirst", s.has("v_first")),
      Constant::flag("ranks", "kRanks", s.has("ranks")),
  };
}

inline KernelSpec scan_spec(const Setup& s, const char* kernel) {
  KernelSpec spec;
  spec.kernel = kernel;
  spec.source = lathe::text("kda/", kernel, ".cuh");
  spec.smem = "KdaScanSmem";
  const int values = 16 * s.warps;
  spec.smem_bytes =
      s.warps * block_bytes(s) +
      values * (s.element == LATHE_F32 ? 4 * (values + 4) : 2 * ((values + 63) / 64 * 64));
  spec.threads = 32 * s.warps;
  spec.constants = constants_of(s);
  return spec;
}

// Inputs rounded to their types.
inline ref::Kda make_case(const Setup& s, uint32_t seed, std::vector<int64_t> begin, int heads,
                          int ratio, int key_dim, int value_dim) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  ref::Kda a;
  a.heads = heads, a.value_heads = heads * ratio, a.key_dim = key_dim, a.value_dim = value_dim;
  a.begin = std::move(begin);
  a.scale = 1 / std::sqrt(static_cast<double>(key_dim));
  a.l2norm = s.has("l2norm"), a.gate = s.has("gate_a") || s.has("gate_b");
  a.lower_bound = s.has("gate_b") ? -5 : 0;
  a.sigmoid = s.has("sigmoid"), a.negative_eigenvalues = s.has("negative");
  a.state_v_first = s.has("v_first");
  a.chunk = 32;
  const int64_t rows = a.rows();
  const auto fill = [&](ref::Array& x, int64_t count, lathe_dtype dtype, auto make) {
    x.resize(static_cast<size_t>(count));
    for (double& value : x) value = numbers::rounded(dtype, make());
  };
  const double unit = a.l2norm ? 1 : 1 / std::sqrt(static_cast<double>(key_dim));
  fill(a.q, rows * heads * key_dim, s.element, [&] { return normal(random) * unit; });
  fill(a.k, rows * heads * key_dim, s.element, [&] { return normal(random) * unit; });
  fill(a.v, rows * a.value_heads * value_dim, s.element, [&] { return normal(random); });
  // Decays of all sizes: none, weak, strong, and as good as nothing left.
  fill(a.g, rows * a.value_heads * key_dim, s.gate, [&] {
    if (a.gate) return normal(random) * 3;
    const uint32_t kind = random() % 8;
    return kind == 0 ? 0.0 : kind == 1 ? -1000.0 : -std::exp(normal(random) * 2 - 2);
  });
  fill(a.beta, rows * a.value_heads, s.beta,
       [&] { return a.sigmoid ? normal(random) * 2 : 1 / (1 + std::exp(-2 * normal(random))); });
  if (s.has("factor")) {
    for (int64_t h = 0; h < a.value_heads; ++h) {
      a.A_log.push_back(std::log(static_cast<float>(1 + h)));
    }
  }
  if (s.has("bias")) {
    for (int64_t i = 0; i < a.value_heads * key_dim; ++i) {
      a.dt_bias.push_back(static_cast<float>(normal(random)));
    }
  }
  if (s.has("initial")) {
    fill(a.initial_state, a.sequences() * a.value_heads * key_dim * value_dim, LATHE_F32,
         [&] { return normal(random); });
  }
  return a;
}

inline std::vector<unsigned char> encode(lathe_dtype dtype, const ref::Array& values) {
  const size_t each = numbers::bytes_of(dtype);
  std::vector<unsigned char> bytes(values.size() * each + 64);
  for (size_t i = 0; i < values.size(); ++i) {
    unsigned char word[8] = {};
    numbers::encode(dtype, values[i], word);
    std::copy(word, word + each, bytes.begin() + static_cast<std::ptrdiff_t>(i * each));
  }
  return bytes;
}

inline void* at(uint64_t address) { return reinterpret_cast<void*>(address); }
inline void* put(sim::test::Device& device, lathe_dtype dtype, const ref::Array& values) {
  return at(device.upload(encode(dtype, values)));
}
inline ref::Array take(const sim::test::Device& device, lathe_dtype dtype, const void* from,
                       size_t count) {
  const size_t each = numbers::bytes_of(dtype);
  const auto bytes =
      device.download<unsigned char>(reinterpret_cast<uint64_t>(from), count * each + 8);
  ref::Array values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(numbers::decode(dtype, bytes.data() + i * each));
  }
  return values;
}

inline lathe::KdaInputs inputs_of(sim::test::Device& device, const Setup& s, const ref::Kda& a) {
  lathe::KdaInputs in = {};
  in.q = put(device, s.element, a.q), in.k = put(device, s.element, a.k),
  in.v = put(device, s.element, a.v);
  in.g = put(device, s.gate, a.g), in.beta = put(device, s.beta, a.beta);
  in.A_log = put(device, LATHE_F32, a.A_log), in.dt_bias = put(device, LATHE_F32, a.dt_bias);
  in.cu_seqlens = at(device.upload(std::vector<int>(a.begin.begin(), a.begin.end())));
  const bool packed = s.has("packed");
  const int64_t tokens = packed ? a.rows() : a.begin[1];
  in.q_head_stride = in.k_head_stride = a.key_dim;
  in.q_token_stride = in.k_token_stride = a.heads * a.key_dim;
  in.g_head_stride = a.key_dim, in.g_token_stride = a.value_heads * a.key_dim;
  in.v_head_stride = a.value_dim;
  in.v_token_stride = a.value_heads * a.value_dim;
  in.beta_head_stride = 1, in.beta_token_stride = a.value_heads;
  in.q_batch_stride = in.k_batch_stride = tokens * in.q_token_stride;
  in.g_batch_stride = tokens * in.g_token_stride, in.beta_batch_stride = tokens * a.value_heads;
  in.v_batch_stride = tokens * in.v_token_stride;
  in.sequences = static_cast<int>(a.sequences()), in.heads = static_cast<int>(a.heads);
  in.value_heads = static_cast<int>(a.value_heads), in.tokens = static_cast<int>(tokens);
  in.key_dim = static_cast<int>(a.key_dim), in.value_dim = static_cast<int>(a.value_dim);
  in.value_tiles = (in.value_dim + 16 * s.warps - 1) / (16 * s.warps);
  in.segments = 1;
  in.beta_factor = s.has("negative") ? 2.0f : 1.0f;
  in.scale = static_cast<float>(a.scale), in.lower_bound = static_cast<float>(a.lower_bound);

  return in;
}

// A shape that a configuration allows.
inline ref::Kda random_case(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  std::vector<int64_t> begin = {0};
  const int length = one_of({1, 15, 17, 64, 130});
  for (int n = one_of({1, 2, 4}); n > 0; --n) {
    begin.push_back(begin.back() + (s.has("packed") ? one_of({0, 1, 16, 31, 70, 150}) : length));
  }
  const int step = s.has("narrow") || s.element == LATHE_F32 ? 4 : 8;
  return make_case(s, seed, begin, one_of({1, 2}), s.has("single") ? 1 : one_of({1, 2}),
                   s.width - step * one_of({0, 1, 3}), 16 * s.warps + step * one_of({-3, 0, 1}));
}

// sqrt(mean (a - r)^2) / sqrt(mean r^2); not a number if a is not where r is.
inline double rms(const ref::Array& a, const ref::Array& r) {
  REQUIRE(a.size() == r.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    error += (a[i] - r[i]) * (a[i] - r[i]);
    size += r[i] * r[i];
  }
  return size == 0 ? std::sqrt(error) : std::sqrt(error / size);
}

}  // namespace kda_case
