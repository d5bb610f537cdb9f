// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what the timeline says of launches: what a sampled grid counts, and how long a
// launch lasts by the clock.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_kernels.h"
#include "sim/tests/driver/timeline_lines.h"

using namespace sim::tests;

namespace {

// add() over 64 blocks of 256; then into another buffer, and over half of the elements.
int run_grids() {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  cuda().init(0);
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_push_current(context);
  cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING);
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  cuda().module_load_data(&module, kernels().c_str());
  cuda().module_get_function(&add, module, "add");
  CUdeviceptr a = 0, b = 0, c = 0, other = 0;
  int count = 64 * 256;
  for (CUdeviceptr* each : {&a, &b, &c, &other}) {
    cuda().mem_alloc(each, 8 * static_cast<size_t>(count));
  }
  void* params[] = {&a, &b, &c, &count};
  cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
  params[2] = &other;
  cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
  count /= 2;
  cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
  return cuda().stream_synchronize(stream);
}

}  // namespace

TEST_CASE("a sampled grid counts as the whole one does") {
  const auto whole = timeline_of("whole", run_grids);
  const auto sampled = timeline_of("sampled", run_grids, {{"LATHE_SIM_SAMPLE_BLOCKS", "4"}});
  const Line all = of_kind(whole, "launch", 0), some = of_kind(sampled, "launch", 0);
  CHECK(all.name == "add");
  CHECK(all.sampled == 0);
  CHECK(some.sampled == 4);
  CHECK(some.bytes == all.bytes);
  CHECK(some.bytes == 3 * 64 * 256 * 4);
  CHECK(some.end == doctest::Approx(all.end));
  for (const auto* lines : {&whole, &sampled}) {
    REQUIRE(lines->size() == 3);
    CHECK(of_kind(*lines, "launch", 1).bytes == all.bytes);
    CHECK(of_kind(*lines, "launch", 2).bytes == all.bytes / 2);
  }
  std::string texts[2];
  for (const bool sample : {false, true}) {
    const std::string counters = path_of("sampled_counters");
    const Child child = in_child(
        {{"LATHE_SIM_SAMPLE_BLOCKS", sample ? "4" : "0"}, {"LATHE_SIM_COUNTERS", counters}},
        run_grids);
    CHECK(child.status == 0);
    texts[sample ? 1 : 0] = content(counters);
  }
  CHECK_FALSE(has(texts[0], "sampled_blocks"));
  CHECK(has(texts[1], "\"sampled_blocks\":4,"));
  for (const char* name : {"thread_instructions", "warp_instructions", "global_load_bytes",
                           "global_store_sectors", "unique_load_sectors", "integer"}) {
    CAPTURE(name);
    CHECK(member(texts[0], name) == member(texts[1], name));
    CHECK(member(texts[0], name) != "0");
  }
}

TEST_CASE("a launch lasts as long as the clock says, if it is asked") {
  const std::string clock = path_of("clocked_times");
  const auto lines = timeline_of("clocked", run_grids,
                                 {{"LATHE_SIM_CLOCK", clock}, {"LATHE_SIM_NVDISASM", "none"}});
  std::istringstream text(content(clock));
  double begin = 0;
  for (size_t k = 0; k < 3; ++k) {
    std::string line;
    REQUIRE(std::getline(text, line));
    const double lasts =
        std::stod(member(line, "microseconds")) + std::stod(member(line, "launch_microseconds"));
    check_span(of_kind(lines, "launch", k), begin, begin + lasts);
    begin += lasts;
  }
}
