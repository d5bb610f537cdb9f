// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file models mma.sync by its definition: where each fragment element lies, the product by
// plain loops, and a kernel that runs one instruction.
#pragma once

#include "sim/tests/tensor_model.h"

namespace sim::test {

struct Shape {
  int m, k, width;  // width: bits of an element
  Layout a, b;
};

// n is 8 everywhere. Accumulators: see accumulator(). A register holds `e` elements that follow one
// another in k; the registers of A alternate between the halves of its rows.
Shape find_shape(int m, int k, int width) {
  const int e = width < 32 ? 32 / width : 1, halves = m / 8;
  return {m, k, width,
          [=](int g, int q, int i) {
            return Place{g + 8 * (i / e % halves), e * q + i % e + 4 * e * (i / e / halves)};
          },
          [=](int g, int q, int i) {
            return Place{e * q + i % e + 4 * e * (i / e), g};
          }};
}

Place accumulator(int g, int q, int i) { return {g + 8 * (i / 2), 2 * q + i % 2}; }

struct Case {
  int m, k;
  std::string sum, a, b, extra;  // extra: ".satfinite", ".xor.popc"
};

inline std::string opcode(const Case& c) {
  const bool logic = c.extra.find("popc") != std::string::npos;
  const std::string shape =
      "mma.sync.aligned.m" + std::to_string(c.m) + "n8k" + std::to_string(c.k) + ".row.col";
  return shape + (logic ? "" : c.extra) + "." + c.sum + "." + c.a + "." + c.b + "." + c.sum +
         (logic ? c.extra : "");
}

// Each operand's registers lie one lane after the other in its buffer.
inline std::string mma_kernel(const std::string& op, const std::vector<int>& counts, bool wide) {
  const std::string type = wide ? "f64" : "b32", bytes = wide ? "8" : "4";
  std::string s = R"(.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {
  .reg .b32 %t, %o; .reg .b64 %p, %q;
  mov.u32 %t, %tid.x;
)";
  const std::string names = "abcd";
  std::string braces[4];
  for (int k = 0; k < 4; ++k) {
    const std::string n(1, names[k]), count = std::to_string(counts[k]);
    s += "  .reg ." + type + " %" + n + "<" + count + ">;\n  ld.param.u64 %p, [" + n +
         "];\n  mul.lo.u32 %o, %t, " + std::to_string(counts[k] * (wide ? 8 : 4)) +
         ";\n  cvt.u64.u32 %q, %o;\n  add.u64 %p, %p, %q;\n";
    for (int r = 0; r < counts[k]; ++r) {
      const std::string reg = "%" + n + std::to_string(r);
      braces[k] += (r ? ", " : "") + reg;
      if (k < 3) {
        s += "  ld.global." + type + " " + reg + ", [%p+" + std::to_string(r * (wide ? 8 : 4)) +
             "];\n";
      }
    }
  }
  s += "  " + op + " {" + braces[3] + "}, {" + braces[0] + "}, {" + braces[1] + "}, {" + braces[2] +
       "};\n";
  for (int r = 0; r < counts[3]; ++r) {
    s += "  st.global." + type + " [%p+" + std::to_string(r * (wide ? 8 : 4)) + "], %d" +
         std::to_string(r) + ";\n";
  }
  return s + "  ret;\n}\n";
}

inline std::vector<uint32_t> narrow(const std::vector<uint64_t>& words) {
  return {words.begin(), words.end()};
}

struct Problem {
  Matrix a, b, c;
};

Problem random_problem(const Case& c, std::mt19937& rng) {
  Problem p{Matrix(c.a, c.m, c.k), Matrix(c.b, c.k, 8), Matrix(c.sum, c.m, 8)};
  p.a.fill(rng);
  p.b.fill(rng);
  p.c.fill(rng);
  return p;
}

// Returns D as the simulator computes it.
Matrix execute(const Case& c, const Problem& p, TensorSum mode = TensorSum::exact) {
  const Shape s = find_shape(c.m, c.k, bits_of_type(c.a));
  const int width = bits_of_type(c.a), cell = width == 64 ? 64 : 32;
  const int na = c.m * c.k / 32, nb = 8 * c.k / 32, nd = c.m * 8 / 32;
  const int rd = nd * bits_of_type(c.sum) / (cell == 64 ? 64 : 32);
  Device device;
  device.settings.threads = 1;
  device.settings.tensor_sum = mode;
  CAPTURE(opcode(c));
  device.load(mma_kernel(opcode(c), {na * width / cell, nb * width / cell, rd, rd}, cell == 64));
  auto put = [&](const std::vector<uint64_t>& words) {
    return cell == 64 ? device.upload(words) : device.upload(narrow(words));
  };
  const auto cd = to_fragment(p.c, accumulator, nd);
  const uint64_t d = put(std::vector<uint64_t>(cd.size(), 0));
  const Outcome o = device.run("k", 1, 32, put(to_fragment(p.a, s.a, na)),
                               put(to_fragment(p.b, s.b, nb)), put(cd), d);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  REQUIRE(o.findings.empty());
  CHECK(o.counters.tensor_ops == 2ull * c.m * 8 * c.k);
  CHECK(o.counters.by_class.at("tensor") == 1);
  std::vector<uint64_t> words;
  if (cell == 64) {
    words = device.download<uint64_t>(d, cd.size());
  } else {
    for (const uint32_t w : device.download<uint32_t>(d, cd.size())) words.push_back(w);
  }
  return from_fragment(c.sum, c.m, 8, words, accumulator, nd);
}

inline double expected(const Case& c, const Problem& p, int row, int col) {
  double sum = 0;
  for (int k = 0; k < c.k; ++k) {
    const double x = p.a.value(row, k), y = p.b.value(k, col);
    sum += c.extra == ".xor.popc" ? static_cast<double>(x != y) : x * y;
  }
  sum += p.c.value(row, col);
  if (c.sum == "f32") return nearest(sum, 23);
  if (c.sum == "f16") return nearest(sum, 10);
  if (c.extra == ".satfinite") return std::min(2147483647.0, std::max(-2147483648.0, sum));
  if (c.sum == "s32") return static_cast<int32_t>(static_cast<int64_t>(sum));
  return sum;
}

inline void check(const Case& c, uint32_t seed) {
  std::mt19937 rng(seed);
  const Problem p = random_problem(c, rng);
  const Matrix d = execute(c, p);
  int wrong = 0;
  for (int row = 0; row < c.m; ++row) {
    for (int col = 0; col < 8; ++col) wrong += d.value(row, col) != expected(c, p, row, col);
  }
  INFO(opcode(c));
  CHECK(wrong == 0);
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases = {
      {16, 16, "f32", "f16", "f16", ""},   {16, 8, "f32", "f16", "f16", ""},
      {16, 16, "f16", "f16", "f16", ""},   {16, 8, "f16", "f16", "f16", ""},
      {16, 16, "f32", "bf16", "bf16", ""}, {16, 8, "f32", "bf16", "bf16", ""},
      {16, 8, "f32", "tf32", "tf32", ""},  {16, 4, "f32", "tf32", "tf32", ""},
      {8, 4, "f64", "f64", "f64", ""},     {16, 4, "f64", "f64", "f64", ""},
      {16, 8, "f64", "f64", "f64", ""},    {16, 16, "f64", "f64", "f64", ""}};
  for (const char* a : {"e4m3", "e5m2"}) {
    for (const char* b : {"e4m3", "e5m2"}) {
      for (const char* sum : {"f32", "f16"}) {
        for (const int k : {16, 32}) cases.push_back({16, k, sum, a, b, ""});
      }
    }
  }
  for (const char* sign_a : {"s", "u"}) {
    for (const char* sign_b : {"s", "u"}) {
      for (const char* extra : {"", ".satfinite"}) {
        for (const int width : {4, 8}) {
          const std::string w = std::to_string(width), a = sign_a + w, b = sign_b + w;
          cases.push_back({16, 256 / width, "s32", a, b, extra});
          cases.push_back({16, 128 / width, "s32", a, b, extra});
          cases.push_back({8, 128 / width, "s32", a, b, extra});
        }
      }
    }
  }
  for (const char* extra : {".xor.popc", ".and.popc"}) {
    for (const int k : {128, 256}) cases.push_back({16, k, "s32", "b1", "b1", extra});
    cases.push_back({8, 128, "s32", "b1", "b1", extra});
  }
  return cases;
}

}  // namespace sim::test
