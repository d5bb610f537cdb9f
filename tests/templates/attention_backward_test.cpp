// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of the attention backward on the simulator, under every checker, against plain loops
// in double: random shapes for each of a set of configurations that covers every width, tile, type
// and flag.
#include "tests/templates/attention_backward_case.h"

using namespace backward;

namespace {

const std::vector<Setup> kSetups = {
    {LATHE_F16, 64, 64, 64, 128, 2, 1, 8, "local alibi dlse"},
    {LATHE_BF16, 96, 96, 64, 128, 2, 1, 8, "packed wide local sinks dlse"},
    {LATHE_BF16, 128, 128, 64, 128, 1, 1, 8, ""},
    {LATHE_F16, 128, 128, 64, 128, 1, 1, 8, "local sinks ordered"},
    {LATHE_BF16, 128, 128, 64, 64, 1, 1, 4, "packed local softcap alibi sinks dlse"},
    {LATHE_F16, 128, 128, 64, 128, 1, 2, 8, "packed local softcap alibi apart ordered"},
    {LATHE_BF16, 192, 192, 32, 64, 1, 2, 8, "packed local apart"},
    {LATHE_F16, 192, 128, 64, 64, 1, 2, 8, "packed wide local ordered"},
    {LATHE_BF16, 256, 256, 64, 64, 1, 2, 8, "local"},
    {LATHE_F16, 256, 256, 32, 32, 1, 2, 4, "packed sinks alibi"},
    {LATHE_BF16, 64, 256, 64, 64, 2, 2, 8, "local alibi"},
};

Call random_call(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Call c;
  c.seed = seed;
  const bool packed = s.has("packed");
  const int sequences = packed ? one_of({1, 3, 4}) : one_of({1, 2});
  const int rows = one_of({1, 5, 64, 97, 150}), keys = one_of({0, 1, 63, 64, 97, 130, 203});
  for (int b = 0; b < sequences; ++b) {
    c.rows.push_back(packed ? one_of({0, 1, 17, 64, 130}) : rows);
    c.keys.push_back(packed ? one_of({0, 1, 40, 64, 129, 200}) : keys);
  }
  if (packed) c.padding_q = one_of({0, 3, 140}), c.padding_k = one_of({0, 3, 140});
  c.kv_heads = one_of({1, 1, 2}), c.group = c.kv_heads == 2 ? one_of({1, 2}) : one_of({1, 2, 3});
  c.head_dim = s.width - one_of({0, 8, 24}), c.value_dim = s.value_width - one_of({0, 8, 24});
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  c.softcap = one_of({1, 3, 30});
  c.slope_per_sequence = random() % 2 == 0;
  c.slices = one_of({1, 2, 3}), c.gap = one_of({0, 0, 8});
  if (s.has("local")) {
    c.left = one_of({-1, -1, 0, 1, 40, 64, 300, 0x7fffffff});
    c.right = one_of({-1, 0, 0, 0, 3, 70, 0x7fffffff});
  }
  return c;
}

}  // namespace

TEST_CASE("attention_backward: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Kernels kernels = kernels_of(**opened, s, "sm_80");
    CAPTURE(kernels.specs.main.text());
    const lathe::CompileReport& report = kernels.main.report;
    MESSAGE(kernels.specs.main.text(), ": ", report.registers, " registers, ", report.spill_stores,
            " spilt");
    CHECK(report.stack_bytes == 0);
    CHECK(report.spill_stores == 0);
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      const Call c = random_call(s, seed);
      CAPTURE(c.seed);
      CAPTURE(c.rows[0]);
      CAPTURE(c.keys[0]);
      CAPTURE(c.left);
      CAPTURE(c.right);
      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      const ref::Attention a = make_input(s, c);
      const ref::AttentionForward forward = ref::attention_forward(a);
      const Outcome outcome = Launch(device, kernels, s, c).run(a, forward);
      CHECK(outcome.counters.shared_load.conflicts == 0);
      CHECK(outcome.counters.shared_store.conflicts == 0);
      expect_gradients(s, a, forward, outcome);
    }
  }
}
