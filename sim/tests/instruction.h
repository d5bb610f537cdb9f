// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs one instruction over a table of operands: a kernel with a thread per row.
#pragma once

#include <bit>
#include <functional>

#include "sim/tests/kernel_run.h"

namespace sim::test {

// Letters name register types: h b16, r b32, d b64, f f32, g f64. There are three sources at most.
struct Instruction {
  std::string text;   // "add.s32 %d, %a, %b;" with %d, %a, %b, %c
  std::string types;  // of d, a, b, c: "rrr"
};
struct Row {
  uint64_t a = 0, b = 0, c = 0;
};

inline std::string instruction_kernel(const Instruction& i) {
  auto type = [](char letter) {
    return letter == 'h'   ? "b16"
           : letter == 'r' ? "b32"
           : letter == 'd' ? "b64"
           : letter == 'f' ? "f32"
                           : "f64";
  };
  std::string body;
  const char* const names[] = {"%d", "%a", "%b", "%c"};
  for (size_t k = 0; k < i.types.size(); ++k) {
    body += std::string(".reg .") + type(i.types[k]) + " " + names[k] + ";\n";
  }
  for (size_t k = 1; k < i.types.size(); ++k) {
    body += std::string("ld.global.") + type(i.types[k]) + " " + names[k] + ", [%rd2+" +
            std::to_string(8 * (k - 1)) + "];\n";
  }
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 rows, .param .u64 out, .param .u32 n) {
  .reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x;
  mad.lo.s32 %r1, %r3, %r2, %r1;
  ld.param.u32 %r4, [n];
  setp.ge.u32 %p, %r1, %r4;
  @%p ret;
  ld.param.u64 %rd1, [rows]; mad.wide.u32 %rd2, %r1, 24, %rd1;
)" + body +
         i.text + "\n  ld.param.u64 %rd3, [out]; mad.wide.u32 %rd4, %r1, 8, %rd3;\n  st.global." +
         type(i.types[0]) + " [%rd4], %d;\n  ret;\n}\n";
}

// Returns the results' bits, zero-extended.
inline std::vector<uint64_t> evaluate(const Instruction& i, const std::vector<Row>& rows) {
  Device device;
  device.settings.threads = 1;
  CAPTURE(i.text);
  device.load(instruction_kernel(i));
  const uint64_t out = device.upload(std::vector<uint64_t>(rows.size(), 0));
  const auto n = static_cast<uint32_t>(rows.size());
  const Outcome o = device.run("k", (n + 95) / 96, 96, device.upload(rows), out, n);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  for (const Finding& f : o.findings) REQUIRE(f.kind == "division_by_zero");
  return device.download<uint64_t>(out, rows.size());
}

inline std::vector<Row> product(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b,
                                const std::vector<uint64_t>& c = {0}) {
  std::vector<Row> rows;
  for (const uint64_t x : a) {
    for (const uint64_t y : b) {
      for (const uint64_t z : c) rows.push_back({x, y, z});
    }
  }
  return rows;
}

// Checks every row against a formula.
inline void check_rows(const Instruction& i, const std::vector<Row>& rows,
                       const std::function<uint64_t(const Row&)>& expected) {
  const auto result = evaluate(i, rows);
  int shown = 0;
  for (size_t k = 0; k < rows.size(); ++k) {
    const uint64_t want = expected(rows[k]);
    if (result[k] == want) continue;
    CAPTURE(i.text);
    CAPTURE(rows[k].a);
    CAPTURE(rows[k].b);
    CAPTURE(rows[k].c);
    CHECK(result[k] == want);
    if (++shown == 5) return;
  }
  CHECK(shown == 0);
}

inline float as_float(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline double as_double(uint64_t bits) { return std::bit_cast<double>(bits); }
inline uint64_t bits(float f) { return std::bit_cast<uint32_t>(f); }
inline uint64_t bits(double d) { return std::bit_cast<uint64_t>(d); }

}  // namespace sim::test
