// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run matrices.cu: what nvcuda::wmma becomes, in every type, shape and layout that the
// header has, is the product in double.
#include "sim/tests/programs/program.h"
#include "sim/tests/wmma_model.h"

namespace sim::test {
namespace {

struct Case {
  std::string name, a, c, d;  // types
  int m = 0, n = 0, k = 0;
  std::string layouts;  // of a, b, and of c and d: r or c
  bool saturates = false;
};

// A name is a_c_d_MxNxK_layouts.
Case case_of(const std::string& name) {
  std::vector<std::string> parts;
  std::stringstream in(name);
  for (std::string one; std::getline(in, one, '_');) parts.push_back(one);
  REQUIRE(parts.size() == 5);
  Case c{name, parts[0], parts[1], parts[2], 0, 0, 0, parts[4], parts[2] == "sat"};
  if (c.d == "sat" || c.d == "xor" || c.d == "and") c.d = "s32";
  REQUIRE(std::sscanf(parts[3].c_str(), "%dx%dx%d", &c.m, &c.n, &c.k) == 3);
  return c;
}

std::vector<Case> cases_in(const std::string& ptx) {
  std::vector<Case> all;
  const std::string entry = ".entry ";
  for (size_t at = ptx.find(entry); at != std::string::npos; at = ptx.find(entry, at + 1)) {
    const size_t begin = at + entry.size();
    all.push_back(case_of(ptx.substr(begin, ptx.find('(', begin) - begin)));
  }
  return all;
}

Stored stored(const std::string& type, int rows, int cols, char layout, int gap) {
  Stored s{Matrix(type, rows, cols), layout == 'c', 0};
  s.stride = (s.columns ? rows : cols) + gap * 128 / bits_of_type(type);
  return s;
}

double expected(const Case& c, const Stored& a, const Stored& b, const Stored& x, int row,
                int col) {
  double sum = 2 * x.values.value(row, col);
  for (int k = 0; k < c.k; ++k) {
    const double p = a.values.value(row, k), q = b.values.value(k, col);
    sum += c.name.find("xor") != std::string::npos ? static_cast<double>(p != q) : p * q;
  }
  if (c.d == "f32") return nearest(sum, 23);
  if (c.d == "f16") return nearest(sum, 10);
  if (c.saturates) return std::min(2147483647.0, std::max(-2147483648.0, sum));
  return sum;
}

struct Lines {
  int of[3];
};

void check_case(Device& device, const Case& c, int gap, std::mt19937& rng) {
  INFO(c.name);
  Stored a = stored(c.a, c.m, c.k, c.layouts[0], gap), b = stored(c.a, c.k, c.n, c.layouts[1], gap);
  // One number is the stride of both c and d: a multiple of 16 bytes of either.
  Stored x = stored(c.c, c.m, c.n, c.layouts[2], 2 * gap), d{Matrix(c.d, c.m, c.n), x.columns, 0};
  d.stride = x.stride;
  a.values.fill(rng);
  b.values.fill(rng);
  x.values.fill(rng);
  if (c.saturates) {  // doubled, they are one step from the ends
    for (uint64_t& v : x.values.bits) v = rng() % 2 ? 0x3FFFFFFFu : 0xC0000000u;
  }
  const size_t bytes = d.bytes(bits_of_type(c.d));
  const uint64_t out = device.upload(std::vector<uint8_t>(bytes, 0xEE));
  const Outcome o =
      device.run(c.name, 1, 32, device.upload(to_memory(a)), device.upload(to_memory(b)),
                 device.upload(to_memory(x)), out, Lines{{a.stride, b.stride, d.stride}});
  if (!check_clean(o)) return;
  const Matrix found = from_memory(device.download<uint8_t>(out, bytes), d);
  int wrong = 0;
  for (int row = 0; row < c.m; ++row) {
    for (int col = 0; col < c.n; ++col) {
      wrong += found.value(row, col) != expected(c, a, b, x, row, col);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("nvcuda::wmma in every type, shape and layout is the product in double") {
  std::mt19937 rng(5);
  for (const std::string arch : {"sm_80", "sm_90a"}) {
    const std::string ptx = compile_program("matrices.cu", arch, "mma.h");
    if (ptx.empty()) return;
    Device device(arch);
    device.settings.check |= kRegcheck;
    device.load(ptx);
    const auto cases = cases_in(ptx);
    CHECK(cases.size() == 128);
    for (const Case& c : cases) {
      CAPTURE(arch);
      for (const int gap : {0, 1}) check_case(device, c, gap, rng);
    }
  }
}

}  // namespace sim::test
