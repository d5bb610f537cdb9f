// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// mma.sync: every shape and type against the product by its definition, with fragments packed by
// the formulas of the PTX manual.
#include "sim/tests/tensor_model.h"

namespace sim::test {
namespace {

struct Shape {
  int m, k, width;  // width: bits of an element
  Layout a, b;
};

// n is 8 everywhere. Accumulators: see accumulator().
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {
      {16, 16, 16,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 2 % 2), 2 * q + i % 2 + 8 * (i / 4)};
       },
       [](int g, int q, int i) {
         return Place{2 * q + i % 2 + 8 * (i / 2), g};
       }},
      {16, 8, 16,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 2), 2 * q + i % 2};
       },
       [](int g, int q, int i) {
         return Place{2 * q + i, g};
       }},
      {16, 8, 32,
       [](int g, int q, int i) {
         return Place{g + 8 * (i % 2), q + 4 * (i / 2)};
       },
       [](int g, int q, int i) {
         return Place{q + 4 * i, g};
       }},
      {16, 4, 32,
       [](int g, int q, int i) {
         return Place{g + 8 * i, q};
       },
       [](int g, int q, int) {
         return Place{q, g};
       }},
      {16, 32, 8,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 4 % 2), 4 * q + i % 4 + 16 * (i / 8)};
       },
       [](int g, int q, int i) {
         return Place{4 * q + i % 4 + 16 * (i / 4), g};
       }},
      {16, 16, 8,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 4), 4 * q + i % 4};
       },
       [](int g, int q, int i) {
         return Place{4 * q + i, g};
       }},
      {8, 16, 8,
       [](int g, int q, int i) {
         return Place{g, 4 * q + i};
       },
       [](int g, int q, int i) {
         return Place{4 * q + i, g};
       }},
      {16, 64, 4,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 8 % 2), 8 * q + i % 8 + 32 * (i / 16)};
       },
       [](int g, int q, int i) {
         return Place{8 * q + i % 8 + 32 * (i / 8), g};
       }},
      {16, 32, 4,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 8), 8 * q + i % 8};
       },
       [](int g, int q, int i) {
         return Place{8 * q + i, g};
       }},
      {8, 32, 4,
       [](int g, int q, int i) {
         return Place{g, 8 * q + i};
       },
       [](int g, int q, int i) {
         return Place{8 * q + i, g};
       }},
      {16, 256, 1,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 32 % 2), 32 * q + i % 32 + 128 * (i / 64)};
       },
       [](int g, int q, int i) {
         return Place{32 * q + i % 32 + 128 * (i / 32), g};
       }},
      {16, 128, 1,
       [](int g, int q, int i) {
         return Place{g + 8 * (i / 32), 32 * q + i % 32};
       },
       [](int g, int q, int i) {
         return Place{32 * q + i, g};
       }},
      {8, 128, 1,
       [](int g, int q, int i) {
         return Place{g, 32 * q + i};
       },
       [](int g, int q, int i) {
         return Place{32 * q + i, g};
       }},
      {8, 4, 64,
       [](int g, int q, int) {
         return Place{g, q};
       },
       [](int g, int q, int) {
         return Place{q, g};
       }},
      {16, 4, 64,
       [](int g, int q, int i) {
         return Place{g + 8 * i, q};
       },
       [](int g, int q, int) {
         return Place{q, g};
       }},
      {16, 8, 64,
       [](int g, int q, int i) {
         return Place{g + 8 * (i % 2), q + 4 * (i / 2)};
       },
       [](int g, int q, int i) {
         return Place{q + 4 * i, g};
       }},
      {16, 16, 64,
       [](int g, int q, int i) {
         return Place{g + 8 * (i % 2), q + 4 * (i / 2)};
       },
       [](int g, int q, int i) {
         return Place{q + 4 * i, g};
       }},
  };
  return kShapes;
}

Place accumulator(int g, int q, int i) { return {g + 8 * (i / 2), 2 * q + i % 2}; }

const Shape& find_shape(int m, int k, int width) {
  for (const Shape& s : shapes()) {
    if (s.m == m && s.k == k && s.width == width) return s;
  }
  FAIL("no such shape");
  return shapes()[0];
}

struct Case {
  int m, k;
  std::string sum, a, b, extra;  // extra: ".satfinite", ".xor.popc"
};

std::string opcode(const Case& c) {
  const bool logic = c.extra.find("popc") != std::string::npos;
  const std::string shape =
      "mma.sync.aligned.m" + std::to_string(c.m) + "n8k" + std::to_string(c.k) + ".row.col";
  return shape + (logic ? "" : c.extra) + "." + c.sum + "." + c.a + "." + c.b + "." + c.sum +
         (logic ? c.extra : "");
}

// Each operand's registers lie one lane after the other in its buffer.
std::string mma_kernel(const std::string& op, const std::vector<int>& counts, bool wide) {
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

std::vector<uint32_t> narrow(const std::vector<uint64_t>& words) {
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

// D as the simulator has it.
Matrix execute(const Case& c, const Problem& p, TensorSum mode = TensorSum::exact) {
  const Shape& s = find_shape(c.m, c.k, bits_of_type(c.a));
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

double expected(const Case& c, const Problem& p, int row, int col) {
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

void check(const Case& c, uint32_t seed) {
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

std::vector<Case> all_cases() {
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

TEST_CASE("mma.sync: every shape and type is the product") {
  for (const Case& c : all_cases()) {
    for (uint32_t seed = 1; seed <= 2; ++seed) check(c, seed);
  }
}

// One nonzero element on either side leaves one nonzero element of D: places, not sums.
TEST_CASE("mma.sync: each element of A and B has its place") {
  std::mt19937 rng(7);
  for (const Case& c : all_cases()) {
    if (c.extra == ".xor.popc" || c.extra == ".satfinite") continue;
    Problem p = random_problem(c, rng);
    std::fill(p.a.bits.begin(), p.a.bits.end(), 0);
    std::fill(p.b.bits.begin(), p.b.bits.end(), 0);
    std::fill(p.c.bits.begin(), p.c.bits.end(), 0);
    const int row = static_cast<int>(rng() % c.m), col = static_cast<int>(rng() % 8);
    const int k = static_cast<int>(rng() % c.k);
    do p.a.at(row, k) = random_element(c.a, rng);
    while (p.a.value(row, k) == 0);
    do p.b.at(k, col) = random_element(c.b, rng);
    while (p.b.value(k, col) == 0);
    const Matrix d = execute(c, p);
    INFO(opcode(c));
    int wrong = 0;
    for (int r = 0; r < c.m; ++r) {
      for (int n = 0; n < 8; ++n) wrong += (d.value(r, n) != 0) != (r == row && n == col);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("mma.sync: worked places") {
  // Lane 22 is g = 5, q = 2.
  CHECK(find_shape(16, 16, 16).a(5, 2, 5).row == 5);
  CHECK(find_shape(16, 16, 16).a(5, 2, 5).col == 13);
  CHECK(find_shape(16, 16, 16).b(5, 2, 3).row == 13);
  CHECK(accumulator(5, 2, 3).row == 13);
  CHECK(accumulator(5, 2, 3).col == 5);
  CHECK(find_shape(16, 32, 8).a(5, 2, 13).row == 13);
  CHECK(find_shape(16, 32, 8).a(5, 2, 13).col == 25);
  CHECK(find_shape(16, 32, 8).b(5, 2, 6).row == 26);
  CHECK(find_shape(16, 8, 32).a(5, 2, 3).col == 6);
}

TEST_CASE("mma.sync: saturation and wrapping of the final sum") {
  for (const char* extra : {"", ".satfinite"}) {
    const Case c{16, 32, "s32", "u8", "u8", extra};
    std::mt19937 rng(3);
    Problem p = random_problem(c, rng);
    std::fill(p.a.bits.begin(), p.a.bits.end(), 255);
    std::fill(p.b.bits.begin(), p.b.bits.end(), 255);
    std::fill(p.c.bits.begin(), p.c.bits.end(), 0x7FFFFFFFu);
    const Matrix d = execute(c, p);
    const double want = *extra ? 2147483647.0 : 2147483647.0 + 32 * 65025 - 4294967296.0;
    CHECK(d.value(3, 5) == want);
    CHECK(d.value(15, 7) == want);
  }
}

TEST_CASE("mma.sync: infinities, NaN, subnormals") {
  const Case c{16, 16, "f32", "bf16", "bf16", ""};
  Problem p{Matrix("bf16", 16, 16), Matrix("bf16", 16, 8), Matrix("f32", 16, 8)};
  p.a.at(0, 3) = 0x7F80;  // inf * 0
  p.a.at(1, 3) = 0x7F80;
  p.b.at(3, 1) = 0x3F80;  // inf * 1
  p.a.at(2, 4) = 0x0001;  // 2^-133 * 2^-7
  p.b.at(4, 2) = 0x3C00;
  p.a.at(3, 5) = 0x7F7F;  // overflow
  p.b.at(5, 3) = 0x7F7F;
  const Matrix d = execute(c, p);
  CHECK(d.at(0, 0) == 0x7FFFFFFF);
  CHECK(d.at(1, 1) == 0x7F800000);
  CHECK(d.at(2, 2) == 0x00000200);  // 2^-140
  CHECK(d.at(3, 3) == 0x7F800000);
  const Case fp8{16, 32, "f16", "e4m3", "e5m2", ""};
  Problem q{Matrix("e4m3", 16, 32), Matrix("e5m2", 32, 8), Matrix("f16", 16, 8)};
  q.a.at(0, 9) = 0x7F;  // NaN, whatever it meets
  q.a.at(1, 9) = 0x7E;  // 448
  q.b.at(9, 1) = 0x7C;  // inf
  q.b.at(9, 2) = 0x7B;  // 57344: the product is past f16
  q.b.at(9, 4) = 0x01;  // 2^-16: 448 * 2^-16 = 7 * 2^-10
  const Matrix e = execute(fp8, q);
  CHECK(e.at(0, 0) == 0x7FFF);
  CHECK(e.at(1, 1) == 0x7C00);
  CHECK(e.at(1, 2) == 0x7C00);
  CHECK(e.value(1, 4) == 7.0 / 1024);
}

// 2^24 + 1 + 1: one rounding keeps the 2, rounding at each step loses both, and so does cutting.
TEST_CASE("mma.sync: three ways to add") {
  const Case c{16, 16, "f32", "f16", "f16", ""};
  Problem p{Matrix("f16", 16, 16), Matrix("f16", 16, 8), Matrix("f32", 16, 8)};
  p.c.at(4, 4) = 0x4B800000;  // 2^24
  p.a.at(4, 0) = p.a.at(4, 1) = p.b.at(0, 4) = p.b.at(1, 4) = 0x3C00;
  // 1 + 3 * 2^-25 in steps of 2^-25: each step is half of a unit or less, together they are more.
  CHECK(execute(c, p).value(4, 4) == 16777218.0);
  CHECK(execute(c, p, TensorSum::sequential).value(4, 4) == 16777216.0);
  CHECK(execute(c, p, TensorSum::coarse).value(4, 4) == 16777218.0);
  const Case fp8{16, 32, "f32", "e4m3", "e4m3", ""};
  Problem q{Matrix("e4m3", 16, 32), Matrix("e4m3", 32, 8), Matrix("f32", 16, 8)};
  q.c.at(4, 4) = 0x46000000;           // 2^13
  q.a.at(4, 0) = q.b.at(0, 4) = 0x38;  // 1
  q.a.at(4, 1) = 0x30;                 // 0.5, twice
  q.a.at(4, 2) = 0x30;
  q.b.at(1, 4) = q.b.at(2, 4) = 0x38;
  CHECK(execute(fp8, q).value(4, 4) == 8194.0);
  CHECK(execute(fp8, q, TensorSum::sequential).value(4, 4) == 8194.0);
  CHECK(execute(fp8, q, TensorSum::coarse).value(4, 4) == 8193.0);
}

// Every mode against the definition within its error, for values of any size.
TEST_CASE("mma.sync: every way of adding is near the product") {
  const Case c{16, 16, "f32", "bf16", "bf16", ""};
  std::mt19937 rng(11);
  Problem p = random_problem(c, rng);
  for (const TensorSum mode : {TensorSum::exact, TensorSum::sequential, TensorSum::coarse}) {
    const Matrix d = execute(c, p, mode);
    double worst = 0;
    for (int row = 0; row < 16; ++row) {
      for (int col = 0; col < 8; ++col) {
        double size = std::fabs(p.c.value(row, col));
        for (int k = 0; k < 16; ++k) size += std::fabs(p.a.value(row, k) * p.b.value(k, col));
        worst = std::max(worst, std::fabs(d.value(row, col) - expected(c, p, row, col)) / size);
      }
    }
    CHECK(worst < 17 * std::ldexp(1.0, -23));
  }
}

TEST_CASE("mma.sync: forms that do not exist are refused") {
  for (const char* op : {"mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
                         "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
                         "mma.sync.m16n8k16.row.col.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
                         "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
                         "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32"}) {
    std::string log;
    CAPTURE(op);
    CHECK(Module::parse(mma_kernel(op, {4, 2, 4, 4}, false), &log) == nullptr);
    CHECK(log.find("unsupported") != std::string::npos);
  }
}

TEST_CASE("mma.sync: modifiers in another order, a warp that is not whole") {
  const std::string op = "mma.m16n8k16.row.aligned.col.sync.f32.f16.f16.f32";
  Device device;
  device.load(mma_kernel(op, {4, 2, 4, 4}, false));
  const uint64_t zeros = device.upload(std::vector<uint32_t>(128, 0));
  CHECK(device.run("k", 1, 32, zeros, zeros, zeros, zeros).error == 0);
  const Outcome o = device.run("k", 1, 16, zeros, zeros, zeros, zeros);
  CHECK(o.error == 719);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "partial_warp");
  CHECK(o.findings[0].check == "synccheck");
}

}  // namespace
}  // namespace sim::test
