// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the record of a tensor map: what programs do to its bytes, maps that a kernel
// makes from zeros or edits, and maps that are refused or fit no copy.
#include "sim/exec/tensor_map.h"

#include "sim/tests/tensor_boxes.h"

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

TEST_CASE("maps that do not fit are findings") {
  auto finding = [](auto change, const std::string& body, const std::string& kind) {
    Device d;
    TensorMapView m = make(9, {64, 20}, {64, 8}, 3);
    m.base = d.upload(std::vector<uint8_t>(extent(m)));
    MapBytes map;
    BoxPlace at{};
    uint32_t tile = 0, bytes = 1024;
    encode_tensor_map(m, map.bytes);
    change(map.bytes, &m, &tile, &bytes, &d);
    d.load(kernel(2, body));
    d.settings.instruction_limit = 1'000'000;
    const Outcome o = d.run("k", 1, 32, map, d.buffer(32768), at, bytes, tile);
    INFO(texts(o));
    CHECK(o.error != 0);
    bool found = false;
    for (const Finding& f : o.findings) found |= f.kind == kind;
    CHECK(found);
  };
  auto same = [](uint8_t*, TensorMapView*, uint32_t*, uint32_t*, Device*) {};
  finding([](uint8_t* b, TensorMapView*, uint32_t*, uint32_t*, Device*) { b[20] ^= 1; }, kLoad,
          "tensor_map");
  finding([](uint8_t*, TensorMapView*, uint32_t* tile, uint32_t*, Device*) { *tile = 64; }, kLoad,
          "misaligned");
  finding([](uint8_t*, TensorMapView*, uint32_t* tile, uint32_t*, Device*) { *tile = 32768; },
          kLoad, "out_of_bounds");
  finding([](uint8_t*, TensorMapView*, uint32_t*, uint32_t* bytes, Device*) { *bytes = 1040; },
          kLoad, "deadlock");
  finding(
      [](uint8_t* b, TensorMapView* m, uint32_t*, uint32_t*, Device*) {
        m->box[0] = 32;
        encode_tensor_map(*m, b);
      },
      kLoad, "tensor_map");
  finding([](uint8_t*, TensorMapView* m, uint32_t*, uint32_t*,
             Device* d) { d->memory.release(m->base); },
          kLoad, "out_of_bounds");
  std::string three = kLoad;
  three.replace(three.find("tensor.$Rd"), 10, "tensor.3d");
  three.replace(three.find("$C"), 2, "{%c0,%c1,%c2}");
  finding(same, three, "tensor_map");
}

TEST_CASE("what the driver refuses to encode") {
  TensorMapView good = make(9, {64, 20}, {64, 8}, 3);
  good.base = 4096;
  CHECK(tensor_map_fault(good) == "");
  auto refused = [&](auto change) {
    TensorMapView m = good;
    change(m);
    CHECK(tensor_map_fault(m) != "");
  };
  refused([](auto& m) { m.rank = 0; });
  refused([](auto& m) { m.rank = 6; });
  refused([](auto& m) { m.base = 4104; });
  refused([](auto& m) { m.dims[1] = 0; });
  refused([](auto& m) { m.strides[1] = 136; });
  refused([](auto& m) { m.strides[1] = 1ull << 40; });
  refused([](auto& m) { m.box[1] = 257; });
  refused([](auto& m) { m.box[0] = 128; });
  refused([](auto& m) { m.box[0] = 4; });
  refused([](auto& m) { m.element_strides[1] = 9; });
  refused([](auto& m) { m.interleave = 1; });
  refused([](auto& m) { m.swizzle = 4; });
  refused([](auto& m) { m.dtype = 13; });
  refused([](auto& m) {
    m.dtype = 1;
    m.fill_nan = true;
  });
}

TEST_CASE("a map edited in shared memory and published works as one that was encoded") {
  // The map names the wrong tensor, size and stride; the kernel mends it.
  Device d;
  Box c{make(9, {64, 20}, {64, 8}, 3), {0, 16}};
  std::vector<uint8_t> tensor(extent(c.map));
  for (size_t k = 0; k < tensor.size(); ++k) tensor[k] = static_cast<uint8_t>(k * 7);
  c.map.base = d.upload(tensor);
  TensorMapView wrong = c.map;
  wrong.base = 16;
  wrong.dims[1] = 3;
  wrong.strides[1] = 16;
  MapBytes map;
  BoxPlace at{{0, 16, 0, 0, 0}};
  encode_tensor_map(wrong, map.bytes);
  std::string text = kernel(2, R"(
  .shared .align 128 .b8 edit[128];
  mov.u32 %r10, edit; shl.b32 %r11, %t, 2; add.u32 %r12, %r10, %r11;
  cvt.u64.u32 %rd10, %r11; add.u64 %rd11, %rd1, %rd10; ld.u32 %r13, [%rd11]; st.shared.u32 [%r12], %r13;
  bar.warp.sync -1;
  cvt.u64.u32 %rd12, %r10;
  ld.param.u64 %rd13, [good]; ld.param.u64 %rd14, [room];
  @%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd12], %rd13;
  @%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd12], 1, 20;
  mov.u64 %rd15, 144;
  @%p1 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%rd12], 0, %rd15;
  bar.warp.sync -1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd14], [%rd12], 128;
  fence.proxy.tensormap::generic.acquire.gpu [%rd14], 128;
  mov.u64 %rd1, %rd14;
)" + kLoad);
  text.replace(text.find(".param .u32 tile)"), 17,
               ".param .u32 tile, .param .u64 good, .param .u64 room)");
  REQUIRE(c.map.strides[1] == 144);
  d.load(text);
  const uint64_t out = d.upload(std::vector<uint8_t>(32768, 0));
  const Outcome o = d.run("k", 1, 32, map, out, at, 1024u, 0u, c.map.base, d.buffer(128));
  INFO(texts(o));
  REQUIRE(o.error == 0);
  CHECK(o.findings.empty());
  std::vector<uint8_t> want(32768, 0xA5);
  for_box(c, 1024, [&](int64_t from, uint64_t to) {
    want[to] = from >= 0 ? tensor[static_cast<size_t>(from)] : 0;
  });
  CHECK(d.download<uint8_t>(out, 32768) == want);
}
