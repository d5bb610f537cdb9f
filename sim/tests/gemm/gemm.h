// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file compiles, runs and compares the matrix products of hopper_gemm.cuh and ampere_gemm.cuh.
// Factors are small integers, so that every sum is exact and the direct product has the same bits.
#pragma once

#include <fstream>
#include <random>
#include <sstream>

#include "sim/exec/tensor_map.h"
#include "sim/tests/kernel_run.h"
#include "sim/tests/nvrtc.h"

namespace sim::test {

// Returns the PTX of a file in this folder; empty without NVRTC.
inline std::string compile_gemm(const std::string& file, const std::string& arch) {
  static Nvrtc nvrtc;
  if (!nvrtc.available()) {
    MESSAGE("skipped: libnvrtc.so cannot be opened");
    return "";
  }
  std::ifstream in(std::string(SIM_GEMM_SOURCES) + "/" + file);
  REQUIRE(in.good());
  std::stringstream text;
  text << in.rdbuf();
  std::string log;
  const std::string ptx = nvrtc.compile(text.str(), arch, &log);
  INFO(log);
  REQUIRE(!ptx.empty());
  return ptx;
}

struct Matrix {
  uint32_t rows = 0, columns = 0;
  std::vector<int> values;
  int at(uint32_t r, uint32_t c) const { return values[static_cast<size_t>(r) * columns + c]; }
};

inline Matrix random_matrix(uint32_t rows, uint32_t columns, uint32_t seed, int largest) {
  Matrix m{rows, columns, std::vector<int>(static_cast<size_t>(rows) * columns)};
  std::mt19937 random(seed);
  const auto span = static_cast<uint32_t>(2 * largest + 1);
  for (int& v : m.values) v = static_cast<int>(random() % span) - largest;
  return m;
}

// Converts exactly for integers of up to eight bits.
inline uint16_t bfloat16_of(int value) {
  const auto f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}

inline std::vector<uint16_t> bfloat16_of(const Matrix& m) {
  std::vector<uint16_t> out;
  for (const int v : m.values) out.push_back(bfloat16_of(v));
  return out;
}

struct Problem {
  Matrix a, b, d;  // d = a * b'
};

inline Problem make_problem(uint32_t m, uint32_t n, uint32_t k, int largest) {
  Problem p{random_matrix(m, k, 1, largest), random_matrix(n, k, 2, largest), {}};
  p.d = Matrix{m, n, std::vector<int>(static_cast<size_t>(m) * n)};
  for (uint32_t r = 0; r < m; ++r) {
    for (uint32_t c = 0; c < n; ++c) {
      int sum = 0;
      const int* x = &p.a.values[static_cast<size_t>(r) * k];
      const int* y = &p.b.values[static_cast<size_t>(c) * k];
      for (uint32_t j = 0; j < k; ++j) sum += x[j] * y[j];
      p.d.values[static_cast<size_t>(r) * n + c] = sum;
    }
  }
  return p;
}

struct GemmRun {
  Outcome outcome;
  size_t wrong = 0;  // elements of D
};

struct TensorMapBytes {
  uint8_t bytes[kTensorMapBytes];
};

// Maps rows of bfloat16 in boxes of 64 columns, swizzled by 128 bytes.
inline TensorMapBytes map_of(uint64_t base, uint32_t rows, uint32_t columns, uint32_t box_rows) {
  TensorMapView view;
  view.dtype = 9;
  view.rank = 2;
  view.swizzle = 3;
  view.element_bytes = 2;
  view.base = base;
  view.dims[0] = columns;
  view.dims[1] = rows;
  view.strides[0] = 2;
  view.strides[1] = columns * 2ull;
  view.box[0] = 64;
  view.box[1] = box_rows;
  REQUIRE(tensor_map_fault(view) == "");
  TensorMapBytes map;
  encode_tensor_map(view, map.bytes);
  return map;
}

inline GemmRun run_hopper(const std::string& ptx, const Problem& p, const Settings& settings,
                          uint32_t clusters = 1) {
  constexpr uint32_t kTile = 128, kTileK = 64;
  Device device("sm_90a");
  device.settings = settings;
  device.cluster = 2;
  device.dynamic_shared = 4 * 32768 + 2 * 16384 + 64;
  device.load(ptx);
  const uint32_t m = p.a.rows, n = p.b.rows, k = p.a.columns;
  const uint64_t a = device.upload(bfloat16_of(p.a)), b = device.upload(bfloat16_of(p.b));
  const uint64_t d = device.buffer(uint64_t{m} * n * 2);
  const uint32_t tiles_n = (n + kTile - 1) / kTile, tiles_k = (k + kTileK - 1) / kTileK;
  const uint32_t count = (m + 2 * kTile - 1) / (2 * kTile) * tiles_n;
  GemmRun run;
  run.outcome = device.run("gemm", 2 * clusters, 384, map_of(a, m, k, kTile), map_of(b, n, k, 64),
                           map_of(d, m, n, 64), tiles_n, tiles_k, count);
  const auto got = device.download<uint16_t>(d, size_t{m} * n);
  for (size_t at = 0; at < got.size(); ++at) run.wrong += got[at] != bfloat16_of(p.d.values[at]);
  return run;
}

inline GemmRun run_ampere(const std::string& ptx, const Problem& p, const Settings& settings) {
  constexpr uint32_t kTile = 64;
  Device device("sm_80");
  device.settings = settings;
  device.load(ptx);
  const uint32_t m = p.a.rows, n = p.b.rows, k = p.a.columns;
  const uint64_t a = device.upload(bfloat16_of(p.a)), b = device.upload(bfloat16_of(p.b));
  const uint64_t d = device.buffer(uint64_t{m} * n * 4);
  GemmRun run;
  run.outcome = device.run("gemm", m / kTile * (n / kTile), 128, a, b, d, n, k);
  const auto got = device.download<float>(d, size_t{m} * n);
  for (size_t at = 0; at < got.size(); ++at) {
    run.wrong += got[at] != static_cast<float>(p.d.values[at]);
  }
  return run;
}

}  // namespace sim::test
