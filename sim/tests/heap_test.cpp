// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover malloc and free of kernels, and the grid barrier of cooperative groups.
#include "sim/exec/heap.h"

#include <algorithm>

#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

// %w0: what malloc returned for %bytes.
std::string kernel(const std::string& body) {
  return unit(R"(.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 pointer);
.visible .entry k(.param .u64 out, .param .u64 bytes) {
  .reg .pred %p<4>; .reg .b32 %i, %t, %r<8>; .reg .b64 %out, %bytes, %rd<8>, %w<4>;
  mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mov.u32 %r0, %ntid.x; mad.lo.u32 %i, %i, %r0, %t;
  ld.param.u64 %out, [out]; ld.param.u64 %bytes, [bytes]; mad.wide.u32 %out, %i, 8, %out;
)" + body + "  ret;\n}\n");
}
const char* const kTake = R"(
  { .param .b64 p; .param .b64 r; st.param.b64 [p], %bytes;
    call.uni (r), malloc, (p); ld.param.b64 %w0, [r]; }
)";
const char* const kGive = R"(
  { .param .b64 p; st.param.b64 [p], %w0; call.uni free, (p); }
)";

Outcome run_heap(Device& device, const std::string& ptx, Heap* heap, uint64_t bytes,
                 std::vector<uint64_t>* pointers) {
  device.load(ptx);
  device.heap = heap;
  const uint64_t out = device.upload(std::vector<uint64_t>(64, 0));
  const Outcome o = device.run("k", 2, 32, out, bytes);
  *pointers = device.download<uint64_t>(out, 64);
  return o;
}

}  // namespace

TEST_CASE("malloc gives every thread memory of its own, until the heap is full") {
  Device device;
  Heap heap(&device.memory, 1 << 20);
  std::vector<uint64_t> pointers;
  const std::string ptx = kernel(std::string(kTake) + R"(
    st.global.u64 [%out], %w0; setp.eq.u64 %p1, %w0, 0; @%p1 ret;
    add.u64 %w1, %w0, %bytes; st.u32 [%w1+-4], %i; st.u32 [%w0], %i; ld.u32 %r1, [%w0];
    setp.ne.u32 %p2, %r1, %i; @%p2 trap;
  )");
  for (const uint64_t bytes : {8ull, 100ull, 4096ull, 60000ull, 2ull << 20}) {
    const Outcome o = run_heap(device, ptx, &heap, bytes, &pointers);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    std::erase(pointers, 0);
    std::sort(pointers.begin(), pointers.end());
    for (size_t k = 0; k < pointers.size(); ++k) {
      CHECK(pointers[k] % 16 == 0);
      if (k) CHECK(pointers[k] >= pointers[k - 1] + bytes);
    }
    if (bytes <= 4096) {
      CHECK(pointers.size() == 64);
    } else {
      CHECK(pointers.size() == (bytes < 1 << 20 ? ((1 << 20) - 300000) / bytes : 0));
    }
  }
}

TEST_CASE("what was freed is given again, by a later kernel too, and a leak is no finding") {
  Device device;
  Heap heap(&device.memory, 1 << 16);
  std::vector<uint64_t> first, second;
  const std::string take = kernel(std::string(kTake) + "st.global.u64 [%out], %w0;\n");
  CHECK(run_heap(device, take, &heap, 900, &first).findings.empty());
  CHECK(std::count(first.begin(), first.end(), 0) == 0);
  CHECK(run_heap(device, take, &heap, 900, &second).findings.empty());
  CHECK(std::count(second.begin(), second.end(), 0) > 0);  // the first kernel's are still held
  for (const uint64_t p : first) CHECK(heap.release(p));
  for (const uint64_t p : second) CHECK(heap.release(p) == (p != 0));
  CHECK_FALSE(heap.release(first[0]));
  const uint64_t all = heap.allocate((1 << 16) - 16);  // the pieces have grown together
  CHECK(all != 0);
  CHECK(heap.allocate(1) == 0);
  CHECK(heap.release(all));
  const Outcome round = run_heap(device, kernel(std::string(kTake) + "st.u64 [%w0], %w0;" + kGive),
                                 &heap, 2000, &second);
  INFO(texts(round));
  CHECK(round.error == 0);
  CHECK(round.findings.empty());
}

TEST_CASE("free of null does nothing") {
  Device device;
  std::vector<uint64_t> pointers;
  const Outcome o =
      run_heap(device, kernel(std::string("mov.u64 %w0, 0;") + kGive), nullptr, 8, &pointers);
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
}

namespace {

// cooperative_groups::grid_group::sync() as nvcc 13.0 compiles it: thread 0 of every block adds to
// the word after the workspace's size, block 0 as much that the top bit flips with the last one.
const char* const kGridSync = R"(
  { .reg .pred %q<4>; .reg .b32 %e<9>; .reg .b64 %ws, %lo, %hi;
    mov.u32 %e0, %envreg2; cvt.u64.u32 %lo, %e0; mov.u32 %e1, %envreg1; cvt.u64.u32 %hi, %e1;
    bfi.b64 %ws, %hi, %lo, 32, 32; setp.ne.s64 %q0, %ws, 0; @!%q0 trap; add.s64 %ws, %ws, 4;
    barrier.sync 0; setp.ne.u32 %q1, %t, 0; @%q1 bra MET;
    mov.u32 %e2, %nctaid.x; mov.u32 %e3, -2147483647; sub.s32 %e3, %e3, %e2;
    mov.u32 %e4, %ctaid.x; setp.eq.u32 %q2, %e4, 0; selp.b32 %e5, %e3, 1, %q2;
    atom.add.release.gpu.u32 %e6, [%ws], %e5;
  SPIN: ld.acquire.gpu.u32 %e7, [%ws];
    xor.b32 %e8, %e7, %e6; setp.gt.s32 %q3, %e8, -1; @%q3 bra SPIN;
  MET: barrier.sync 0; }
)";

// Every thread stores, all meet, and each reads what the last thread of the next block stored.
std::string meeting() {
  return unit(std::string(R"(.visible .entry k(.param .u64 out) {
  .reg .pred %p<4>; .reg .b32 %i, %t, %r<8>; .reg .b64 %out, %a, %b;
  mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, 64, %t;
  ld.param.u64 %out, [out]; mad.wide.u32 %a, %i, 4, %out; st.global.u32 [%a], %i;
)") + kGridSync +
              R"(
  mov.u32 %r0, %ctaid.x; add.u32 %r0, %r0, 1; mov.u32 %r1, %nctaid.x; rem.u32 %r0, %r0, %r1;
  mad.lo.u32 %r0, %r0, 64, 63; mad.wide.u32 %b, %r0, 4, %out; ld.global.u32 %r2, [%b];
)" + kGridSync +
              R"(
  st.global.u32 [%a], %r2;
  ret;
}
)");
}

}  // namespace

TEST_CASE("grid.sync() of a cooperative launch: every block is resident, nothing races") {
  for (const uint32_t blocks : {1u, 2u, 37u, 150u}) {
    for (const uint64_t seed : {0ull, 5ull}) {
      Device device;
      device.cooperative = true;
      device.settings.seed = seed;
      device.settings.instruction_limit = 400'000'000;
      check_values(run_values(device, meeting(), blocks, 64),
                   [&](uint32_t i) { return (i / 64 + 1) % blocks * 64 + 63; });
    }
  }
}

TEST_CASE("grid.sync() of an ordinary launch finds no workspace") {
  Device device;
  const Outcome o = run_values(device, meeting(), 2, 64).outcome;
  CHECK(o.error == 719);
  CHECK(kinds(o) == "trap");
}
