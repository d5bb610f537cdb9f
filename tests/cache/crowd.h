// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file starts many processes at once that want kernels from one cache, through the C API and
// with the real compiler. The test that counts compiles and the bench that times them use it.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "api/lathe.h"

namespace crowd {

// A family has problems "number" 0 to 83, each of one kernel and no two of the same.
inline constexpr int kProblems = 84;
inline lathe_status make_problem(const char* op, int number, lathe_problem** out) {
  const lathe_dtype dtypes[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
  const bool bias = number % 2, silu = number / 2 % 2;
  const lathe_dtype dtype = dtypes[number / 4 % 3];
  const int64_t width = 2 + number / 12, channels = 256;
  const bool update = std::string(op) == "causal_conv1d_update";
  const int64_t rows[] = {-1, -1, channels}, *activation = update ? rows + 1 : rows;
  const int64_t taps[] = {channels, width}, states[] = {-1, channels, width};
  const int rank = update ? 2 : 3;
  lathe_problem* problem = nullptr;
  lathe_status status = lathe_problem_create(&problem, op);
  const auto tensor = [&](const char* name, int dimensions, const int64_t* shape) {
    if (status == LATHE_OK) status = lathe_problem_tensor(problem, name, dtype, dimensions, shape);
  };
  tensor("x", rank, activation);
  tensor("weight", 2, taps);
  if (bias) tensor("bias", 1, taps);
  if (update) tensor("state", 3, states);
  tensor("y", rank, activation);
  if (silu && status == LATHE_OK) status = lathe_problem_set_string(problem, "activation", "silu");
  *out = problem;
  return status;
}

using Maker = std::function<lathe_status(int number, lathe_problem** out)>;

struct Outcome {
  uint64_t compiled = 0, hits = 0;
  int opened = 0;          // processes that opened the compiler
  int failed = 0;          // processes that did not get all of their kernels
  double seconds = 0;      // from the start to the last one's end
  double cpu_seconds = 0;  // of all processes together
};

// Runs one process, which warms its problems in the order of `numbers`.
inline Outcome one_process(const std::string& cache, const Maker& make,
                           const std::vector<int>& numbers) {
  Outcome out;
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = LATHE_DEVICE_NONE;
  options.arch = "sm_90a";
  options.cache_dir = cache.c_str();
  lathe_context* context = nullptr;
  if (lathe_context_create(&context, &options) != LATHE_OK) out.failed = 1;
  for (size_t i = 0; i < numbers.size() && out.failed == 0; ++i) {
    lathe_problem* problem = nullptr;
    uint64_t compiled = 0, hits = 0;
    if (make(numbers[i], &problem) != LATHE_OK ||
        lathe_warm(context, problem, &compiled, &hits) != LATHE_OK) {
      fprintf(stderr, "%s\n", lathe_last_error());
      out.failed = 1;
    }
    out.compiled += compiled;
    out.hits += hits;
    lathe_problem_destroy(problem);
  }
  lathe_context_destroy(context);
  std::ifstream maps("/proc/self/maps");
  const std::string mapped((std::istreambuf_iterator<char>(maps)), {});
  out.opened = mapped.find("libnvrtc.so") != mapped.npos;
  return out;
}

inline double children_cpu_seconds() {
  struct rusage used = {};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Forks while this process has opened neither library nor thread, lets all go at once and adds up.
// `numbers(index)` gives what process `index` wants, in its order.
inline Outcome run(int processes, const std::string& cache, const Maker& make,
                   const std::function<std::vector<int>(int index)>& numbers) {
  int gate[2], results[2];
  if (pipe(gate) != 0 || pipe(results) != 0) throw std::runtime_error("no pipe");
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process");
    if (child == 0) {
      close(gate[1]);
      char byte;
      const bool started = read(gate[0], &byte, 1) == 0;  // until the parent closes it
      Outcome mine = one_process(cache, make, numbers(i));
      const bool told = write(results[1], &mine, sizeof(mine)) == sizeof(mine);
      _exit(started && told ? 0 : 1);
    }
    children.push_back(child);
  }
  close(results[1]);
  close(gate[0]);
  const double cpu_before = children_cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  close(gate[1]);
  Outcome all, one;
  while (read(results[0], &one, sizeof(one)) == sizeof(one)) {
    all.compiled += one.compiled;
    all.hits += one.hits;
    all.opened += one.opened;
    all.failed += one.failed;
  }
  close(results[0]);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) ++all.failed;
  }
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  all.cpu_seconds = children_cpu_seconds() - cpu_before;
  return all;
}

}  // namespace crowd
