// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover wmma: matrices go from memory through fragments, products and back, in every
// shape, type and layout, and are compared with the product in double.
#include <tuple>

#include "sim/tests/wmma_model.h"

namespace sim::test {
namespace {

struct WmmaCase {
  int m, n, k;
  std::string type, c, d;  // of the factors and of the sums
  int a_registers, b_registers;
  std::string extra;  // "satfinite", or the operation on bits

  int sum_registers(const std::string& sum) const {
    const int bits = sum == "f16" ? 16 : 32;
    return sum == "f64" ? m * n / 32 : m * n * bits / 1024;
  }
};

std::vector<WmmaCase> wmma_cases() {
  std::vector<WmmaCase> all;
  const struct {
    int m, n, a, b;  // registers of bf16's and of bytes' fragments are a and b times 1/16, 1/32
  } shapes[] = {{16, 16, 4, 4}, {8, 32, 2, 8}, {32, 8, 8, 2}};
  for (const auto& s : shapes) {
    for (const char* c : {"f16", "f32"}) {
      for (const char* d : {"f16", "f32"}) all.push_back({s.m, s.n, 16, "f16", c, d, 8, 8, ""});
    }
    all.push_back({s.m, s.n, 16, "bf16", "f32", "f32", s.a, s.b, ""});
    for (const char* t : {"s8", "u8"}) {
      all.push_back({s.m, s.n, 16, t, "s32", "s32", s.a / 2, s.b / 2, ""});
      all.push_back({s.m, s.n, 16, t, "s32", "s32", s.a / 2, s.b / 2, "satfinite"});
    }
  }
  all.push_back({16, 16, 8, "tf32", "f32", "f32", 4, 4, ""});
  all.push_back({8, 8, 4, "f64", "f64", "f64", 1, 1, ""});
  for (const char* t : {"s4", "u4"}) {
    all.push_back({8, 8, 32, t, "s32", "s32", 1, 1, ""});
    all.push_back({8, 8, 32, t, "s32", "s32", 1, 1, "satfinite"});
  }
  for (const char* op : {"xor", "and"}) all.push_back({8, 8, 128, "b1", "s32", "s32", 1, 1, op});
  return all;
}

std::string list(const std::string& name, int count) {
  std::string text = "{";
  for (int k = 0; k < count; ++k) text += (k ? ", %" : "%") + name + std::to_string(k);
  return text + "}";
}

std::string declare(const std::string& name, int count, const std::string& type) {
  return "  .reg .b" + std::string(type == "f64" ? "64" : "32") + " %" + name + "<" +
         std::to_string(count) + ">;\n";
}

struct Plan {
  WmmaCase c;
  Stored a, b, sum, result;
  bool shared = false;  // A and B go through shared memory
};

std::string opcode_of(const Plan& p) {
  const WmmaCase& c = p.c;
  auto layout = [](const Stored& s) {
    return s.columns ? std::string(".col") : std::string(".row");
  };
  const bool bit = c.type == "b1";
  std::string text = "wmma.mma" + (bit ? "." + c.extra + ".popc" : "") + ".sync.aligned" +
                     layout(p.a) + layout(p.b) + ".m" + std::to_string(c.m) + "n" +
                     std::to_string(c.n) + "k" + std::to_string(c.k);
  text +=
      c.type == "f16" ? "." + c.d + "." + c.c : "." + c.d + "." + c.type + "." + c.type + "." + c.c;
  return text + (bit || c.extra.empty() ? "" : "." + c.extra) + (c.type == "f64" ? ".rn" : "");
}

// The stride is left out where it is that of a matrix without gaps.
std::string wmma_kernel(const Plan& p) {
  const WmmaCase& c = p.c;
  const std::string shape =
      ".m" + std::to_string(c.m) + "n" + std::to_string(c.n) + "k" + std::to_string(c.k);
  auto move = [&](const std::string& what, const Stored& s, const std::string& space,
                  const std::string& type) {
    return "  " + what + ".sync.aligned" + (s.columns ? ".col" : ".row") + shape + space + "." +
           type + " ";
  };
  auto stride = [](const Stored& s) {
    const int line = s.columns ? s.values.rows : s.values.cols;
    return s.stride == line ? std::string() : ", " + std::to_string(s.stride);
  };
  const size_t a_bytes = p.a.bytes(bits_of_type(c.type)), b_bytes = p.b.bytes(bits_of_type(c.type));
  std::string text =
      ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)"
      " {\n  .reg .pred %p; .reg .b32 %i, %v, %s; .reg .b64 %pa, %pb, %pc, %pd, %q;\n";
  text += declare("a", c.a_registers, c.type) + declare("b", c.b_registers, c.type);
  text += declare("c", c.sum_registers(c.c), c.c) + declare("d", c.sum_registers(c.d), c.d);
  for (const char* x : {"a", "b", "c", "d"}) {
    text += std::string("  ld.param.u64 %p") + x + ", [" + x + "];\n";
  }
  std::string from_a = "[%pa]", from_b = "[%pb]", space = ".global";
  if (p.shared) {
    space = ".shared";
    from_a = "[sa]";
    from_b = "[sb]";
    text += "  .shared .align 32 .b8 sa[" + std::to_string(a_bytes) + "];\n";
    text += "  .shared .align 32 .b8 sb[" + std::to_string(b_bytes) + "];\n";
    for (const auto& [to, from, bytes] :
         {std::tuple("sa", "%pa", a_bytes), std::tuple("sb", "%pb", b_bytes)}) {
      const std::string loop = std::string("COPY_") + to;
      text += std::string("  mov.u32 %i, %tid.x; shl.b32 %i, %i, 2;\n") + loop + ":\n" +
              "  setp.lt.u32 %p, %i, " + std::to_string(bytes) + "; mov.u32 %s, " + to +
              "; add.u32 %s, %s, %i; cvt.u64.u32 %q, %i; add.u64 %q, %q, " + from + ";\n" +
              "  @%p ld.global.u32 %v, [%q]; @%p st.shared.u32 [%s], %v;\n" +
              "  add.u32 %i, %i, 128; @%p bra " + loop + ";\n";
    }
    text += "  bar.sync 0;\n";
  }
  text += move("wmma.load.a", p.a, space, c.type) + list("a", c.a_registers) + ", " + from_a +
          stride(p.a) + ";\n";
  text += move("wmma.load.b", p.b, space, c.type) + list("b", c.b_registers) + ", " + from_b +
          stride(p.b) + ";\n";
  text += move("wmma.load.c", p.sum, "", c.c) + list("c", c.sum_registers(c.c)) + ", [%pc]" +
          stride(p.sum) + ";\n";
  text += "  " + opcode_of(p) + " " + list("d", c.sum_registers(c.d)) + ", " +
          list("a", c.a_registers) + ", " + list("b", c.b_registers) + ", " +
          list("c", c.sum_registers(c.c)) + ";\n";
  text += move("wmma.store.d", p.result, ".global", c.d) + "[%pd], " +
          list("d", c.sum_registers(c.d)) + stride(p.result) + ";\n";
  return unit(text + "  ret;\n}\n", "sm_90");
}

double expected(const Plan& p, int row, int col) {
  const WmmaCase& c = p.c;
  double sum = 0;
  for (int k = 0; k < c.k; ++k) {
    const double x = p.a.values.value(row, k), y = p.b.values.value(k, col);
    sum += c.extra == "xor" ? static_cast<double>(x != y) : x * y;
  }
  sum += p.sum.values.value(row, col);
  if (c.d == "f32") return nearest(sum, 23);
  if (c.d == "f16") return nearest(sum, 10);
  if (c.extra == "satfinite") return std::min(2147483647.0, std::max(-2147483648.0, sum));
  return c.d == "s32" ? static_cast<int32_t>(static_cast<int64_t>(sum)) : sum;
}

Outcome execute(const Plan& p, Matrix* found) {
  Device device;
  device.settings.threads = 1;
  device.load(wmma_kernel(p));
  const uint64_t a = device.upload(to_memory(p.a)), b = device.upload(to_memory(p.b));
  const uint64_t c = device.upload(to_memory(p.sum));
  const size_t bytes = p.result.bytes(bits_of_type(p.c.d));
  const uint64_t d = device.upload(std::vector<uint8_t>(bytes, 0xEE));
  const Outcome o = device.run("k", 1, 32, a, b, c, d);
  if (found) *found = from_memory(device.download<uint8_t>(d, bytes), p.result);
  return o;
}

// Bit k of `layouts` puts A, B, C or D by columns. `gap`: multiples of 16 bytes between lines.
Plan make_plan(const WmmaCase& c, unsigned layouts, int gap, bool shared, std::mt19937& rng) {
  auto stored = [&](const std::string& type, int rows, int cols, unsigned bit) {
    Stored s{Matrix(type, rows, cols), (layouts >> bit & 1) != 0, 0};
    s.stride = (s.columns ? rows : cols) + gap * 128 / bits_of_type(type);
    return s;
  };
  Plan p{c,
         stored(c.type, c.m, c.k, 0),
         stored(c.type, c.k, c.n, 1),
         stored(c.c, c.m, c.n, 2),
         stored(c.d, c.m, c.n, 3),
         shared};
  p.a.values.fill(rng);
  p.b.values.fill(rng);
  p.sum.values.fill(rng);
  return p;
}

void check(const Plan& p) {
  INFO(opcode_of(p));
  Matrix found = p.result.values;
  const Outcome o = execute(p, &found);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  CHECK(o.findings.empty());
  CHECK(o.counters.tensor_ops == 2ull * static_cast<uint64_t>(p.c.m * p.c.n * p.c.k));
  int wrong = 0;
  for (int r = 0; r < p.c.m; ++r) {
    for (int n = 0; n < p.c.n; ++n) wrong += found.value(r, n) != expected(p, r, n);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("wmma: every shape and type, by rows and by columns, is the product") {
  std::mt19937 rng(11);
  for (const WmmaCase& c : wmma_cases()) {
    const bool small = bits_of_type(c.type) < 8;  // A by rows and B by columns alone
    for (unsigned layouts = 0; layouts < 16; ++layouts) {
      if (small && (layouts & 3) != 2) continue;
      check(make_plan(c, layouts, 0, false, rng));
    }
  }
}

TEST_CASE("wmma: strides, and factors in shared memory") {
  std::mt19937 rng(12);
  for (const WmmaCase& c : wmma_cases()) {
    for (const unsigned layouts : {2u, 14u}) {
      check(make_plan(c, layouts, 1, true, rng));
      check(make_plan(c, layouts, 2, false, rng));
    }
  }
}

TEST_CASE("wmma: D may be C's registers or A's, and elements may be changed in fragments") {
  std::mt19937 rng(13);
  for (const std::string type : {"f32", "f16"}) {
    const Plan p = make_plan({16, 16, 16, "f16", "f32", type, 8, 8, ""}, 0, 0, false, rng);
    Device device;
    std::string text = wmma_kernel(p);
    const std::string from = type == "f32" ? "a" : "c";  // D's registers are these
    for (size_t at; (at = text.find("%d0")) != std::string::npos;) {
      const size_t end = text.find('}', at);
      text.replace(at, end - at, list(from, p.c.sum_registers(p.c.d)).substr(1).c_str());
      text.erase(text.find("}}", at), 1);
    }
    device.load(text);
    const uint64_t d = device.buffer(1024);
    const Outcome o = device.run("k", 1, 32, device.upload(to_memory(p.a)),
                                 device.upload(to_memory(p.b)), device.upload(to_memory(p.sum)), d);
    INFO(texts(o));
    REQUIRE(o.error == 0);
    const Matrix found =
        from_memory(device.download<uint8_t>(d, p.result.bytes(bits_of_type(p.c.d))), p.result);
    int wrong = 0;
    for (int r = 0; r < 16; ++r) {
      for (int n = 0; n < 16; ++n) wrong += found.value(r, n) != expected(p, r, n);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("wmma: bounds, alignment, unwritten elements, part of a warp") {
  std::mt19937 rng(14);
  const WmmaCase c{16, 16, 16, "f16", "f32", "f32", 8, 8, ""};
  auto outcome = [&](const std::string& old, const std::string& replacement) {
    const Plan p = make_plan(c, 0, 0, false, rng);
    std::string text = wmma_kernel(p);
    REQUIRE(text.find(old) != std::string::npos);
    text.replace(text.find(old), old.size(), replacement);
    Device device;
    device.load(text);
    const uint64_t a = device.upload(to_memory(p.a)), b = device.upload(to_memory(p.b));
    const uint64_t d = device.buffer(1024), fresh = device.buffer(1024);
    return device.run("k", 1, 32, a, b, fresh, d);
  };
  CHECK(kinds(outcome("[%pa]", "[%pa]")).find("uninitialized") == 0);
  CHECK(kinds(outcome("[%pa]", "[%pa+32]")).find("out_of_bounds") == 0);
  CHECK(kinds(outcome("[%pa]", "[%pa+8]")) == "misaligned");
  CHECK(kinds(outcome("[%pa]", "[%pa], 12")) == "misaligned");
  CHECK(kinds(outcome("  wmma.mma",
                      "  mov.u32 %i, %tid.x; setp.eq.u32 %p, %i, 3;\n @%p exit;\n  wmma.mma"))
            .find("partial_warp") != std::string::npos);
}

TEST_CASE("wmma: what does not exist is refused") {
  const std::string a8 = "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}";
  const std::vector<std::string> lines = {
      "wmma.load.a.sync.aligned.row.m16n16k8.f16 " + a8 + ", [%d]",
      "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1}, [%d]",
      "wmma.load.a.sync.aligned.m16n16k16.f16 " + a8 + ", [%d]",
      "wmma.load.d.sync.aligned.row.m16n16k16.f32 " + a8 + ", [%d]",
      "wmma.load.a.aligned.row.m16n16k16.f16 " + a8 + ", [%d]",
      "wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r0}, [%d]",
      "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}",
      "wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0, %r1}, {%r2}, {%r3}, {%r4, %r5}"};
  for (const std::string& line : lines) {
    CAPTURE(line);
    std::string log;
    CHECK(!Module::parse(
        unit(".visible .entry k() {\n .reg .b32 %r<9>; .reg .b64 %d;\n" + line + ";\n ret;\n}\n",
             "sm_90"),
        &log));
    CHECK(log.find("line 6") == 0);
  }
}

}  // namespace sim::test
