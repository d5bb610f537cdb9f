// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover instructions that change no value, and the last few that no other topic holds.
#include <cstdlib>

#include "sim/tests/instruction.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("hints, fences and breakpoints change nothing") {
  Device device;
  device.load(unit(R"(.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p;
  ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4;
  add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3; setp.lt.u32 %p, %r1, 9;
  prefetch.global.L2 [%d1];
  prefetchu.L1 [%d1];
  applypriority.global.L2::evict_normal [%d1], 128;
  createpolicy.fractional.L2::evict_last.b64 %d4, 0.5;
  ldu.global.u32 %r2, [%d1];
  st.global.L2::cache_hint.u32 [%d2], %r2, %d4;
  fence.acq_rel.gpu;
  membar.gl;
  @%p pmevent 3;
  pmevent.mask 0x8000;
  @%p brkpt;
  griddepcontrol.launch_dependents;
  griddepcontrol.wait;
  ret;
})"));
  std::vector<uint32_t> in(32);
  for (uint32_t k = 0; k < 32; ++k) in[k] = 3 * k + 1;
  const uint64_t out = device.upload(std::vector<uint32_t>(32, 0));
  const Outcome o = device.run("k", 1, 32, device.upload(in), out);
  INFO(texts(o));
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  CHECK(device.download<uint32_t>(out, 32) == in);
}

TEST_CASE("discarded memory is not read again here") {
  Device device;
  device.load(instruction_kernel({"discard.global.L2 [%rd2], 128; mov.b32 %d, %a;", "rr"}));
  const uint64_t out = device.upload(std::vector<uint64_t>(1, 0));
  CHECK(device.run("k", 1, 32, device.upload(std::vector<Row>{{9, 0, 0}}), out, 1u).error == 0);
  CHECK(device.download<uint64_t>(out, 1)[0] == 9);
}

TEST_CASE("cnot, copysign, vabsdiff4") {
  const std::vector<uint64_t> words = {0, 1, 0x80000000, 0x7F800000, 0x12345678, 0xFF00FF80, ~0u};
  check_rows({"cnot.b32 %d, %a;", "rr"}, product(words, {0}),
             [](const Row& r) { return uint64_t{r.a == 0}; });
  check_rows({"cnot.b16 %d, %a;", "hh"}, product({0, 1, 0xFFFF, 0x8000}, {0}),
             [](const Row& r) { return uint64_t{r.a == 0}; });
  check_rows({"cnot.b64 %d, %a;", "dd"}, product({0, 1ull << 40, 5}, {0}),
             [](const Row& r) { return uint64_t{r.a == 0}; });
  check_rows({"copysign.f32 %d, %a, %b;", "rrr"}, product(words, words),
             [](const Row& r) { return (r.a >= 0x80000000 ? 0x80000000 : 0) + r.b % 0x80000000; });
  check_rows(
      {"vabsdiff4.u32.u32.u32 %d, %a, %b, %c;", "rrrr"}, product(words, words), [](const Row& r) {
        uint64_t all = 0;
        for (int k = 3; k >= 0; --k) {
          const int x = static_cast<int>(r.a >> 8 * k & 255);
          all =
              256 * all + static_cast<uint64_t>(std::abs(x - static_cast<int>(r.b >> 8 * k & 255)));
        }
        return all;
      });
}

TEST_CASE("a trap under a guard is reached by its lanes alone") {
  for (const int limit : {40, 20}) {
    Device device;
    device.load(instruction_kernel({".reg .pred %u; setp.gt.u32 %u, %a, " + std::to_string(limit) +
                                        "; @%u trap; mov.b32 %d, %a;",
                                    "rr"}));
    std::vector<Row> rows(32);
    for (size_t k = 0; k < rows.size(); ++k) rows[k].a = k;
    const uint64_t out = device.upload(std::vector<uint64_t>(32, 0));
    const Outcome o = device.run("k", 1, 32, device.upload(rows), out, 32u);
    CHECK(o.error == (limit == 40 ? 0 : 719));
    if (limit == 40) continue;
    REQUIRE(o.findings.size() == 1);
    CHECK(o.findings[0].kind == "trap");
    CHECK(o.findings[0].thread[0] == 21);
  }
}
