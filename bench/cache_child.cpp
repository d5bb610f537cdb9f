// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One sample of `lathe_bench cache`: what a new process takes from its first call of lathe to plans
// whose kernels a driver has: one that does nothing. LATHE_CACHE_DIR is the cache, --only the
// problems.
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "bench/cache_problems.h"
#include "bench/verbs.h"

namespace bench {

Table bench_cache_child(const Settings& settings) {
  const std::vector<StartProblem> problems =
      start_problems(settings.only.empty() ? "all" : settings.only);
  std::vector<apitest::Plan> plans;
  plans.reserve(problems.size());
  using Clock = std::chrono::steady_clock;
  const auto microseconds = [](Clock::time_point from, Clock::time_point to) {
    return number(std::chrono::duration<double, std::micro>(to - from).count(), 3);
  };

  const auto cpu = [] {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
  };

  setenv("LATHE_SIM_DIR", (settings.folder + "/../bench/null").c_str(), 1);
  const auto begin = Clock::now();
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = LATHE_DEVICE_SIM;
  options.arch = "sm_90a";
  lathe_context* context = nullptr;
  API(lathe_context_create(&context, &options));
  const apitest::Context owner(context);
  const auto opened = Clock::now();
  const double cpu_opened = cpu();
  for (const StartProblem& each : problems) {
    const apitest::Problem problem = each.declare();
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context, problem.get()));
    plans.emplace_back(plan);
  }
  const double cpu_ready = cpu();
  const auto ready = Clock::now();

  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  Table table({"context_us", "plans_us", "plans_cpu_us", "kernels", "compiled", "compiler"});
  table.add({microseconds(begin, opened), microseconds(opened, ready),
             number(cpu_ready - cpu_opened, 3), std::to_string(info.hits + info.compiled),
             std::to_string(info.compiled), info.compiler});
  return table;
}

}  // namespace bench
