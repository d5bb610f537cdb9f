// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover cp.async.bulk.tensor in every rank and swizzle against boxes cut out by plain
// loops.
#include <random>

#include "sim/exec/tensor_map.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

struct Case {
  TensorMapView map;
  std::vector<int> at;
  uint32_t tile = 0;  // offset of the tile in its buffer
};

std::string coordinates(unsigned rank) {
  std::string list;
  for (unsigned j = 0; j < rank; ++j) list += (j ? ",%c" : "%c") + std::to_string(j);
  return "{" + list + "}";
}

// Loads the box (or stores, or adds it) and copies the whole buffer out.
std::string kernel(unsigned rank, const std::string& body) {
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
const std::string kPrepare = R"(
  shl.b32 %r5, %t, 2; mov.u32 %r6, 0xA5A5A5A5;
FILL: add.u32 %r7, %r1, %r5; st.shared.u32 [%r7], %r6; add.u32 %r5, %r5, 128;
  setp.lt.u32 %p2, %r5, 32768; @%p2 bra FILL;
  @%p1 mbarrier.init.shared.b64 [%r2], 1;
  fence.proxy.async; bar.sync 0;
)";
const std::string kLoad = kPrepare + R"(
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r2], %r4;
  @%p1 cp.async.bulk.tensor.$Rd.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, $C], [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  shl.b32 %r5, %t, 2;
OUT: add.u32 %r7, %r1, %r5; ld.shared.u32 %r8, [%r7];
  cvt.u64.u32 %rd3, %r5; add.u64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r8;
  add.u32 %r5, %r5, 128; setp.lt.u32 %p2, %r5, 32768; @%p2 bra OUT;
)";

uint64_t extent(const TensorMapView& m) {
  uint64_t bytes = m.element_bytes;
  for (unsigned j = 0; j < m.rank; ++j) bytes += (m.dims[j] - 1) * m.strides[j];
  return bytes;
}

// f(byte of the tensor or -1, byte of the buffer) for every byte of the box. The swizzle by its
// description: 16-byte unit x of the 128-byte line y goes to x ^ (y mod 2, 4 or 8).
template <class F>
void for_box(const Case& c, uint32_t shared_start, F f) {
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

TensorMapView make(unsigned dtype, std::vector<uint64_t> dims, std::vector<uint32_t> box,
                   unsigned swizzle = 0, bool nan = false, std::vector<uint32_t> steps = {}) {
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
struct Map {
  uint8_t bytes[128];
};
struct At {
  int c[5];
};

void check_load(Case c) {
  Device d;
  d.settings.async_policy = AsyncPolicy::random;
  std::vector<uint8_t> tensor(extent(c.map));
  std::mt19937 random(7);
  for (uint8_t& b : tensor) b = static_cast<uint8_t>(random());
  c.map.base = d.upload(tensor);
  REQUIRE(tensor_map_fault(c.map) == "");
  Map map;
  At at{};
  std::copy(c.at.begin(), c.at.end(), at.c);
  encode_tensor_map(c.map, map.bytes);
  d.load(kernel(c.map.rank, kLoad));
  const uint64_t out = d.upload(std::vector<uint8_t>(32768, 0));
  uint32_t bytes = 0;
  for_box(c, 1024, [&](int64_t, uint64_t) { ++bytes; });
  const Outcome o = d.run("k", 1, 32, map, out, at, bytes, c.tile);
  INFO(texts(o));
  REQUIRE(o.error == 0);
  CHECK(o.findings.empty());
  const auto got = d.download<uint8_t>(out, 32768);
  std::vector<uint8_t> want(32768, 0xA5);
  const uint32_t size = c.map.element_bytes;
  for_box(c, 1024, [&](int64_t from, uint64_t to) {
    const uint8_t nan = to % size == size - 1 ? 0x7F : 0xFF;
    want[to] = from >= 0 ? tensor[static_cast<size_t>(from)] : c.map.fill_nan ? nan : 0;
  });
  CHECK(got == want);
}

}  // namespace

TEST_CASE("boxes of one to five dimensions, inside and across every edge") {
  check_load({make(6, {100}, {64}), {7}});
  check_load({make(6, {100}, {64}), {-9}});
  check_load({make(7, {40, 30}, {32, 16}), {20, 20}});
  check_load({make(9, {64, 20}, {64, 8}), {0, -3}});
  check_load({make(2, {24, 9, 5}, {8, 4, 3}), {20, 7, -1}});
  check_load({make(0, {40, 6, 5, 4}, {32, 3, 2, 2}), {-5, 4, 4, 3}});
  check_load({make(6, {24, 5, 4, 3, 3}, {16, 2, 3, 2, 2}), {-1, 4, -1, 2, 1}});
  check_load({make(4, {10, 10}, {4, 4}), {100, 100}});  // nothing inside
}

TEST_CASE("swizzles of 32, 64 and 128 bytes at every place of the tile") {
  check_load({make(9, {64, 40}, {16, 32}, 1), {8, 4}});
  check_load({make(9, {64, 40}, {32, 32}, 2), {8, 4}});
  check_load({make(9, {128, 80}, {64, 64}, 3), {32, 9}});
  check_load({make(9, {128, 80}, {64, 16}, 3), {32, 9}, 1024});
  check_load({make(9, {128, 80}, {64, 16}, 3), {32, 9}, 128});
  check_load({make(7, {64, 80}, {32, 16}, 3), {60, 75}, 384});
}

TEST_CASE("element strides skip, NaN fills what is outside") {
  check_load({make(6, {64, 40}, {32, 16}, 0, true, {1, 3}), {48, 30}});
  check_load({make(7, {64, 40, 6}, {16, 8, 4}, 0, true, {1, 2, 2}), {-4, 35, 3}});
  check_load({make(8, {20, 7}, {8, 4}, 0, true), {-2, 5}});
}

TEST_CASE("stores leave out what is outside, reductions add") {
  for (const bool add : {false, true}) {
    Device d;
    Case c{make(7, {40, 30}, {32, 8}), {20, 25}};
    std::vector<float> tensor(extent(c.map) / 4);
    for (size_t k = 0; k < tensor.size(); ++k) tensor[k] = static_cast<float>(k);
    c.map.base = d.upload(tensor);
    struct Map {
      uint8_t bytes[128];
    } map;
    struct At {
      int c[5];
    } at{{20, 25, 0, 0, 0}};
    encode_tensor_map(c.map, map.bytes);
    const std::string op =
        add ? "cp.reduce.async.bulk.tensor.$Rd.global.shared::cta.add.tile.bulk_group"
            : "cp.async.bulk.tensor.$Rd.global.shared::cta.tile.bulk_group";
    d.load(kernel(2, R"(
  shl.b32 %r5, %t, 2;
FILL: add.u32 %r7, %r1, %r5; cvt.rn.f32.u32 %r6, %r5; st.shared.u32 [%r7], %r6; add.u32 %r5, %r5, 128;
  setp.lt.u32 %p2, %r5, 1024; @%p2 bra FILL;
  fence.proxy.async.shared::cta; bar.sync 0;
  @%p1 )" + op + R"( [%rd1, $C], [%r3];
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group 0;)"));
    const Outcome o = d.run("k", 1, 32, map, d.buffer(8), at, 1024u, 0u);
    INFO(texts(o));
    REQUIRE(o.error == 0);
    CHECK(o.findings.empty());
    std::vector<float> want = tensor;
    for_box(c, 0, [&](int64_t from, uint64_t to) {
      if (from < 0 || from % 4) return;
      float& w = want[static_cast<size_t>(from) / 4];
      w = (add ? w : 0.0f) + static_cast<float>(to);
    });
    CHECK(d.download<float>(c.map.base, tensor.size()) == want);
  }
}

TEST_CASE("maps that do not fit are findings") {
  auto finding = [](auto change, const std::string& body, const std::string& kind) {
    Device d;
    TensorMapView m = make(9, {64, 20}, {64, 8}, 3);
    m.base = d.upload(std::vector<uint8_t>(extent(m)));
    Map map;
    At at{};
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
  Case c{make(9, {64, 20}, {64, 8}, 3), {0, 16}};
  std::vector<uint8_t> tensor(extent(c.map));
  for (size_t k = 0; k < tensor.size(); ++k) tensor[k] = static_cast<uint8_t>(k * 7);
  c.map.base = d.upload(tensor);
  TensorMapView wrong = c.map;
  wrong.base = 16;
  wrong.dims[1] = 3;
  wrong.strides[1] = 16;
  struct Map {
    uint8_t bytes[128];
  } map;
  struct At {
    int c[5];
  } at{{0, 16, 0, 0, 0}};
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
