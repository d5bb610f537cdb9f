// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The cost of a prepared plan above the driver: lathe_plan_run over a driver library that does
// nothing, beside the bare cuLaunchKernelEx of that same library.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <ctime>
#include <stdexcept>

#include "bench/launch_cases.h"
#include "bench/operators/call.h"
#include "bench/verbs.h"

namespace bench {
namespace {

constexpr int kBatch = 1000;

// Returns the time that this thread had of a processor, in nanoseconds: what other programs take of
// it does not count.
double thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Returns nanoseconds per call, one sample per batch.
template <typename Work>
Spread time_calls(int batches, Work work) {
  std::vector<double> samples;
  for (int i = 0; i < batches + 2; ++i) {
    const double begin = thread_time();
    for (int call = 0; call < kBatch; ++call) work();
    if (i >= 2) samples.push_back((thread_time() - begin) / kBatch);
  }
  return spread(std::move(samples));
}

template <typename Function>
Function entry_point(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("null driver: no ") + name);
  return reinterpret_cast<Function>(found);
}

lathe_context* new_context(const char* family = nullptr) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = LATHE_DEVICE_SIM;
  options.arch = "sm_90a";
  options.cache_dir = LATHE_TEST_CACHE_DIR;
  options.family = family;
  lathe_context* context = nullptr;
  API(lathe_context_create(&context, &options));
  return context;
}

}  // namespace

Table bench_launch(const Settings& settings) {
  const std::string folder = settings.folder + "/../bench/null";
  setenv("LATHE_SIM_DIR", folder.c_str(), 1);
  lathe_context* const context = new_context();
  const apitest::Context owner(context);
  lathe_context* const portable = new_context("portable");  // its kernels have no tensor maps
  const apitest::Context portable_owner(portable);

  void* library = dlopen((folder + "/libcuda.so.1").c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto launch = entry_point<decltype(&cuLaunchKernelEx)>(library, "cuLaunchKernelEx");
  // The caller's context is current, as it is in a framework.
  CUcontext current = nullptr;
  (void)entry_point<decltype(&cuDevicePrimaryCtxRetain)>(library, "cuDevicePrimaryCtxRetain")(
      &current, 0);
  (void)entry_point<decltype(&cuCtxPushCurrent)>(library, "cuCtxPushCurrent_v2")(current);

  const int batches = settings.runs > 0 ? settings.runs : 50;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 128;
  config.blockDimY = config.blockDimZ = 1;
  char params[176] = {};
  void* arguments[] = {params};
  const Spread bare = time_calls(batches, [&] { launch(&config, nullptr, arguments, nullptr); });

  Table table({"what", "launches", "ns", "ns_p10", "ns_p90", "ns_above_bare_per_launch"});
  table.add({"bare cuLaunchKernelEx", "1", number(bare.median, 1), number(bare.low, 1),
             number(bare.high, 1), "0.0"});
  const auto add = [&](const std::string& what, const Spread& times, double launches) {
    table.add({"lathe_plan_run " + what, number(launches, 0), number(times.median, 1),
               number(times.low, 1), number(times.high, 1),
               number((times.median - launches * bare.median) / launches, 1)});
  };
  const Shape shapes[] = {
      {Direction::forward, LATHE_BF16, 1, 128, 64, 4, 0},
      {Direction::forward, LATHE_BF16, 1, 128, 64, 4, 4},
      {Direction::backward, LATHE_BF16, 1, 128, 64, 4, 0},
      {Direction::update, LATHE_BF16, 4, 1, 64, 4, 0},
  };
  std::vector<NamedCase> cases = launch_cases(context);
  for (NamedCase& each : attention_cases(portable)) {
    each.name += ", portable kernels";
    cases.push_back(std::move(each));
  }
  const auto name_of = [](const Shape& shape) {
    return "conv1d " + std::string(word(shape.direction)) + (shape.sequences > 0 ? ", packed" : "");
  };
  // The whole name of a case stands for that case alone.
  bool whole = false;
  for (const Shape& shape : shapes) whole = whole || name_of(shape) == settings.only;
  for (const NamedCase& each : cases) whole = whole || each.name == settings.only;
  const auto is_wanted = [&](const std::string& name) {
    return whole ? name == settings.only : name.find(settings.only) != std::string::npos;
  };
  for (const Shape& shape : shapes) {
    const std::string name = name_of(shape);
    if (!is_wanted(name)) continue;
    const Call call(context, shape);
    const Spread times = time_calls(batches, [&] { call.run(nullptr); });
    add(name, times, static_cast<double>(call.estimate().launches));
  }
  for (const NamedCase& each : cases) {
    if (!is_wanted(each.name)) continue;
    const Spread times = time_calls(batches, [&] { each.call->run(); });
    add(each.name, times, static_cast<double>(each.call->launches()));
  }
  return table;
}

}  // namespace bench
