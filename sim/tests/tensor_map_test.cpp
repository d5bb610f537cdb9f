// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the record of a tensor map: what programs do to its bytes, and maps that a
// kernel makes from zeros.
#include "sim/exec/tensor_map.h"

#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint64_t kBase = 0x7fff00200010;  // bit 21 is set

TensorMapView example() {
  TensorMapView map;
  map.dtype = 9;
  map.rank = 3;
  map.swizzle = 3;
  map.base = kBase;
  for (unsigned j = 0; j < 3; ++j) {
    map.dims[j] = 1000 + j;
    map.box[j] = 8u << j;
    map.strides[j] = j ? 4096 * j : 2;
  }
  return map;
}

// As Triton makes one: zeros, every field replaced, published; %0 is the element type.
std::string maker(unsigned type) {
  return R"(
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
  .shared .align 128 .b8 map[128];
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p;
  mov.u32 %r0, %tid.x; mov.u32 %r1, map; shl.b32 %r2, %r0, 2; add.u32 %r2, %r1, %r2;
  st.shared.b32 [%r2], 0;
  bar.warp.sync -1;
  setp.ne.b32 %p, %r0, 0;
  @%p bra SKIP;
  cvt.u64.u32 %rd1, %r1; mov.b64 %rd2, 0x7fff00200010; mov.b64 %rd3, 4096;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd1], %rd2;
  tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd1], 0x1;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd1], 0x0, 16;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd1], 0x1, 32;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd1], 0x0, 100;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd1], 0x1, 200;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%rd1], 0x0, %rd3;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd1], 0x0, 1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd1], 0x1, 1;
  tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%rd1], )" +
         std::to_string(type) + R"(;
  tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%rd1], 0x2;
SKIP:
  bar.warp.sync -1;
  ld.param.u64 %rd4, [out]; cvt.u64.u32 %rd5, %r1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd4], [%rd5], 0x80;
  ret;
}
)";
}

}  // namespace

TEST_CASE("a map survives what CUTLASS does to its second word, and no other change") {
  uint8_t bytes[kTensorMapBytes];
  encode_tensor_map(example(), bytes);
  bytes[10] &= 0xDF;  // bit 21 of the second word
  TensorMapView map;
  REQUIRE(decode_tensor_map(bytes, &map));
  CHECK(map.base == kBase);
  CHECK(map.dims[2] == 1002);
  CHECK(map.strides[2] == 8192);
  CHECK(map.box[1] == 16);
  for (uint32_t at = 0; at < kTensorMapBytes; ++at) {
    if (at >= 8 && at < 16) continue;
    bytes[at] ^= 1;
    CHECK_FALSE(decode_tensor_map(bytes, &map));
    bytes[at] ^= 1;
  }
}

TEST_CASE("a kernel makes a map from zeros; element types as the instruction numbers them") {
  // u8 u16 u32 s32 u64 s64 f16 f32 f32.ftz f64 bf16 tf32 tf32.ftz, by the driver's numbers
  const unsigned expected[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12};
  for (unsigned type = 0; type < 13; ++type) {
    CAPTURE(type);
    Device device;
    device.load(maker(type));
    const uint64_t out = device.buffer(kTensorMapBytes);
    const Outcome outcome = device.run("k", 1, 32, out);
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
    TensorMapView map;
    REQUIRE(decode_tensor_map(reinterpret_cast<const void*>(out), &map));
    CHECK(map.dtype == expected[type]);
    CHECK(map.rank == 2);
    CHECK(map.swizzle == 2);
    CHECK(map.base == kBase);
    CHECK(map.box[0] == 16);
    CHECK(map.box[1] == 32);
    CHECK(map.dims[0] == 100);
    CHECK(map.dims[1] == 200);
    CHECK(map.strides[1] == 4096);
  }
}
