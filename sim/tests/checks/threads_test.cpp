// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A launch gives the same report and the same counters on 1, 2 and 4 host threads. In these kernels
// blocks 0, 3 and 5 take longest, so that with several threads later blocks get to a place first.
#include <atomic>
#include <cctype>
#include <thread>

#include "sim/exec/host_threads.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint32_t kBlocks = 24, kThreads = 96;
constexpr uint32_t kThreaded = kCheckAll & ~kRacecheck;  // races are looked for by one thread alone

// Rounds of the delay: some milliseconds. Instrumented code takes that long for a fiftieth of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::string kDelay = "3000";
#else
const std::string kDelay = "150000";
#endif

// %b the block, %t the thread, %g its word of the buffer; a delay in blocks 0, 3 and 5.
std::string kernel(const std::string& body) {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data) {
  .reg .pred %p<8>; .reg .b32 %r<16>, %b, %t, %s; .reg .b64 %d<8>, %base, %g;
  .shared .align 16 .b8 buffer[4096];
  ld.param.u64 %base, [data]; mov.u32 %b, %ctaid.x; mov.u32 %t, %tid.x;
  mad.lo.u32 %r0, %b, 96, %t; mul.wide.u32 %d0, %r0, 4; add.u64 %g, %base, %d0;
  mov.u32 %s, buffer; shl.b32 %r1, %t, 2; add.u32 %s, %s, %r1;
  mov.u32 %r2, 1; mov.u32 %r3, 0x29; shr.u32 %r3, %r3, %b; and.b32 %r3, %r3, 1; mad.lo.u32 %r2, %r3, )" +
         kDelay + R"(, %r2;
DELAY: sub.u32 %r2, %r2, 1; setp.ne.u32 %p0, %r2, 0; @%p0 bra DELAY;
)" + body +
         "\n  ret;\n}\n";
}

// Host addresses (0x and six digits or more) differ from run to run.
std::string without_addresses(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    size_t end = at + 2;
    if (text.compare(at, 2, "0x") == 0) {
      while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end]))) ++end;
    }
    if (end - at < 8) {
      out += text[at];
      continue;
    }
    out += '@';
    at = end - 1;
  }
  return out;
}

std::string describe(const Outcome& o) {
  std::string s = "error " + std::to_string(o.error) + "\n";
  for (const Finding& f : o.findings) {
    s += f.check + " " + f.kind + " " + f.kernel + " line " + std::to_string(f.ptx_line) + " ";
    for (const uint32_t x : f.block) s += std::to_string(x) + ",";
    for (const uint32_t x : f.thread) s += std::to_string(x) + ",";
    s += " " + std::to_string(f.bytes) + " " + without_addresses(f.text) + "\n";
  }
  const Counters& c = o.counters;
  s += std::to_string(c.warp_instructions) + " " + std::to_string(c.thread_instructions);
  for (const auto& [name, n] : c.by_class) s += " " + name + " " + std::to_string(n);
  for (const auto* t : {&c.global_load, &c.global_store, &c.global_atomic, &c.shared_load,
                        &c.shared_store, &c.local_load, &c.local_store, &c.const_load}) {
    for (const uint64_t n : {t->requests, t->bytes, t->sectors, t->minimum_sectors, t->conflicts}) {
      s += " " + std::to_string(n);
    }
  }
  return s + " " + std::to_string(c.unique_load_sectors) + " " +
         std::to_string(c.unique_store_sectors) + " " + std::to_string(c.tensor_ops);
}

struct Run {
  std::string report;
  Outcome outcome;
  std::vector<uint32_t> data;
};

Run run(const std::string& body, int threads, int share, uint64_t seed, uint32_t check) {
  Device d;
  d.settings.check = check;
  d.settings.threads = threads;
  d.settings.findings_per_pc = share;
  d.settings.seed = seed;
  const std::vector<uint32_t> zero(kBlocks * kThreads + 8);
  const uint64_t data = d.upload(zero);
  d.load(kernel(body));
  Run r;
  r.outcome = d.run("k", kBlocks, kThreads, data);
  r.report = describe(r.outcome);
  r.data = d.download<uint32_t>(data, zero.size());
  return r;
}

// Returns what a run on one host thread finds. Runs on any other number of threads must find the
// same.
Outcome same(const std::string& body, int share = 1, uint32_t check = kThreaded,
             const std::vector<uint64_t>& seeds = {0, 7}) {
  Outcome first;
  for (const uint64_t seed : seeds) {
    const Run one = run(body, 1, share, seed, check);
    for (const int threads : {1, 2, 4, 4}) {
      INFO("threads " << threads << ", seed " << seed);
      const Run many = run(body, threads, share, seed, check);
      CHECK(many.report == one.report);
      if (one.outcome.error == 0) CHECK(many.data == one.data);
    }
    first = one.outcome;
  }
  return first;
}

}  // namespace

TEST_CASE("threads: branches, barriers, shared memory, atomics") {
  const Outcome o = same(R"(
  and.b32 %r3, %t, 3; setp.eq.u32 %p1, %r3, 0; @%p1 bra OTHER;
  st.shared.u32 [%s], %r0; bra MEET;
OTHER: shl.b32 %r4, %r0, 1; st.shared.u32 [%s], %r4;
MEET: bar.sync 0;
  xor.b32 %r5, %t, 1; shl.b32 %r5, %r5, 2; mov.u32 %r6, buffer; add.u32 %r5, %r5, %r6;
  ld.shared.u32 %r7, [%r5]; st.global.u32 [%g], %r7;
  red.global.add.u32 [%base+9216], 1; atom.shared.add.u32 %r8, [%s], 1;)");
  CHECK(o.error == 0);
  CHECK(o.findings.empty());
  CHECK(o.counters.unique_store_sectors == kBlocks * kThreads * 4 / 32 + 1);
  CHECK(o.counters.global_atomic.requests == kBlocks * kThreads / 32);
}

TEST_CASE("threads: the finding that is kept is the first block's") {
  const std::string body = "  ld.shared.u32 %r3, [%s]; st.global.u32 [%g], %r3;";
  Outcome o = same(body);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "uninitialized");
  CHECK(o.findings[0].block[0] == 0);
  o = same(body, 5);
  REQUIRE(o.findings.size() == 5);
  CHECK(o.findings[2].block[0] == 0);  // each of three warps
  CHECK(o.findings[4].block[0] == 1);
  o = same("  setp.lt.u32 %p1, %b, 3; @%p1 bra END; " + body + "\nEND:");
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].block[0] == 3);
}

TEST_CASE("threads: races and copies in flight") {
  Outcome o = same(R"(
  mov.u32 %r3, buffer; shr.u32 %r4, %t, 5; st.shared.u32 [%r3], %r4;)",
                   2, kCheckAll);
  REQUIRE(!o.findings.empty());
  CHECK(o.findings[0].kind == "race");
  o = same(R"(
  cp.async.ca.shared.global [%s], [%g], 4; cp.async.commit_group;
  ld.shared.u32 %r3, [%s]; cp.async.wait_group 0;)");
  REQUIRE(!o.findings.empty());
  CHECK(o.findings[0].kind == "in_flight");
}

TEST_CASE("threads: the first block's fault is the launch's") {
  // Blocks 5 and up leave the buffer, block 9 traps at once; blocks before 5 have a finding.
  const Outcome o = same(R"(
  setp.eq.u32 %p1, %b, 9; @%p1 trap;
  ld.shared.u32 %r3, [%s];
  setp.lt.u32 %p2, %b, 5; @%p2 bra END;
  ld.global.u32 %r4, [%g+100000];
END:)",
                         100);
  CHECK(o.error == 700);
  size_t beyond = 0;
  for (const Finding& f : o.findings) {
    CHECK(f.block[0] <= 5);
    beyond += f.kind == "out_of_bounds";
  }
  CHECK(beyond == 1);
  CHECK(o.counters.warp_instructions == 0);
}

TEST_CASE("threads: a block that waits for a faulty one does not go on for ever") {
  const Outcome o = same(R"(
  setp.eq.u32 %p1, %b, 9; @%p1 trap;
  setp.ne.u32 %p2, %b, 0; @%p2 bra END;
WAIT: ld.volatile.global.u32 %r3, [%base]; setp.eq.u32 %p3, %r3, 0; @%p3 bra WAIT;
END:)",
                         1, kThreaded, {3});
  CHECK(o.error == 719);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].block[0] == 9);
}

TEST_CASE("threads: run_together begins each piece at most once and waits for it") {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int> begun[5] = {}, ended[5] = {};
        run_together(5, [&](uint64_t k) {
          ++begun[k];
          ++ended[k];
        });
        wrong += begun[0] != 1;
        for (int k = 0; k < 5; ++k) wrong += begun[k] > 1 || begun[k] != ended[k];
      }
    });
  }
  for (std::thread& t : callers) t.join();
  CHECK(wrong == 0);
}
