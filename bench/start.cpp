// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures what a start costs: compiling each kernel, and making a plan when the disk, or the
// process, has the kernels already.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "bench/folder.h"
#include "bench/verbs.h"
#include "tests/harness/session.h"

namespace bench {
namespace {

apitest::Context open_context(const Folder& cache, lathe_device_kind device, const char* arch) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = device;
  options.arch = arch;
  options.cache_dir = cache.path().c_str();
  lathe_context* context = nullptr;
  API(lathe_context_create(&context, &options));
  return apitest::Context(context);
}

// Makes a forward with states, and a backward: the kernels of a training step.
apitest::Problem make_problem(lathe_dtype dtype, bool backward) {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, "causal_conv1d"));
  apitest::Problem owner(problem);
  const int64_t any[] = {-1, -1, 4096}, taps[] = {4096, 4};
  API(lathe_problem_set_string(problem, "activation", "silu"));
  API(lathe_problem_tensor(problem, "x", dtype, 3, any));
  API(lathe_problem_tensor(problem, "weight", dtype, 2, taps));
  API(lathe_problem_tensor(problem, "y", dtype, 3, any));
  if (!backward) return owner;
  API(lathe_problem_tensor(problem, "dy", dtype, 3, any));
  API(lathe_problem_tensor(problem, "dx", dtype, 3, any));
  API(lathe_problem_tensor(problem, "dweight", dtype, 2, taps));
  return owner;
}

apitest::Plan make_plan(lathe_context* context, const lathe_problem* problem) {
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, problem));
  return apitest::Plan(plan);
}

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

lathe_context_info info_of(lathe_context* context) {
  lathe_context_info info{};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  return info;
}

void add_spread(Table& table, std::vector<std::string> cells, const std::vector<double>& samples) {
  const Spread times = spread(samples);
  for (double value : {times.median, times.low, times.high}) cells.push_back(number(value, 3));
  table.add(std::move(cells));
}

}  // namespace

Table bench_compile(const Settings& settings) {
  Table table({"what", "kernel", "arch", "ms", "ms_p10", "ms_p90", "registers", "spill_bytes"});
  const int runs = settings.runs > 0 ? settings.runs : 5;
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const auto problem = make_problem(LATHE_BF16, true);
    std::vector<std::vector<double>> samples;
    std::vector<lathe_kernel_info> kernels;
    apitest::Context context;
    apitest::Plan plan;
    for (int run = 0; run < runs; ++run) {
      const Folder cache;
      plan.reset();
      context = open_context(cache, LATHE_DEVICE_NONE, arch);
      plan = make_plan(context.get(), problem.get());
      const size_t count = lathe_plan_kernel_count(plan.get());
      samples.resize(count);
      kernels.assign(count, {});
      for (size_t i = 0; i < count; ++i) {
        kernels[i].size = sizeof kernels[i];
        API(lathe_plan_kernel(plan.get(), i, &kernels[i]));
        require(std::string(kernels[i].from) == "compiler", "an empty cache had a kernel");
        samples[i].push_back(kernels[i].compile_ms);
      }
    }
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Spread times = spread(samples[i]);
      table.add({"compile", kernels[i].name, arch, number(times.median, 1), number(times.low, 1),
                 number(times.high, 1), std::to_string(kernels[i].registers),
                 std::to_string(kernels[i].spill_bytes)});
    }
  }
  return table;
}

Table bench_warm(const Settings& settings) {
  Table table({"what", "kernels", "ms", "ms_p10", "ms_p90"});
  const int runs = settings.runs > 0 ? settings.runs : 30;
  const auto device = apitest::on_simulator() ? LATHE_DEVICE_SIM : LATHE_DEVICE_CUDA;
  const char* arch = apitest::on_simulator() ? "sm_90a" : nullptr;
  const auto problem = make_problem(LATHE_BF16, true);
  const Folder cache;
  std::vector<double> disk, disk_device, memory;
  std::string count;
  {
    const auto context = open_context(cache, device, arch);
    const auto plan = make_plan(context.get(), problem.get());
    count = std::to_string(lathe_plan_kernel_count(plan.get()));
  }
  for (int run = 0; run < runs; ++run) {
    apitest::Context context;
    apitest::Plan plan, again;
    disk_device.push_back(milliseconds([&] {
      context = open_context(cache, device, arch);
      plan = make_plan(context.get(), problem.get());
    }));
    require(info_of(context.get()).compiled == 0, "a warm start compiled something");
    memory.push_back(milliseconds([&] { again = make_plan(context.get(), problem.get()); }));
    const std::string driver_arch = info_of(context.get()).arch;
    plan.reset();
    again.reset();
    disk.push_back(milliseconds([&] {
      context = open_context(cache, LATHE_DEVICE_NONE, driver_arch.c_str());
      plan = make_plan(context.get(), problem.get());
    }));
    plan.reset();
  }
  add_spread(table, {"context and plan from disk, not loaded", count}, disk);
  add_spread(table, {"context and plan from disk, loaded", count}, disk_device);
  add_spread(table, {"plan from memory", count}, memory);
  return table;
}

}  // namespace bench
