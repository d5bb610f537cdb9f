// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/measure.h"

#include <cstdlib>

#include "bench/operators/attn_work.h"

namespace bench {

std::string case_name(const Cells& cells) {
  std::string name;
  for (const std::string& cell : cells) name += (name.empty() ? "" : " ") + cell;
  return name;
}

std::optional<Tile> first_tile(const lathe_plan* plan) {
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    lathe_kernel_info kernel{};
    kernel.size = sizeof kernel;
    API(lathe_plan_kernel(plan, i, &kernel));
    const auto rows = spec_constant(kernel.spec, "m"), keys = spec_constant(kernel.spec, "n");
    if (rows && keys) return Tile{*rows, *keys, kernel.threads / 32, kernel.spec};
  }
  return {};
}

std::string family_of(const lathe_plan* plan) {
  // The kernel that does most is the last with a tile: a forward comes before its backward.
  std::string family;
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    lathe_kernel_info kernel{};
    kernel.size = sizeof kernel;
    API(lathe_plan_kernel(plan, i, &kernel));
    if (spec_constant(kernel.spec, "m") && spec_constant(kernel.spec, "n")) family = kernel.family;
  }
  return family;
}

Table measure(const Settings& settings, OnDevice on_simulator, OnDevice on_gpu) {
  // Enough to count distinct sectors; races and the like are for the tests to find.
  setenv("LATHE_SIM_CHECK", "memcheck", 0);
  const auto context = apitest::make_context();
  return apitest::on_simulator() ? on_simulator(context.get(), settings)
                                 : on_gpu(context.get(), settings);
}

}  // namespace bench
