// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover ldmatrix, stmatrix and movmatrix against the manual's formulas, and what the
// checkers say.
#include "sim/tests/tensor_model.h"

namespace sim::test {
namespace {

// Rows lie at `stride` bytes from one another; lane l's address is row l of them. The half at row
// r (0..31), column c of the shared buffer is 256 r + c before a load.
std::string matrix_kernel(const std::string& opcode, int count, int stride) {
  const bool store = opcode.substr(0, 2) == "st";
  std::string regs;
  for (int k = 0; k < count; ++k) regs += (k ? ", %r" : "%r") + std::to_string(k);
  std::string s = R"(.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b32 %r<4>, %t, %a, %v, %n; .reg .b64 %i, %o, %q; .reg .pred %p;
  .shared .align 128 .b8 s[8192];
  ld.param.u64 %i, [in]; ld.param.u64 %o, [out];
  mov.u32 %t, %tid.x; mov.u32 %n, 0;
  mov.u32 %a, s; mad.lo.u32 %a, %t, STRIDE, %a;
)";
  const size_t at = s.find("STRIDE");
  s.replace(at, 6, std::to_string(stride));
  if (store) {
    s += "  mul.wide.u32 %q, %t, 16; add.u64 %i, %i, %q;\n";
    for (int k = 0; k < count; ++k) {
      const std::string n = std::to_string(k);
      s += "  ld.global.u32 %r" + n + ", [%i+" + std::to_string(4 * k) + "];\n";
    }
    s += "  " + opcode + " [%a], {" + regs + "};\n  bar.warp.sync -1;\n";
    // Each lane copies its own row out, if it was written.
    s += "  mul.wide.u32 %q, %t, 16; add.u64 %o, %o, %q;\n  setp.lt.u32 %p, %t, " +
         std::to_string(8 * count) + ";\n";
    for (int k = 0; k < 4; ++k) {
      const std::string n = std::to_string(4 * k);
      s += "  @%p ld.shared.u32 %v, [%a+" + n + "];\n  @%p st.global.u32 [%o+" + n + "], %v;\n";
    }
  } else {
    s += "  mul.wide.u32 %q, %t, 16; add.u64 %i, %i, %q; add.u64 %o, %o, %q;\n";
    for (int k = 0; k < 4; ++k) {
      const std::string n = std::to_string(4 * k);
      s += "  ld.global.u32 %v, [%i+" + n + "];\n  st.shared.u32 [%a+" + n + "], %v;\n";
    }
    s += "  bar.warp.sync -1;\n  " + opcode + " {" + regs + "}, [%a];\n";
    for (int k = 0; k < count; ++k) {
      const std::string n = std::to_string(k);
      s += "  st.global.u32 [%o+" + std::to_string(4 * k) + "], %r" + n + ";\n";
    }
  }
  return s + "  ret;\n}\n";
}

// 32 rows of 8 halves, or 32 lanes of 4 registers of 2 halves.
std::vector<uint16_t> numbered() {
  std::vector<uint16_t> v(256);
  for (int r = 0; r < 32; ++r) {
    for (int c = 0; c < 8; ++c) v[r * 8 + c] = static_cast<uint16_t>(256 * r + c + 1);
  }
  return v;
}

struct Result {
  std::vector<uint16_t> out;
  Outcome outcome;
};
Result run_matrix(const std::string& opcode, int count, int stride) {
  Device device;
  device.settings.threads = 1;
  device.load(matrix_kernel(opcode, count, stride));
  const uint64_t out = device.upload(std::vector<uint16_t>(256, 0));
  const Outcome o = device.run("k", 1, 32, device.upload(numbered()), out);
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  return {device.download<uint16_t>(out, 256), o};
}

// Returns the half that register j of lane t holds, low or high: row of matrix j and column.
Place place(int t, int high, bool trans) {
  const int g = t / 4, q = t % 4;
  return trans ? Place{2 * q + high, g} : Place{g, 2 * q + high};
}

TEST_CASE("ldmatrix and stmatrix: every count, plain and transposed") {
  const auto in = numbered();
  for (const int count : {1, 2, 4}) {
    for (const bool trans : {false, true}) {
      const std::string x =
          ".sync.aligned.m8n8.x" + std::to_string(count) + (trans ? ".trans" : "") + ".shared.b16";
      const auto loaded = run_matrix("ldmatrix" + x, count, 48).out;
      const auto stored = run_matrix("stmatrix" + x, count, 80).out;
      int wrong = 0;
      for (int j = 0; j < count; ++j) {
        for (int t = 0; t < 32; ++t) {
          for (int high = 0; high < 2; ++high) {
            const Place p = place(t, high, trans);
            const int at_row = (8 * j + p.row) * 8 + p.col, at_lane = t * 8 + 2 * j + high;
            wrong += loaded[at_lane] != in[at_row];
            wrong += stored[at_row] != in[at_lane];
          }
        }
      }
      INFO(x);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("ldmatrix: worked places") {
  // x4, lane 22, register 1: row 5 of matrix 1, whose address lane 13 has, bytes 8 to 11.
  const auto plain = run_matrix("ldmatrix.sync.aligned.x4.m8n8.shared::cta.b16", 4, 16).out;
  CHECK(plain[22 * 8 + 2] == 256 * 13 + 4 + 1);
  CHECK(plain[22 * 8 + 3] == 256 * 13 + 5 + 1);
  // Transposed: rows 4 and 5 of matrix 1, bytes 10 and 11 of each.
  const auto trans = run_matrix("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 4, 16).out;
  CHECK(trans[22 * 8 + 2] == 256 * 12 + 5 + 1);
  CHECK(trans[22 * 8 + 3] == 256 * 13 + 5 + 1);
}

TEST_CASE("ldmatrix: requests, bytes, bank conflicts") {
  const std::string op = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
  // Rows of 16 bytes in a line touch every bank once; rows 128 bytes apart fall on four banks.
  const auto dense = run_matrix(op, 4, 16).outcome.counters.shared_load;
  CHECK(dense.requests == 1);
  CHECK(dense.bytes == 512);
  CHECK(dense.conflicts == 0);
  CHECK(run_matrix(op, 4, 128).outcome.counters.shared_load.conflicts == 28);
  CHECK(run_matrix(op, 4, 144).outcome.counters.shared_load.conflicts == 0);
  const auto one = run_matrix("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 1, 128).outcome.counters;
  CHECK(one.shared_load.bytes == 128);
  CHECK(one.shared_load.conflicts == 7);
}

TEST_CASE("movmatrix transposes") {
  Device device;
  device.load(unit(R"(.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b32 %t, %v, %d; .reg .b64 %i, %o, %q;
  ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x;
  mul.wide.u32 %q, %t, 4; add.u64 %i, %i, %q; add.u64 %o, %o, %q;
  ld.global.u32 %v, [%i];
  movmatrix.sync.aligned.m8n8.trans.b16 %d, %v;
  st.global.u32 [%o], %d;
  ret;
}
)",
                   "sm_80"));
  std::vector<uint16_t> m(64);
  for (int k = 0; k < 64; ++k) m[k] = static_cast<uint16_t>(100 + k);
  const uint64_t out = device.upload(std::vector<uint16_t>(64, 0));
  CHECK(device.run("k", 1, 32, device.upload(m), out).error == 0);
  const auto t = device.download<uint16_t>(out, 64);
  int wrong = 0;
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < 8; ++c) wrong += t[r * 8 + c] != m[c * 8 + r];
  }
  CHECK(wrong == 0);
}

// The checkers see the bytes of a row, each time.
std::string one_row(const std::string& before, const std::string& op) {
  return R"(.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 unused) {
  .reg .b32 %r<4>, %t, %a, %v; .reg .pred %p;
  .shared .align 128 .b8 s[512];
  mov.u32 %t, %tid.x; mov.u32 %a, s; mov.u32 %v, 5; mov.u32 %r0, %v; mov.u32 %r1, %v;
  mad.lo.u32 %a, %t, 16, %a;
)" + before +
         "\n  " + op + "\n  ret;\n}\n";
}

TEST_CASE("ldmatrix: bounds, alignment, undefined bytes, lanes that do not matter") {
  auto run_one = [](const std::string& before, const std::string& op, uint32_t threads = 32) {
    Device device;
    device.settings.threads = 1;
    device.load(one_row(before, op));
    return device.run("k", 1, threads, 0u);
  };
  const std::string fill = "st.shared.v4.u32 [%a], {%v, %v, %v, %v}; bar.warp.sync -1;\n";
  const std::string x1 = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%a];";
  const std::string x2 = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%a];";
  CHECK(run_one(fill, x1).findings.empty());
  const Outcome undefined = run_one("", x1);
  CHECK(undefined.error == 0);
  REQUIRE(undefined.findings.size() == 1);
  CHECK(undefined.findings[0].kind == "uninitialized");
  const Outcome misaligned = run_one(fill + "add.u32 %a, %a, 8;", x1);
  CHECK(misaligned.error == 716);
  // Lane 8 and up have no say in x1, lane 16 and up none in x2.
  const std::string wild = "setp.ge.u32 %p, %t, 8; @%p mov.u32 %a, 0x7FFFFFF1;";
  CHECK(run_one(fill + wild, x1).findings.empty());
  const Outcome outside = run_one(fill + "setp.eq.u32 %p, %t, 9; @%p mov.u32 %a, 0x7FFFFFF0;", x2);
  CHECK(outside.error == 700);
  REQUIRE(outside.findings.size() == 1);
  CHECK(outside.findings[0].thread[0] == 9);
  CHECK(run_one(fill + wild, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%a], {%r0, %r1};").error ==
        700);
  CHECK(run_one("", x1, 24).findings.at(0).kind == "partial_warp");
  const Outcome half = run_one(fill + "setp.lt.u32 %p, %t, 16;", "@%p " + x1);
  CHECK(half.error == 719);
  CHECK(half.findings.at(0).kind == "partial_warp");  // the others have left
}

TEST_CASE("stmatrix: rows count for races") {
  Device device;
  device.settings.threads = 1;
  device.load(one_row("and.b32 %t, %t, 31; mov.u32 %a, s; mad.lo.u32 %a, %t, 16, %a;",
                      "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%a], {%r0};"));
  const Outcome o = device.run("k", 1, 64, 0u);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "race");
}

TEST_CASE("matrix forms that do not exist are refused") {
  for (const char* op :
       {"ldmatrix.sync.aligned.m8n8.x3.shared.b16", "ldmatrix.sync.aligned.m8n16.x1.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b8", "ldmatrix.sync.aligned.m8n8.shared.b16",
        "ldmatrix.m8n8.x1.shared.b16"}) {
    std::string log;
    CAPTURE(op);
    CHECK(Module::parse(matrix_kernel(op, 1, 16), &log) == nullptr);
    CHECK(log.find("unsupported") != std::string::npos);
  }
}

}  // namespace
}  // namespace sim::test
