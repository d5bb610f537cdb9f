// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster are replayed together, each on a multiprocessor of its own.
//   [luo]    Luo et al., Dissecting the Nvidia Hopper architecture (arXiv 2402.13499, 2501.12084):
//            shared memory of another block of the cluster is 180 cycles away
#include "sim/tests/clock/clock_run.h"

using namespace sim;
using namespace sim::test;

namespace {

clock::KernelTime time_of(const std::string& text, uint32_t threads, bool ptx_only) {
  Device device;
  device.settings.check = kMemcheck;
  device.dynamic_shared = 64 * 1024;
  device.cluster = 2;
  device.load(text);
  const uint64_t from = device.buffer(1 << 20);
  const Timed timed = run_timed(device, "h100", {0, ptx_only}, 2, 2, threads, from);
  CHECK(timed.time.from == (ptx_only ? "ptx" : "sass"));
  CHECK(!timed.time.replay.stuck);
  return timed.time;
}

std::vector<bool> ways() {
  const std::string empty = unit(".visible .entry k() {\n ret;\n}\n");
  const clock::Listing listing = clock::list_machine_code(empty, "sm_90a");
  if (!listing.text.empty()) return {true, false};
  MESSAGE("from PTX alone, as " << listing.why);
  return {true};
}

const std::string kBegin =
    "\n.extern .shared .align 1024 .b8 room[];\n"
    ".visible .entry k(.param .u64 from) .reqnctapercluster 2, 1, 1 {\n"
    " .reg .b64 %d<8>; .reg .b32 %r<12>; .reg .pred %p<6>;\n"
    " ld.param.u64 %d0, [from];\n mov.u32 %r0, room;\n mov.u32 %r1, %cluster_ctarank;\n"
    " xor.b32 %r2, %r1, 1;\n mapa.shared::cluster.u32 %r3, %r0, %r2;\n mov.u32 %r4, %tid.x;\n"
    " setp.ne.u32 %p0, %r4, 0;\n @%p0 bra READY;\n mbarrier.init.shared.b64 [%r0], 1;\n"
    " fence.mbarrier_init.release.cluster;\nREADY:\n"
    " barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;\n"
    " setp.ne.u32 %p1, %r1, 0;\n";
const std::string kEnd =
    " barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;\n ret;\n}\n";

// Block 0 arrives at the mbarrier of block 1 and waits for its own, block 1 the other way around.
std::string round_trips(int rounds) {
  std::string body = kBegin + " @%p1 bra SECOND;\n";
  for (const bool first : {true, false}) {
    if (!first) body += "SECOND:\n";
    for (int k = 0; k < rounds; ++k) {
      const std::string label = (first ? "A" : "B") + std::to_string(k);
      const std::string arrive =
          " @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];\n";
      const std::string wait =
          label + ":\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r0], " +
          std::to_string(k % 2) + ";\n @!%p3 bra " + label + ";\n";
      body += first ? arrive + wait : wait + arrive;
    }
    if (first) body += " bra END;\n";
  }
  return unit(body + "END:\n" + kEnd);
}

// Each block brings `bytes` of its own a round, or half of what both then have.
std::string loads(bool multicast, int rounds, uint32_t bytes) {
  const uint32_t own = multicast ? bytes / 2 : bytes;
  std::string body =
      kBegin + " mul.lo.u32 %r5, %r1, " + std::to_string(multicast ? own : rounds * bytes) +
      ";\n add.u32 %r6, %r0, 1024;\n" + (multicast ? " add.u32 %r6, %r6, %r5;\n" : "") +
      " cvt.u64.u32 %d1, %r5;\n add.u64 %d0, %d0, %d1;\n mov.u16 %h0, 3;\n";
  body.insert(body.find(" .reg .b64"), " .reg .b16 %h<2>;\n");
  for (int k = 0; k < rounds; ++k) {
    const std::string label = "WAIT" + std::to_string(k), at = std::to_string(k * bytes);
    body += " @%p0 bra " + label + ";\n mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], " +
            std::to_string(bytes) + ";\n";
    // Nobody sends bytes before both expect them.
    const std::string copy = " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" +
                             std::string(multicast ? ".multicast::cluster" : "") +
                             " [%r6], [%d0 + " + at + "], " + std::to_string(own) + ", [%r0]" +
                             (multicast ? ", %h0" : "") + ";\n";
    body += copy + label + ":\n mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r0], " +
            std::to_string(k % 2) + ";\n @!%p3 bra " + label +
            ";\n barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;\n";
  }
  return unit(body + kEnd);
}

}  // namespace

TEST_CASE("an arrival at another block's mbarrier takes the way between multiprocessors") {
  for (const bool ptx_only : ways()) {
    const double cycles = time_of(round_trips(24), 32, ptx_only).cycles -
                          time_of(round_trips(8), 32, ptx_only).cycles;
    const double trip = cycles / 16;
    CAPTURE(trip);
    CHECK(trip > 2 * 180);              // [luo], each way
    CHECK(trip < 2 * (180 + 87 + 40));  // and what an arrival in the block takes
  }
}

TEST_CASE("a multicast reads L2 once for both blocks") {
  for (const bool ptx_only : ways()) {
    const auto own = time_of(loads(false, 8, 32768), 32, ptx_only);
    const auto shared = time_of(loads(true, 8, 32768), 32, ptx_only);
    CHECK(own.replay.l2_bytes == doctest::Approx(8 * 32768));
    CHECK(shared.replay.l2_bytes == doctest::Approx(8 * 16384));
    // Each block still takes all bytes over its own port of 64 bytes a cycle.
    CHECK(shared.cycles > 8 * 32768 / 64);
    CHECK(shared.cycles < 1.1 * own.cycles);
  }
}

TEST_CASE("a barrier of the cluster waits for the slowest warp of both blocks") {
  for (const bool ptx_only : ways()) {
    const auto slow = [](int products) {
      std::string body = kBegin + " .reg .f32 %f<4>;\n mov.f32 %f0, 0f3F800000;\n @%p1 bra MEET;\n";
      for (int k = 0; k < products; ++k) body += " fma.rn.f32 %f0, %f0, %f0, %f0;\n";
      return unit(body + " st.shared.f32 [%r0 + 512], %f0;\nMEET:\n" + kEnd);
    };
    const double cycles =
        time_of(slow(1200), 64, ptx_only).cycles - time_of(slow(200), 64, ptx_only).cycles;
    CHECK(cycles == doctest::Approx(4 * 1000).epsilon(0.05));  // dependent ones, 4 cycles each
  }
}

TEST_CASE("a grid takes the time of its slower blocks where they share clusters with fast ones") {
  // Block 0 of each cluster works, block 1 has nothing to do; a multiprocessor has room for one.
  std::string body = kBegin + " .reg .f32 %f<4>;\n mov.f32 %f0, 0f3F800000;\n @%p1 bra OVER;\n";
  for (int k = 0; k < 3000; ++k) body += " fma.rn.f32 %f0, %f0, %f0, %f0;\n";
  body += " st.shared.f32 [%r0 + 512], %f0;\nOVER:\n ret;\n}\n";
  const auto cycles = [&](uint32_t blocks) {
    Device device;
    device.dynamic_shared = 200 * 1024;
    device.cluster = 2;
    device.load(unit(body));
    const uint64_t from = device.buffer(1 << 10);
    const Timed timed = run_timed(device, "h100", {0, true}, 8, blocks, 32, from);
    CHECK(timed.time.resident == 1);
    return timed.time.cycles;
  };
  const double wave = cycles(132), three = cycles(3 * 132);
  CHECK(wave > 3000 * 4);
  CHECK(three == doctest::Approx(3 * wave).epsilon(0.1));
}
