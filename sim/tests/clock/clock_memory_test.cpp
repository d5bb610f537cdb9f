// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of L1, L2 and DRAM:
//   [benches] te42kyfo/gpu-benches, which has its results in its folders. gpu-latency, one load
//   after
//             the other: A100 80 GB L1 36 cycles, L2 211, DRAM 568 to 572; H100 PCIe L1 34, L2 265,
//             DRAM 644 to 658. gpu-stream, `read` with two blocks of 32 threads a multiprocessor
//             that load eight bytes each and end: A100 85 GB/s, H100 PCIe 96, which is 116 for 132
//             multiprocessors at 1.83 GHz; `scale` with full ones: A100 1732 GB/s.
//             gpu-l2-cache, 4 to 30 MB that all read: A100 5400 GB/s, which are 35.5 bytes a cycle
//             of each multiprocessor, H100 PCIe 6990 (35), H200 10000 (38 at 1.98 GHz).
//   [hpmll]   HPMLL/NVIDIA-Hopper-Benchmark, of the authors of arXiv 2402.13499, random_latency:
//   A100
//             PCIe L1 33, L2 203, DRAM 523 to 565; H800 L1 32, L2 264, DRAM 600 to 649
//   [prasenjit] Prasenjit C., HBM on NVIDIA GPUs, part 2 (prasenjit-c.github.io), and
//             prasenjit-c/cuda-tests, hbm-stream.cu: one block of 1024 threads reads 16 GB/s on an
//             A100 (1.41 GHz) and 21 GB/s on an H200 (1.98 GHz)
//   [sheet]   A100 80 GB: 2.04 TB/s; H100 SXM: 3.35 TB/s
#include "sim/tests/clock/clock_bench.h"

using namespace sim;
using namespace sim::test;

namespace {

struct Gpu {
  std::string name, arch;
};
const Gpu kA100 = {"a100", "sm_80"}, kH100 = {"h100", "sm_90a"}, kH200 = {"h200", "sm_90a"};

// Cycles of each load of a way through `lines` places in memory, `rounds` times, one load after
// the other. Those after the first round find them in a cache, if it is large enough.
double chase(const Gpu& gpu, int lines, int rounds, bool ptx_only) {
  constexpr uint64_t kStride = 4096;
  constexpr int kUnrolled = 16;
  Device device(gpu.arch);
  device.settings.check = kMemcheck;
  const int loads = lines * rounds;
  device.load(
      unit("\n.visible .entry k(.param .u64 start) {\n .reg .b64 %d<4>; .reg .b32 %r; .reg "
           ".pred %p;\n ld.param.u64 %d0, [start];\n mov.u32 %r, " +
               std::to_string(loads / kUnrolled) + ";\nLOOP:\n" +
               repeated(kUnrolled, " ld.global.u64 %d0, [%d0];\n") +
               " sub.u32 %r, %r, 1;\n setp.ne.u32 %p, %r, 0;\n @%p bra LOOP;\n"
               " st.global.u64 [%d0 + 8], %d0;\n ret;\n}\n",
           gpu.arch));
  const uint64_t at = device.upload(std::vector<uint64_t>((lines + 1) * kStride / 8, 0));
  auto* words = reinterpret_cast<uint64_t*>(at);
  for (int k = 0; k < lines; ++k) {
    words[static_cast<size_t>(k) * kStride / 8] = at + (k + 1) % lines * kStride;
  }
  clock::ReplayOptions options;
  options.ptx_only = ptx_only;
  const Timed timed = run_timed(device, gpu.name, options, 1, 1, 1, at);
  CHECK(timed.time.from == (ptx_only ? "ptx" : "sass"));
  return timed.time.cycles / loads;
}

// Bytes a second of blocks that load eight bytes a thread and end.
double small_blocks(const Gpu& gpu, uint32_t threads) {
  Device device(gpu.arch);
  device.settings.check = kMemcheck;
  device.load(
      unit("\n.extern .shared .align 16 .b8 room[];\n"
           ".visible .entry k(.param .u64 from) {\n .reg .b64 %d<6>; .reg .b32 %r<6>; .reg "
           ".pred %p;\n ld.param.u64 %d0, [from];\n mov.u32 %r0, %ctaid.x;\n mov.u32 %r1, "
           "%ntid.x;\n mov.u32 %r2, %tid.x;\n mad.lo.u32 %r3, %r0, %r1, %r2;\n"
           " mul.wide.u32 %d1, %r3, 8;\n add.u64 %d2, %d0, %d1;\n"
           " ld.global.u64 %d3, [%d2];\n setp.eq.u64 %p, %d3, 77;\n"
           " @%p st.global.u64 [%d2], %d0;\n ret;\n}\n",
           gpu.arch));
  device.dynamic_shared = gpu.name == "a100" ? 80 * 1024 : 110 * 1024;  // two fit
  const uint32_t blocks = 40'000;
  const uint64_t from = device.buffer(uint64_t{blocks} * threads * 8);
  device.settings.sample_blocks = 64;
  return run_timed(device, gpu.name, {0, true}, 16, blocks, threads, from).time.gigabytes_per_s;
}

// Bytes a cycle of each multiprocessor when all read the same 4 MB, which L1 does not hold.
double of_l2(const Gpu& gpu) {
  Device device(gpu.arch);
  device.settings.check = kMemcheck;
  std::string body =
      "\n.visible .entry k(.param .u64 from) {\n .reg .b64 %d<6>; .reg .b32 %r<90>; .reg .pred "
      "%p;\n"
      " ld.param.u64 %d0, [from];\n mov.u32 %r0, %tid.x;\n mul.wide.u32 %d1, %r0, 16;\n"
      " add.u64 %d0, %d0, %d1;\n mov.u32 %r1, 32;\nLOOP:\n";
  for (int k = 0; k < 8; ++k) {
    const std::string n = std::to_string(k), at = std::to_string(16384 * k);
    body += " ld.global.v4.u32 {%r1" + n + ", %r2" + n + ", %r3" + n + ", %r4" + n + "}, [%d0 + " +
            at + "];\n";
  }
  for (int k = 0; k < 8; ++k) body += " add.u32 %r5, %r5, %r1" + std::to_string(k) + ";\n";
  body +=
      " add.u64 %d0, %d0, 131072;\n sub.u32 %r1, %r1, 1;\n setp.ne.u32 %p, %r1, 0;\n"
      " @%p bra LOOP;\n";
  body += " setp.eq.u32 %p, %r5, 7;\n @%p st.global.u32 [%d0+-16], %r5;\n ret;\n}\n";
  device.load(unit(body, gpu.arch));
  const uint64_t from = device.buffer(4 << 20);
  const uint32_t blocks = gpu.name == "a100" ? 108 : 132;  // one a multiprocessor
  const Timed timed = run_timed(device, gpu.name, {0, true}, 2, blocks, 1024, from);
  return (4 << 20) / timed.time.cycles;
}

// Bytes a cycle that one block reads.
double one_block(const Gpu& gpu, bool ptx_only) {
  constexpr int kRounds = 24;
  Device device(gpu.arch);
  device.settings.check = kMemcheck;
  device.load(
      unit("\n.visible .entry k(.param .u64 from) {\n .reg .b64 %d<6>; .reg .b32 %r<6>; .reg "
           ".pred %p;\n ld.param.u64 %d0, [from];\n mov.u32 %r0, %tid.x;\n"
           " mul.wide.u32 %d1, %r0, 8;\n add.u64 %d2, %d0, %d1;\n mov.u64 %d4, 0;\n"
           " mov.u32 %r1, " +
               std::to_string(kRounds) +
               ";\nLOOP:\n ld.global.u64 %d3, [%d2];\n add.u64 %d4, %d4, %d3;\n"
               " and.b64 %d3, %d3, 1;\n add.u64 %d2, %d2, %d3;\n add.u64 %d2, %d2, 8192;\n"
               " sub.u32 %r1, %r1, 1;\n setp.ne.u32 %p, %r1, 0;\n @%p bra LOOP;\n"
               " setp.eq.u64 %p, %d4, 77;\n @%p st.global.u64 [%d0], %d4;\n ret;\n}\n",
           gpu.arch));
  const uint64_t from = device.upload(std::vector<uint64_t>((kRounds + 1) * 1024, 0));
  const Timed timed = run_timed(device, gpu.name, {0, ptx_only}, 1, 1, 1024, from);
  CHECK(timed.time.from == (ptx_only ? "ptx" : "sass"));
  return kRounds * 8192 / timed.time.cycles;
}

double copied(const Gpu& gpu) {
  Device device(gpu.arch);
  std::string body =
      "\n.visible .entry k(.param .u64 from, .param .u64 to) {\n"
      " .reg .b64 %d<8>; .reg .b32 %r<40>;\n ld.param.u64 %d0, [from];\n"
      " ld.param.u64 %d1, [to];\n mov.u32 %r0, %ctaid.x;\n mov.u32 %r1, %tid.x;\n"
      " mad.lo.u32 %r2, %r0, 1024, %r1;\n mul.wide.u32 %d2, %r2, 16;\n"
      " add.u64 %d3, %d0, %d2;\n add.u64 %d4, %d1, %d2;\n";
  auto four = [](int k) {
    const std::string n = std::to_string(k);
    return "{%r1" + n + ", %r2" + n + ", %r3" + n + ", %r" + std::to_string(4 + k) + "}";
  };
  for (int k = 0; k < 4; ++k) {
    body += " ld.global.v4.u32 " + four(k) + ", [%d3 + " + std::to_string(4096 * k) + "];\n";
  }
  for (int k = 0; k < 4; ++k) {
    body += " st.global.v4.u32 [%d4 + " + std::to_string(4096 * k) + "], " + four(k) + ";\n";
  }
  device.load(unit(body + " ret;\n}\n", gpu.arch));
  const uint32_t blocks = 16384;
  const uint64_t bytes = uint64_t{blocks} * 1024 * 16;
  const uint64_t from = device.buffer(bytes), to = device.buffer(bytes);
  device.settings.check = kMemcheck;
  device.settings.sample_blocks = 64;
  const Timed timed = run_timed(device, gpu.name, {0, true}, 32, blocks, 256, from, to);
  CHECK(timed.time.bound == "DRAM");
  return timed.time.gigabytes_per_s;
}

// Cycles of a round of warps that fill the device, four blocks of four on each multiprocessor, each
// of which waits for its 512 bytes from DRAM, and stores them if `stores`.
double round_of_walk(const Gpu& gpu, bool stores, bool ptx_only) {
  constexpr int kRounds = 64;
  constexpr uint32_t kBlocks = 132 * 4, kThreads = 128;
  Device device(gpu.arch);
  const std::string four = "{%r10, %r11, %r12, %r13}";
  device.load(
      unit("\n.visible .entry k(.param .u64 from, .param .u64 to) {\n .reg .b64 %d<8>;\n"
           " .reg .b32 %r<20>; .reg .pred %p;\n ld.param.u64 %d0, [from];\n"
           " ld.param.u64 %d1, [to];\n mov.u32 %r0, %ctaid.x;\n mov.u32 %r1, %tid.x;\n"
           " mad.lo.u32 %r2, %r0, 128, %r1;\n mul.wide.u32 %d2, %r2, 16;\n"
           " add.u64 %d3, %d0, %d2;\n add.u64 %d4, %d1, %d2;\n mov.u32 %r3, " +
               std::to_string(kRounds) + ";\n mov.u32 %r4, 0;\nLOOP:\n ld.global.v4.u32 " + four +
               ", [%d3];\n xor.b32 %r4, %r4, %r10;\n" +
               (stores ? " st.global.v4.u32 [%d4], " + four + ";\n" : "") +
               " and.b32 %r5, %r4, 1;\n mul.wide.u32 %d5, %r5, 16;\n add.u64 %d3, %d3, %d5;\n"
               " add.u64 %d3, %d3, 1081344;\n add.u64 %d4, %d4, 1081344;\n sub.u32 %r3, %r3, 1;\n"
               " setp.ne.u32 %p, %r3, 0;\n @%p bra LOOP;\n setp.eq.u32 %p, %r4, 77;\n"
               " @%p st.global.u32 [%d1], %r4;\n ret;\n}\n",
           gpu.arch));
  const uint64_t bytes = uint64_t{kRounds + 1} * kBlocks * kThreads * 16;
  const uint64_t from = device.buffer(bytes), to = device.buffer(bytes);
  device.settings.check = kMemcheck;
  device.settings.sample_blocks = 16;
  const Timed timed = run_timed(device, gpu.name, {0, ptx_only}, 8, kBlocks, kThreads, from, to);
  return timed.time.cycles / kRounds;
}

}  // namespace

TEST_CASE("the latency of a load from L1") {
  for (const bool ptx_only : ways()) {
    CAPTURE(ptx_only);
    within("H100", chase(kH100, 16, 100, ptx_only), 34 + 231 / 100.0, 0.12);  // [benches]
    within("A100", chase(kA100, 16, 100, ptx_only), 36 + 175 / 100.0, 0.12);
  }
}

// 4096 lines are 512 KB, more than L1 holds; a quarter of the loads of four rounds go to DRAM.
TEST_CASE("the latency of a load from L2 and DRAM: H100") {
  for (const bool ptx_only : ways()) {
    CAPTURE(ptx_only);
    within("L2", chase(kH100, 4096, 4, ptx_only), (3 * 265 + 650) / 4.0, 0.09);  // [benches]
    within("DRAM", chase(kH100, 64, 1, ptx_only), 650, 0.10);
  }
}

TEST_CASE("the latency of a load from L2 and DRAM: A100") {
  for (const bool ptx_only : ways()) {
    within("L2", chase(kA100, 4096, 4, ptx_only), (3 * 211 + 568) / 4.0, 0.10);  // [benches]
    within("DRAM", chase(kA100, 64, 1, ptx_only), 568, 0.10);
  }
}

TEST_CASE("latencies of loads, beside an H200") {
  for (const bool ptx_only : ways()) {
    CAPTURE(ptx_only);
    beside("L1", chase(kH200, 16, 100, ptx_only), 32.07 + 249 / 100.0, 1.06);
    beside("L2", chase(kH200, 4096, 4, ptx_only), (3 * 280.8 + 658) / 4, 0.95, 0.06);
    beside("DRAM", chase(kH200, 64, 1, ptx_only), 658, 0.98, 0.06);
  }
}

TEST_CASE("L2 gives each of all multiprocessors a bit more than half a port") {
  within("A100", of_l2(kA100), 35.5, 0.12);  // [benches]
  within("H200", of_l2(kH200), 38, 0.12);
}

// One block of 1024 threads, each of which waits for its eight bytes before it asks for more. The
// published figures are read off a chart. The clock is 13 % (H200) and 20 % (A100) above them, as
// it knows the latency of DRAM but not what translations of addresses add.
TEST_CASE("what one block reads from DRAM") {
  for (const bool ptx_only : ways()) {
    CAPTURE(ptx_only);
    within("A100", one_block(kA100, ptx_only), 16 / 1.41, 0.23);  // [prasenjit]
    const double h200 = one_block(kH200, ptx_only);
    within("H200", h200, 21 / 1.98, 0.16);
    beside("H200", h200, 10.88, 1.11, 0.06);
  }
}

TEST_CASE("one load of each small block: the latency of DRAM, and what a block's start takes") {
  within("A100", small_blocks(kA100, 32), 85, 0.15);
  within("H100", small_blocks(kH100, 32), 116, 0.15);
}

TEST_CASE("a copy of the whole device runs at the bandwidth of its memory") {
  within("A100", copied(kA100), 1732, 0.10);
  // Copies reach 81 % of the sheet [benches] on H100 PCIe, reads 96 % ([hpmll], tma_bw).
  within("H100", copied(kH100), 0.88 * 3350, 0.10);
  beside("H200", copied(kH200), 4030.8, 1, 0.06);
}

// conv1d's kernels of 2026-11-26 walked like this: 42.9 us for 134 MB in float32, of which the
// clock had 0.80 while it knew no turns, and 0.97 since.
TEST_CASE("a load among stores waits for DRAM's turn to write") {
  for (const bool ptx_only : ways()) {
    CAPTURE(ptx_only);
    const double alone = round_of_walk(kH200, false, ptx_only);
    within("loads alone", alone, 700, 0.1);
    // DRAM writes for 8 KB * 1.24 / 19.2 cycles of each round of L cycles: L = 700 + 1830 * 530 /
    // L.
    within("among stores", round_of_walk(kH200, true, ptx_only), 1400, 0.12);
  }
}
