// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes tensor maps and kernels that copy a box of a tensor, and cuts boxes out by plain
// loops.
#pragma once

#include "sim/exec/tensor_map.h"
#include "sim/tests/kernel_run.h"

namespace sim::test {

struct Box {
  TensorMapView map;
  std::vector<int> at;
  uint32_t tile = 0;  // offset of the tile in its buffer
};

inline std::string coordinates(unsigned rank) {
  std::string list;
  for (unsigned j = 0; j < rank; ++j) list += (j ? ",%c" : "%c") + std::to_string(j);
  return "{" + list + "}";
}

// Loads the box (or stores, or adds it) and copies the whole buffer out.
inline std::string kernel(unsigned rank, const std::string& body) {
  std::string text = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .align 4 .b8 at[20], .param .u32 bytes, .param .u32 tile) {
  .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b32 %t, %c<5>;
  .shared .align 1024 .b8 buffer[32768];
  .shared .align 8 .b8 bar[8];
  mov.u32 %t, %tid.x; setp.eq.u32 %p1, %t, 0; mov.u32 %r1, buffer; mov.u32 %r2, bar;
  ld.param.u32 %r20, [tile]; add.u32 %r3, %r1, %r20;
  ld.param.u32 %r4, [bytes]; ld.param.u64 %rd2, [out];
  mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
)";
  for (unsigned j = 0; j < 5; ++j) {
    text += "  ld.param.u32 %c" + std::to_string(j) + ", [at+" + std::to_string(4 * j) + "];\n";
  }
  const std::string d = std::to_string(rank);
  std::string filled = body;
  for (size_t p; (p = filled.find("$R")) != std::string::npos;) filled.replace(p, 2, d);
  for (size_t p; (p = filled.find("$C")) != std::string::npos;) {
    filled.replace(p, 2, coordinates(rank));
  }
  return text + filled + "\n  ret;\n}\n";
}

// Fills the buffer with a byte pattern first, so that what is not written shows.
inline const std::string kPrepare = R"(
  shl.b32 %r5, %t, 2; mov.u32 %r6, 0xA5A5A5A5;
FILL: add.u32 %r7, %r1, %r5; st.shared.u32 [%r7], %r6; add.u32 %r5, %r5, 128;
  setp.lt.u32 %p2, %r5, 32768; @%p2 bra FILL;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  fence.proxy.async; bar.sync 0;
)";
inline const std::string kLoad = kPrepare + R"(
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], %r4;
  @%p1 cp.async.bulk.tensor.$Rd.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, $C], [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  shl.b32 %r5, %t, 2;
OUT: add.u32 %r7, %r1, %r5; ld.shared.u32 %r8, [%r7];
  cvt.u64.u32 %rd3, %r5; add.u64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r8;
  add.u32 %r5, %r5, 128; setp.lt.u32 %p2, %r5, 32768; @%p2 bra OUT;
)";

inline uint64_t extent(const TensorMapView& m) {
  uint64_t bytes = m.element_bytes;
  for (unsigned j = 0; j < m.rank; ++j) bytes += (m.dims[j] - 1) * m.strides[j];
  return bytes;
}

// f(byte of the tensor or -1, byte of the buffer) for every byte of the box. The swizzle by its
// description: 16-byte unit x of the 128-byte line y goes to x ^ (y mod 2, 4 or 8).
template <class F>
void for_box(const Box& c, uint32_t shared_start, F f) {
  const TensorMapView& m = c.map;
  uint32_t n[5] = {1, 1, 1, 1, 1};
  for (unsigned j = 0; j < m.rank; ++j) {
    while (n[j] * m.element_strides[j] < m.box[j]) ++n[j];
  }
  uint64_t number = 0;
  for (uint32_t e = 0; e < n[4]; ++e)
    for (uint32_t d = 0; d < n[3]; ++d)
      for (uint32_t cc = 0; cc < n[2]; ++cc)
        for (uint32_t b = 0; b < n[1]; ++b)
          for (uint32_t a = 0; a < n[0]; ++a, ++number) {
            const uint32_t index[5] = {a, b, cc, d, e};
            bool inside = true;
            int64_t from = 0;
            for (unsigned j = 0; j < m.rank; ++j) {
              const int64_t x = c.at[j] + int64_t{index[j]} * m.element_strides[j];
              inside &= x >= 0 && x < static_cast<int64_t>(m.dims[j]);
              from += x * static_cast<int64_t>(m.strides[j]);
            }
            for (uint32_t k = 0; k < m.element_bytes; ++k) {
              const uint64_t byte = shared_start + c.tile + number * m.element_bytes + k;
              const uint64_t line = byte / 128, unit = byte / 16 % 8;
              const uint64_t repeat = m.swizzle == 0 ? 1 : 1ull << m.swizzle;
              const uint64_t to = line * 128 + (unit ^ line % repeat) * 16 + byte % 16;
              f(inside ? from + k : -1, to - shared_start);
            }
          }
}

inline TensorMapView make(unsigned dtype, std::vector<uint64_t> dims, std::vector<uint32_t> box,
                          unsigned swizzle = 0, bool nan = false,
                          std::vector<uint32_t> steps = {}) {
  TensorMapView m;
  m.dtype = dtype;
  m.rank = static_cast<unsigned>(dims.size());
  m.swizzle = swizzle;
  m.fill_nan = nan;
  m.element_bytes = tensor_element_bytes(dtype);
  uint64_t stride = m.element_bytes;
  for (unsigned j = 0; j < m.rank; ++j) {
    m.dims[j] = dims[j];
    m.box[j] = box[j];
    if (!steps.empty()) m.element_strides[j] = steps[j];
    m.strides[j] = stride;
    stride = (stride * dims[j] + 15) / 16 * 16 + 16;
  }
  return m;
}

// Parameters of the kernel.
struct MapBytes {
  uint8_t bytes[128];
};
struct BoxPlace {
  int c[5];
};

}  // namespace sim::test
