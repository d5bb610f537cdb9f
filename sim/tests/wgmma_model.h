// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file models wgmma by its definition: tiles in shared memory element by element, and a kernel
// around the instructions under test.
#pragma once

#include "sim/tests/tensor_model.h"

namespace sim::test {

// A Tile says how a tile lies: element size, major, swizzle width (0: none), offsets in bytes.
struct Tile {
  bool mn_major = false;
  uint32_t width = 0;
  uint32_t leading = 0, stride = 0, start = 0;

  uint32_t address(uint32_t base, uint32_t mn, uint32_t k, uint32_t bytes) const {
    const uint32_t kb = k * bytes, mb = mn * bytes, s = width;
    uint32_t lin = base + start;
    if (!mn_major && !s) lin += mn % 8 * 16 + mn / 8 * stride + kb / 16 * leading + kb % 16;
    if (!mn_major && s) lin += mn % 8 * s + mn / 8 * stride + kb;
    if (mn_major && !s) lin += k % 8 * 16 + k / 8 * leading + mb / 16 * stride + mb % 16;
    if (mn_major && s) lin += k % 8 * s + k / 8 * stride + mb / s * leading + mb % s;
    const uint32_t mask = s == 128 ? 7 : s == 64 ? 3 : s == 32 ? 1 : 0;
    return lin ^ ((lin >> 7 & mask) << 4);
  }
  uint64_t descriptor() const {
    const uint64_t swizzle = width == 128 ? 1 : width == 64 ? 2 : width == 32 ? 3 : 0;
    return static_cast<uint64_t>(start) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
           static_cast<uint64_t>(stride >> 4) << 32 | swizzle << 62;
  }
};

// Returns a packed tile of `mn` rows (or columns).
inline Tile tile(bool mn_major, uint32_t width, uint32_t mn, uint32_t start = 0) {
  Tile t{mn_major, width, 0, 0, start};
  if (!width) {
    t.stride = 128;
    t.leading = mn / 8 * 128;
  } else {
    t.stride = 8 * width;
    t.leading = mn_major ? 16 * width : 16;
  }
  return t;
}

struct WgmmaCase {
  int n = 8;
  std::string sum = "f32", a = "bf16", b = "bf16", extra;
  bool a_registers = false;
  Tile a_tile = tile(false, 128, 64), b_tile;
  std::string scale = "1";  // or "p"
  int scale_a = 1, scale_b = 1;

  int depth() const { return 256 / bits_of_type(a); }
  int registers() const { return n / (sum == "f16" ? 4 : 2); }
  bool integer() const { return sum == "s32"; }
};

inline std::string braces(const std::string& stem, int count) {
  std::string s = "{";
  for (int k = 0; k < count; ++k) s += (k ? ", %" : "%") + stem + std::to_string(k);
  return s + "}";
}

inline std::string wgmma_opcode(const WgmmaCase& c) {
  return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(c.n) + "k" +
         std::to_string(c.depth()) + "." + c.sum + "." + c.a + "." + c.b + c.extra;
}

// Returns the instruction with its operands; other accumulators and descriptors on demand.
inline std::string wgmma_text(const WgmmaCase& c, const std::string& d = "d",
                              const std::string& a = "%da", const std::string& b = "%db") {
  std::string s = wgmma_opcode(c) + " " + braces(d, c.registers()) + ", " +
                  (c.a_registers ? braces("a", 4) : a) + ", " + b + ", " + c.scale;
  if (!c.integer()) {
    s += ", " + std::to_string(c.scale_a) + ", " + std::to_string(c.scale_b);
    if (bits_of_type(c.a) == 16) {
      if (!c.a_registers) s += c.a_tile.mn_major ? ", 1" : ", 0";
      s += c.b_tile.mn_major ? ", 1" : ", 0";
    }
  }
  return s + ";\n";
}

// Shared memory is filled from `image`, 16 bytes a thread at a time; accumulators %d from `c`, A's
// registers from `a`; then `body`; then %d to `d`. The predicate %p is parameter `flag`.
inline std::string wgmma_kernel(const WgmmaCase& c, const std::string& body) {
  const std::string type = c.sum == "f32" ? ".f32" : ".b32", n = std::to_string(c.registers());
  std::string s = R"(.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 image, .param .u32 bytes, .param .u64 desc_a, .param .u64 desc_b,
                  .param .u64 a, .param .u64 c, .param .u64 d, .param .u32 flag) {
  .reg .b32 %t, %s, %x, %y, %n, %v<4>, %a<4>; .reg .b64 %g, %da, %db, %base, %off;
  .reg .pred %p, %q, %l; .reg )" +
                  type + " %d<" + n + ">, %e<" + n + R"(>;
  mov.u32 %t, %tid.x; mov.u32 %s, smem;
  ld.param.u32 %n, [bytes]; ld.param.u64 %g, [image];
  ld.param.u32 %x, [flag]; setp.ne.u32 %p, %x, 0;
  setp.eq.u32 %l, %t, 0;
  mul.lo.u32 %x, %t, 16;
LOOP:
  setp.ge.u32 %q, %x, %n;
  @%q bra DONE;
  cvt.u64.u32 %off, %x; add.u64 %off, %g, %off;
  ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%off];
  add.u32 %y, %s, %x;
  st.shared.v4.u32 [%y], {%v0, %v1, %v2, %v3};
  add.u32 %x, %x, 2048;
  bra LOOP;
DONE:
  shr.u32 %x, %s, 4; cvt.u64.u32 %base, %x;
  ld.param.u64 %da, [desc_a]; add.u64 %da, %da, %base;
  ld.param.u64 %db, [desc_b]; add.u64 %db, %db, %base;
  ld.param.u64 %g, [a]; mul.wide.u32 %off, %t, 16; add.u64 %g, %g, %off;
  ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%g];
  ld.param.u64 %g, [c]; mul.wide.u32 %off, %t, )" +
                  std::to_string(4 * c.registers()) + "; add.u64 %g, %g, %off;\n";
  for (int r = 0; r < c.registers(); ++r) {
    const std::string k = std::to_string(r);
    s += "  ld.global.b32 %d" + k + ", [%g+" + std::to_string(4 * r) + "]; mov.b32 %e" + k +
         ", %d" + k + ";\n";
  }
  s += "  fence.proxy.async;\n  bar.sync 0;\n" + body +
       "  ld.param.u64 %g, [d]; add.u64 %g, %g, %off;\n";
  for (int r = 0; r < c.registers(); ++r) {
    s += "  st.global.b32 [%g+" + std::to_string(4 * r) + "], %d" + std::to_string(r) + ";\n";
  }
  return s + "  ret;\n}\n";
}

inline const std::string kFence = "  wgmma.fence.sync.aligned;\n";
inline const std::string kCommit = "  wgmma.commit_group.sync.aligned;\n";
inline std::string wait(int n) {
  return "  wgmma.wait_group.sync.aligned " + std::to_string(n) + ";\n";
}

constexpr uint32_t kTileB = 32768;  // where B's tile begins, past A's
constexpr uint32_t kImage = 65536;

inline Place wgmma_d(int g, int q, int i) {
  return {g + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * q + i % 2};
}
inline Place wgmma_a(int width, int g, int q, int i) {
  if (width == 16) return {g + 8 * (i / 2 % 2), 2 * q + i % 2 + 8 * (i / 4)};
  if (width == 32) return {g + 8 * (i % 2), q + 4 * (i / 2)};
  if (width == 8) return {g + 8 * (i / 4 % 2), 4 * q + i % 4 + 16 * (i / 8)};
  return {g + 8 * (i / 32 % 2), 32 * q + i % 32 + 128 * (i / 64)};
}

struct WgmmaProblem {
  Matrix a, b, c;  // b: k by n
};
inline WgmmaProblem wgmma_problem(const WgmmaCase& c, uint32_t seed) {
  std::mt19937 rng(seed);
  WgmmaProblem p{Matrix(c.a, 64, c.depth()), Matrix(c.b, c.depth(), c.n), Matrix(c.sum, 64, c.n)};
  p.a.fill(rng);
  p.b.fill(rng);
  p.c.fill(rng);
  return p;
}

// Places a tile element by element, low bits first where several share a byte.
inline void place_tile(std::vector<uint8_t>* image, uint32_t base, const Tile& t, const Matrix& m,
                       bool rows_are_k) {
  const int bits = bits_of_type(m.type);
  const uint32_t bytes = bits < 8 ? 1 : static_cast<uint32_t>(bits / 8);
  const uint32_t per_byte = bits < 8 ? 8u / static_cast<uint32_t>(bits) : 1;
  for (int r = 0; r < m.rows; ++r) {
    for (int c = 0; c < m.cols; ++c) {
      const auto mn = static_cast<uint32_t>(rows_are_k ? c : r);
      const auto k = static_cast<uint32_t>(rows_are_k ? r : c);
      const uint64_t v = m.at(r, c);
      const uint32_t at = t.address(base, mn, k / per_byte, bytes);
      for (uint32_t byte = 0; byte < bytes; ++byte) {
        const uint64_t part = v >> 8 * byte & 0xFF;
        image->at(at + byte) |=
            static_cast<uint8_t>(part << (k % per_byte * static_cast<uint32_t>(bits)));
      }
    }
  }
}

inline std::vector<uint32_t> warpgroup_fragments(const Matrix& m, const Layout& layout,
                                                 int elements) {
  std::vector<uint32_t> all;
  for (int w = 0; w < 4; ++w) {
    Matrix part(m.type, 16, m.cols);
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < m.cols; ++c) part.at(r, c) = m.at(16 * w + r, c);
    }
    for (const uint64_t v : to_fragment(part, layout, elements)) {
      all.push_back(static_cast<uint32_t>(v));
    }
  }
  return all;
}

struct WgmmaResult {
  Outcome outcome;
  Matrix d;
};

// `settings` chooses checks and policies; one host thread runs.
inline WgmmaResult run_wgmma(const WgmmaCase& c, const WgmmaProblem& p, const std::string& body,
                             const Settings& settings = {}, uint32_t flag = 1,
                             uint32_t image_bytes = kImage, uint32_t threads = 128) {
  Device device;
  device.settings = settings;
  device.settings.threads = 1;
  device.dynamic_shared = kImage;
  device.load(wgmma_kernel(c, body));
  std::vector<uint8_t> image(kImage, 0);
  place_tile(&image, 0, c.a_tile, p.a, false);
  place_tile(&image, kTileB, c.b_tile, p.b, true);
  const int width = bits_of_type(c.a);
  const auto a = warpgroup_fragments(
      p.a, [&](int g, int q, int i) { return wgmma_a(width, g, q, i); }, c.depth() / 2);
  const auto in = warpgroup_fragments(p.c, wgmma_d, c.n / 2);
  const uint64_t d = device.upload(std::vector<uint32_t>(in.size(), 0));
  const uint64_t b_descriptor = c.b_tile.descriptor() + (kTileB >> 4);
  const Outcome o =
      device.run("k", 1, threads, device.upload(image), image_bytes, c.a_tile.descriptor(),
                 b_descriptor, device.upload(a), device.upload(in), d, flag);
  const auto words = device.download<uint32_t>(d, in.size());
  WgmmaResult result{o, Matrix(c.sum, 64, c.n)};
  for (int w = 0; w < 4; ++w) {
    const size_t share = words.size() / 4;
    const std::vector<uint64_t> part(words.begin() + static_cast<std::ptrdiff_t>(w * share),
                                     words.begin() + static_cast<std::ptrdiff_t>((w + 1) * share));
    const Matrix m = from_fragment(c.sum, 16, c.n, part, wgmma_d, c.n / 2);
    for (int r = 0; r < 16; ++r) {
      for (int k = 0; k < c.n; ++k) result.d.at(16 * w + r, k) = m.at(r, k);
    }
  }
  return result;
}

// Counts the elements of `d` that differ from the product, added to C or, without `accumulate`,
// alone.
inline int wrong_elements(const WgmmaCase& c, const WgmmaProblem& p, const Matrix& d,
                          bool accumulate = true) {
  int wrong = 0;
  for (int row = 0; row < 64; ++row) {
    for (int col = 0; col < c.n; ++col) {
      double sum = 0;
      for (int k = 0; k < c.depth(); ++k) sum += p.a.value(row, k) * p.b.value(k, col);
      sum *= c.scale_a * c.scale_b;
      if (accumulate) sum += p.c.value(row, col);
      double want = c.sum == "f32" ? nearest(sum, 23) : c.sum == "f16" ? nearest(sum, 10) : sum;
      if (c.extra == ".satfinite") want = std::min(2147483647.0, std::max(-2147483648.0, sum));
      wrong += d.value(row, col) != want;
    }
  }
  return wrong;
}

}  // namespace sim::test
