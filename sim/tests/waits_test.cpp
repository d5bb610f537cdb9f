// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover samples of grids whose blocks wait for one another: which functions can run
// block by block, and what such a block then sees.
#include <doctest/doctest.h>

#include "sim/ptx/code.h"
#include "sim/tests/checks/litmus.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint32_t kBlocks = 64, kSample = 4;

// Blocks take tickets and go on in their order; each leaves its ticket at its own place.
std::string chain(const std::string& loop) {
  return unit(R"(.visible .entry k(.param .u64 words, .param .u64 out) {
  .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [words]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
  atom.relaxed.gpu.global.add.u32 %r2, [%rd1], 1;
)" + loop + R"(
  add.u32 %r3, %r2, 1; st.release.gpu.global.u32 [%rd1+4], %r3;
  mov.u32 %r4, %ctaid.x; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd2, %rd3;
  st.global.u32 [%rd3], %r3;
END:
  ret;
})",
              "sm_80");
}

constexpr const char* kLeftByFall =
    "AGAIN: ld.acquire.gpu.global.u32 %r5, [%rd1+4]; setp.ne.u32 %p2, %r5, %r2; @%p2 bra AGAIN;";
constexpr const char* kLeftByJump =
    "AGAIN: ld.relaxed.gpu.global.u32 %r5, [%rd1+4]; setp.eq.u32 %p2, %r5, %r2; @%p2 bra OVER; "
    "nanosleep.u32 20; bra AGAIN;\nOVER: fence.acq_rel.gpu;";

}  // namespace

TEST_CASE("in which functions a block can run without those that it waits for") {
  auto alone = [](const std::string& body) {
    Device device;
    device.load(litmus_kernel(body + "\n"));
    const Function& f = *device.module->find_kernel("k")->code;
    CHECK(f.sees_blocks);
    return f.alone_if_sampled;
  };
  const std::string ticket = "atom.global.add.u32 %r2, [%rd1], 1; st.global.u32 [%rd3], %r2; ";
  const std::string look = "W: ld.acquire.gpu.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; ";
  CHECK(alone(look + "@%p1 bra W;"));
  CHECK(alone(ticket + look + "@%p1 bra W;"));
  CHECK(alone("W: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra W;"));
  // The value that the load brings decides about more than waiting.
  CHECK_FALSE(alone("ld.acquire.gpu.global.u32 %r1, [%rd1]; st.global.u32 [%rd3], %r1;"));
  CHECK_FALSE(alone(look + "@%p1 bra W; ld.relaxed.gpu.global.u32 %r3, [%rd1+4];"));
  // The loop changes memory, or meets other threads.
  CHECK_FALSE(alone(look + "st.global.u32 [%rd3], %r1; @%p1 bra W;"));
  CHECK_FALSE(alone(look + "bar.sync 0; @%p1 bra W;"));
  // Counters without a wait, and locks.
  CHECK_FALSE(alone(ticket));
  CHECK_FALSE(
      alone("W: atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; "
            "@%p1 bra W;"));
  CHECK_FALSE(alone("atom.global.exch.b32 %r3, [%rd1], 1; st.global.u32 [%rd3], %r3; " + look +
                    "@%p1 bra W;"));
}

TEST_CASE("a sampled block does not wait, and its ticket is its own number") {
  for (const char* loop : {kLeftByFall, kLeftByJump}) {
    CAPTURE(loop);
    Device device;
    device.load(chain(loop));
    device.settings.check = kMemcheck;
    device.settings.instruction_limit = 100'000;
    device.settings.sample_blocks = kSample;
    const uint64_t words = device.upload(std::vector<uint32_t>(2, 0));
    const uint64_t out = device.upload(std::vector<uint32_t>(kBlocks, 0));
    const Outcome o = device.run("k", kBlocks, 32, words, out);
    CAPTURE(texts(o));
    CHECK(o.error == 0);
    CHECK(o.counters.sampled_blocks == kSample);
    CHECK(o.counters.waits_left_out);
    uint32_t ran = 0;
    const auto seen = device.download<uint32_t>(out, kBlocks);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      if (seen[block] == 0) continue;
      ++ran;
      CHECK(seen[block] == block + 1);
    }
    CHECK(ran == kSample);
  }
}

TEST_CASE("a whole grid waits, with tickets from the counter") {
  for (const char* loop : {kLeftByFall, kLeftByJump}) {
    CAPTURE(loop);
    Device device;
    device.load(chain(loop));
    device.settings.check = kMemcheck;
    const uint64_t words = device.upload(std::vector<uint32_t>{100, 100});
    const uint64_t out = device.upload(std::vector<uint32_t>(kBlocks, 0));
    const Outcome o = device.run("k", kBlocks, 32, words, out);
    CAPTURE(texts(o));
    CHECK(o.error == 0);
    CHECK_FALSE(o.counters.waits_left_out);
    auto seen = device.download<uint32_t>(out, kBlocks);
    std::sort(seen.begin(), seen.end());
    for (uint32_t i = 0; i < kBlocks; ++i) CHECK(seen[i] == 101 + i);
    CHECK(device.download<uint32_t>(words, 2) == std::vector<uint32_t>{164, 164});
  }
}
