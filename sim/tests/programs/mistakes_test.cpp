// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run mistakes.cu: each mistake is found, by its check and kind, whatever the seed and
// the policy of copies; the mended program is clean under all of them.
#include <algorithm>

#include "sim/tests/programs/program.h"

using namespace sim;
using namespace sim::test;

namespace {

struct Mistake {
  const char* kernel;
  const char* check;
  const char* kind;
  uint32_t blocks = 1, threads = 128;
  int error = 0;
  bool hopper = false, cooperative = false;
  uint32_t cluster = 1;
};
const Mistake kMistakes[] = {
    {"source_rewritten", "racecheck", "race", 2},
    {"neighbours_source", "racecheck", "race"},
    {"counter_read", "racecheck", "race", 5},
    {"counter_cleared", "racecheck", "race", 5},
    {"left_early", "synccheck", "left_barrier"},
    {"others_tile", "synccheck", "divergent", 1, 128, 719},
    {"no_meeting", "racecheck", "race"},
    {"no_grid_sync", "racecheck", "race", 6, 64, 0, false, true},
    {"freed_twice", "memcheck", "invalid_free", 1, 32, 719},
    {"heap_unwritten", "initcheck", "uninitialized", 1, 32},
    {"no_wait", "asynccheck", "in_flight"},
    {"load_too_many", "asynccheck", "leaked_group", 1, 128, 0, true},
    {"narrow_arrival", "racecheck", "narrow_scope", 2, 128, 0, true, false, 2},
    {"left_with_store", "asynccheck", "unread_source", 2, 128, 0, true},
};

Outcome run(Device& device, const Mistake& m) {
  device.cooperative = m.cooperative;
  device.cluster = m.cluster;
  std::vector<int> in(1024);
  for (int i = 0; i < 1024; ++i) in[i] = 3 * i + 1;
  const uint64_t words = device.upload(in), out = device.upload(std::vector<int>(2048, 0));
  const Outcome o =
      device.run(m.kernel, m.blocks, m.threads, words, out, static_cast<int>(m.blocks * m.threads));
  device.memory.release(words);
  device.memory.release(out);
  return o;
}

template <class F>
void on_devices(const std::vector<std::string>& options, F body) {
  for (const std::string arch : {"sm_80", "sm_90a"}) {
    const std::string ptx = compile_program("mistakes.cu", arch, "cooperative_groups.h", options);
    if (ptx.empty()) return;
    Device device(arch);
    device.load(ptx);
    device.settings.instruction_limit = 4'000'000;
    for (const Schedule& schedule : schedules()) {
      device.settings.seed = schedule.seed;
      device.settings.async_policy = schedule.policy;
      for (const Mistake& m : kMistakes) {
        if (m.hopper && arch == "sm_80") continue;
        CAPTURE(arch);
        CAPTURE(std::string(m.kernel));
        CAPTURE(schedule.seed);
        CAPTURE(static_cast<int>(schedule.policy));
        body(device, m);
      }
    }
  }
}

}  // namespace

TEST_CASE("each mistake is found under every seed and policy") {
  on_devices({}, [](Device& device, const Mistake& m) {
    const Outcome o = run(device, m);
    INFO(texts(o));
    CHECK(o.error == m.error);
    CHECK(std::any_of(o.findings.begin(), o.findings.end(), [&](const Finding& f) {
      return f.check == m.check && f.kind == m.kind && !f.source.empty();
    }));
  });
}

TEST_CASE("what is mended is clean") {
  on_devices({"-DREPAIRED"}, [](Device& device, const Mistake& m) {
    device.settings.check |= kRegcheck;
    check_clean(run(device, m));
  });
}
