// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernels of two streams in model time: they overlap where the device has room, share it where it
// has not, and a dependent launch begins before the end of the one in front. Whatever the seed.
#include "sim/tests/driver/timeline_lines.h"

using namespace sim::tests;

namespace {

constexpr double kStart = 2.5;           // microseconds that the model takes to start a kernel
constexpr unsigned kOneRound = 132 * 8;  // blocks of 256 threads that an H100 holds
constexpr unsigned kFewBlocks = 132 * 2;

// `busy` counts for a while, `first` does after it has let dependents start, `second` waits for
// what is in front before it counts.
std::string text() {
  const std::string begin = "\n{\n  .reg .b32 %n;\n  .reg .pred %p;\n";
  const std::string count =
      "  mov.u32 %n, 300;\nROUND:\n  sub.u32 %n, %n, 1;\n"
      "  setp.ne.u32 %p, %n, 0;\n  @%p bra ROUND;\n  ret;\n}\n";
  return ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry busy()" + begin + count +
         ".visible .entry first()" + begin + "  griddepcontrol.launch_dependents;\n" + count +
         ".visible .entry second()" + begin + "  griddepcontrol.wait;\n" + count;
}

struct Bench {
  Bench() {
    cuda().init(0);
    cuda().device_primary_ctx_retain(&context, 0);
    cuda().ctx_push_current(context);
    cuda().module_load_data(&module, text().c_str());
    for (CUstream& stream : streams) cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING);
  }
  void launch(const char* name, size_t stream, unsigned blocks, bool early = false) {
    CUfunction function = nullptr;
    cuda().module_get_function(&function, module, name);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = blocks;
    config.blockDimX = 256;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = streams[stream];
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    cuda().launch_kernel_ex(&config, function, nullptr, nullptr);
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream streams[3] = {};
};

int side_by_side(unsigned blocks, size_t count) {
  Bench b;
  for (size_t k = 0; k < count; ++k) b.launch("busy", k, blocks);
  return cuda().ctx_synchronize();
}

// The host sees the end of one stream, and launches there again, while the other one is still busy.
int seen_in_between() {
  Bench b;
  b.launch("busy", 0, kFewBlocks);
  for (int k = 0; k < 3; ++k) b.launch("busy", 1, kFewBlocks);
  cuda().stream_synchronize(b.streams[0]);
  b.launch("busy", 0, kFewBlocks);
  return cuda().ctx_synchronize();
}

int dependent(bool early) {
  Bench b;
  b.launch("first", 0, kFewBlocks);
  b.launch("second", 0, kFewBlocks, early);
  b.launch("busy", 0, kFewBlocks);
  return cuda().ctx_synchronize();
}

std::vector<Line> lines_of(const std::function<int()>& body, const std::string& seed,
                           bool clock = false) {
  Environment environment = {{"LATHE_SIM_SEED", seed}};
  if (clock) environment.insert({{"LATHE_SIM_CLOCK", "/dev/null"}, {"LATHE_SIM_NVDISASM", "none"}});
  return timeline_of("sharing", body, environment);
}

}  // namespace

TEST_CASE("kernels of different streams share the device") {
  for (const bool clock : {false, true}) {
    for (const char* seed : {"0", "1", "2", "3"}) {
      CAPTURE(clock);
      CAPTURE(seed);
      const double start = clock ? 2 : kStart;
      const Line alone =
          of_kind(lines_of([] { return side_by_side(kOneRound, 1); }, seed, clock), "launch", 0);
      const double work = alone.end - start;
      CHECK(alone.begin == 0);
      // One round of blocks fills the device: the others come one after the other.
      const auto full = lines_of([] { return side_by_side(kOneRound, 3); }, seed, clock);
      for (size_t k = 0; k < 3; ++k) {
        check_span(of_kind(full, "launch", k), 0, start + static_cast<double>(k + 1) * work);
      }
      // There is room for two small ones: they overlap, and are no slower than one after the other.
      const Line small =
          of_kind(lines_of([] { return side_by_side(kFewBlocks, 1); }, seed, clock), "launch", 0);
      const auto both = lines_of([] { return side_by_side(kFewBlocks, 2); }, seed, clock);
      for (size_t k = 0; k < 2; ++k) {
        const Line each = of_kind(both, "launch", k);
        CHECK(each.begin == 0);
        CHECK(each.end > small.end);
        CHECK(each.end < small.end + (small.end - start));
      }
    }
  }
}

TEST_CASE("times do not depend on what had run when the host looked") {
  const auto expected = lines_of(seen_in_between, "0");
  REQUIRE(expected.size() == 5);
  for (const char* seed : {"1", "2", "3", "4", "5", "6", "7"}) {
    CAPTURE(seed);
    const auto lines = lines_of(seen_in_between, seed);
    REQUIRE(lines.size() == expected.size());
    for (size_t k = 0; k < lines.size(); ++k)
      check_span(lines[k], expected[k].begin, expected[k].end);
  }
}

TEST_CASE("a dependent launch hides its start behind the one in front") {
  for (const char* seed : {"0", "1", "2"}) {
    CAPTURE(seed);
    const auto early = lines_of([] { return dependent(true); }, seed);
    const auto plain = lines_of([] { return dependent(false); }, seed);
    REQUIRE(early.size() == 3);
    REQUIRE(plain.size() == 3);
    const double front = plain[0].end, work = plain[1].end - plain[1].begin - kStart;
    check_span(plain[1], front, front + kStart + work);
    CHECK(early[0].end == doctest::Approx(front));
    CHECK(early[1].begin < kStart + 0.1);
    CHECK(early[1].end == doctest::Approx(front + work).epsilon(0.01));
    CHECK(early[2].begin == doctest::Approx(early[1].end));
  }
}
