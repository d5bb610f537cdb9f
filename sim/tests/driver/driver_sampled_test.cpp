// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover grids of which some blocks run: how many a budget of instructions allows, what
// a launch's line tells of its code and of the device's rates, and what large operands cost the
// host.
#include <sys/resource.h>

#include "sim/tests/child.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

constexpr int kThreads = 256;

// add() over so many blocks, on memory of `bytes` each.
int run_add(unsigned blocks, size_t bytes) {
  cuda().init(0);
  CUfunction add = load_kernel("add");
  CUdeviceptr a = 0, b = 0, c = 0;
  for (CUdeviceptr* each : {&a, &b, &c}) {
    if (cuda().mem_alloc(each, bytes) != CUDA_SUCCESS) return 2;
  }
  int count = static_cast<int>(blocks) * kThreads;
  void* params[] = {&a, &b, &c, &count};
  cuda().launch_kernel(add, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, params, nullptr);
  if (cuda().ctx_synchronize() != CUDA_SUCCESS) return 3;
  float first = -1;
  cuda().memcpy_dtoh(&first, a, sizeof first);
  return first == 0 ? 0 : 4;
}

std::string counters_of(const char* name, Environment environment, unsigned blocks, size_t bytes) {
  const std::string counters = path_of(name);
  environment.insert({{"LATHE_SIM_COUNTERS", counters}, {"LATHE_SIM_GPU", "h200"}});
  const Child child = in_child(environment, [&] { return run_add(blocks, bytes); });
  CHECK(child.status == 0);
  CHECK(child.error == "");
  return content(counters);
}

// FNV-1a, as its authors give it.
std::string fnv(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  std::ostringstream out;
  out << "0x" << std::hex << hash;
  return out.str();
}

}  // namespace

TEST_CASE("a budget of instructions decides how many blocks of a grid run") {
  const size_t bytes = 64 * kThreads * 4;
  // add() is about a hundred and fifty instructions of warps a block.
  const struct {
    const char *budget, *ran;
  } rows[] = {{"0", "16"}, {"1", "2"}, {"1000", ""}, {"1000000", "16"}};
  std::string loads;
  for (const auto& row : rows) {
    CAPTURE(row.budget);
    const std::string text = counters_of(
        "budget",
        {{"LATHE_SIM_SAMPLE_BLOCKS", "16"}, {"LATHE_SIM_SAMPLE_INSTRUCTIONS", row.budget}}, 64,
        bytes);
    REQUIRE(lines(text) == 1);
    const size_t at = text.find("\"sampled_blocks\":");
    REQUIRE(at != std::string::npos);
    const int ran = std::stoi(text.substr(at + 17));
    if (*row.ran != '\0') CHECK(ran == std::stoi(row.ran));
    CHECK(ran >= 2);
    CHECK(ran <= 16);
    if (std::string(row.budget) == "1000") CHECK((ran > 2 && ran < 16));
    // Whatever ran stands for 64 blocks: two loads of 4 bytes.
    CHECK(has(text, "\"global_load_bytes\":" + std::to_string(2 * bytes) + ","));
  }
  // A small grid runs whole, in one go.
  const std::string whole = counters_of(
      "small", {{"LATHE_SIM_SAMPLE_BLOCKS", "16"}, {"LATHE_SIM_SAMPLE_INSTRUCTIONS", "1"}}, 2,
      bytes);
  CHECK_FALSE(has(whole, "sampled_blocks"));
  CHECK(has(whole, "\"global_load_bytes\":4096,"));
}

TEST_CASE("a launch's line names its code and the rates behind its prediction") {
  const std::string text =
      counters_of("module", {{"LATHE_SIM_SAMPLE_BLOCKS", "2"}}, 64, 64 * kThreads * 4);
  CHECK(has(text, "\"module\":\"" + fnv(kernels()) + "\","));
  CHECK(has(text,
            "\"predicted\":{\"gpu\":\"h200\",\"clock_hz\":1830000000.000000000,"
            "\"launch_seconds\":0.000002500,\"cycles\":"));
}

TEST_CASE("large operands of a sampled grid take the host's memory where they are touched") {
#if defined(__SANITIZE_THREAD__)
  MESSAGE("skipped: TSan writes a shadow of each mapping, which counts as the process's memory");
  return;
#endif
  const size_t bytes = size_t{16} << 30;
  const std::string counters = path_of("large");
  const Child child =
      in_child({{"LATHE_SIM_COUNTERS", counters}, {"LATHE_SIM_SAMPLE_BLOCKS", "2"}}, [&] {
        const int status = run_add(1 << 20, bytes);
        rusage usage = {};
        getrusage(RUSAGE_SELF, &usage);
        if (status == 0 && usage.ru_maxrss > (2 << 20)) return 5;  // of KiB
        return status;
      });
  CHECK(child.status == 0);
  CHECK(lines(content(counters)) == 1);
}
