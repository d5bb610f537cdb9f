// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures what the cache saves: a warm start of a new process for each kernel, and what a cold one
// costs. Each sample has a process of its own; with --peers Triton's cache and compiler beside it.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "bench/cache_peers.h"
#include "bench/folder.h"
#include "bench/peers.h"
#include "bench/verbs.h"

namespace bench {
namespace {

struct Sample {
  double context_us = 0, plans_us = 0, plans_cpu_us = 0, process_us = 0;
  double cpu_us = 0;  // of the whole process, and of those that it started
  int kernels = 0, compiled = 0;
  std::string compiler;
};

// Reads the last line of the child's CSV.
Sample parse(const std::string& output) {
  Sample sample;
  std::istringstream lines(output);
  std::string header, line;
  char comma;
  if (!std::getline(lines, header) || !std::getline(lines, line)) throw std::runtime_error(output);
  std::istringstream cells(line);
  cells >> sample.context_us >> comma >> sample.plans_us >> comma >> sample.plans_cpu_us >> comma >>
      sample.kernels >> comma >> sample.compiled >> comma;
  if (!cells) throw std::runtime_error("a sample says '" + line + "'");
  std::getline(cells, sample.compiler);
  return sample;
}

double processor_time(const rusage& used) {  // in microseconds
  double sum = 0;
  for (const timeval& each : {used.ru_utime, used.ru_stime})
    sum += 1e6 * static_cast<double>(each.tv_sec) + static_cast<double>(each.tv_usec);
  return sum;
}

Sample run_process(const Settings& settings, const std::string& cache, const char* problems) {
  const std::string program = settings.folder + "/lathe_bench";
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  // Makes processes whose parent has ended children of this one, so that their time is counted.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw std::runtime_error("no subreaper");
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("LATHE_CACHE_DIR", cache.c_str(), 1);
    execl(program.c_str(), program.c_str(), "cache-sample", "--format", "csv", "--only", problems,
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer{};
  for (ssize_t got; (got = read(ends[0], buffer.data(), buffer.size())) > 0;)
    output.append(buffer.data(), static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  rusage used{};
  if (child < 0 || wait4(child, &status, 0, &used) != child || status != 0)
    throw std::runtime_error("a sample's process failed: " + program);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  Sample sample = parse(output);
  sample.process_us = took.count();
  sample.cpu_us = processor_time(used);
  // Compile processes, which nobody waits for, end with whoever asked them.
  while (wait4(-1, &status, __WALL, &used) > 0) sample.cpu_us += processor_time(used);
  return sample;
}

void add(Table* table, const std::string& who, const std::string& what, int kernels,
         const std::vector<double>& values, const char* unit, const std::string& contains) {
  const Spread found = spread(values);
  const int digits = found.median < 100 ? 1 : 0;
  table->add({who, what, std::to_string(kernels), std::to_string(values.size()), unit,
              number(found.median, digits), number(found.low, digits), number(found.high, digits),
              contains});
}

// Returns the average size of the entries in a cache.
std::string size_text(const std::string& cache) {
  uint64_t bytes = 0, count = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(cache)) {
    if (item.path().extension() != ".lathe") continue;
    bytes += item.file_size();
    ++count;
  }
  return number(static_cast<double>(bytes) / static_cast<double>(count) / 1000, 0) + " KB each";
}

void add_warm(Table* table, const Settings& settings, const std::string& cache,
              const char* problems, int runs) {
  run_process(settings, cache, problems);  // compiles
  // A compiler that has just changed is not noted; from here on it is known.
  Sample sample = run_process(settings, cache, problems);
  std::vector<double> context, kernel, cpu, process;
  for (int run = 0; run < runs; ++run) {
    sample = run_process(settings, cache, problems);
    if (sample.compiled != 0) throw std::runtime_error("a warm start compiled something");
    context.push_back(sample.context_us);
    kernel.push_back(sample.plans_us / sample.kernels);
    cpu.push_back(sample.plans_cpu_us / sample.kernels);
    process.push_back(sample.process_us / 1000);
  }
  const std::string name = "lathe, " + sample.compiler;
  add(table, name, "warm start, a kernel", sample.kernels, kernel, "us",
      "problems declared, plans made, entries read, verified and given to a driver that does "
      "nothing: " +
          size_text(cache));
  add(table, name, "warm start, a kernel, processor time", sample.kernels, cpu, "us", "the same");
  add(table, name, "warm start, the context", sample.kernels, context, "us",
      "once a process: the directory checked, the driver opened");
  add(table, name, "warm start, the process", sample.kernels, process, "ms", "exec to exit");
}

void add_triton_warm(Table* table, const Settings& settings, int runs) {
  const Folder cache;
  triton_start(settings.folder, cache.path(), true, true);
  std::vector<double> first, later, import;
  TritonStart start;
  for (int run = 0; run < runs; ++run) {
    start = triton_start(settings.folder, cache.path(), true, false);
    first.push_back(start.kernels.at(0));
    later.insert(later.end(), start.kernels.begin() + 1, start.kernels.end());
    import.push_back(start.import_us / 1000);
  }
  const char* what = "triton.compile() to the cubin's bytes, conv1d; no launch, no driver";
  add(table, start.versions, "cache hit, first of a process", 1, first, "us", what);
  add(table, start.versions, "cache hit, later ones, a kernel", 2, later, "us", what);
  add(table, start.versions, "imports", 0, import, "ms", "torch, triton, fla; in no other row");
}

void add_triton_cold(Table* table, const Settings& settings, int runs) {
  std::vector<double> forward, both;
  TritonStart start;
  for (int run = 0; run < runs; ++run) {
    const Folder cache;
    start = triton_start(settings.folder, cache.path(), true, true);
    forward.push_back(start.kernels.at(0) / 1000);
    double sum = 0;
    for (const double each : start.kernels) sum += each / 1000;
    both.push_back(sum);
  }
  const char* what = "triton.compile() for sm_90, one configuration each; without imports";
  add(table, start.versions, "cold, conv1d forward", 1, forward, "ms", what);
  add(table, start.versions, "cold, conv1d forward and backward", 3, both, "ms", what);
}

void add_triton_forward(Table* table, const Settings& settings, const char* which, const char* what,
                        int runs) {
  std::vector<double> took, cpu;
  TritonForward sample;
  for (int run = 0; run < runs; ++run) {
    const Folder cache;
    sample = triton_forward(settings.folder, cache.path(), which);
    took.push_back(sample.microseconds / 1000);
    cpu.push_back(sample.processor_microseconds / 1000);
  }
  const char* contains =
      "the package's function called, each kernel compiled for sm_90 to the cubin, one "
      "configuration each; without imports";
  add(table, sample.versions, std::string("cold, ") + what, sample.kernels, took, "ms", contains);
  add(table, sample.versions, std::string("cold, ") + what + ", processor time", sample.kernels,
      cpu, "ms", "the same, ptxas included");
}

void add_cold(Table* table, const Settings& settings, const char* problems, const char* what,
              int runs) {
  std::vector<double> inside, cpu, process;
  Sample sample;
  for (int run = 0; run < runs; ++run) {
    const Folder cache;
    sample = run_process(settings, cache.path(), problems);
    if (sample.compiled != sample.kernels) throw std::runtime_error("an empty cache had a kernel");
    inside.push_back((sample.context_us + sample.plans_us) / 1000);
    cpu.push_back(sample.cpu_us / 1000);
    process.push_back(sample.process_us / 1000);
  }
  const std::string name = "lathe, " + sample.compiler;
  add(table, name, std::string("cold, ") + what, sample.kernels, inside, "ms",
      "first call to plan: the compiler opened, kernels compiled, published");
  add(table, name, std::string("cold process, ") + what, sample.kernels, process, "ms",
      "the same and the process, exec to exit");
  add(table, name, std::string("cold process, ") + what + ", processor time", sample.kernels, cpu,
      "ms", "the same, with processes that it started");
}

}  // namespace

Table bench_cache(const Settings& settings) {
  Table table({"who", "what", "kernels", "samples", "unit", "median", "p10", "p90", "contains"});
  const int warm = settings.runs > 0 ? settings.runs : 60,
            cold = settings.runs > 0 ? settings.runs : 7;
  const bool peers = settings.peers && have_peers(settings.folder);
  for (const char* problems : {"all", "one"}) {
    if (!settings.only.empty()) break;
    const Folder cache;
    add_warm(&table, settings, cache.path(), problems, warm);
  }
  const int triton = settings.runs > 0 ? settings.runs : 5;
  if (peers && settings.only.empty()) {
    add_triton_warm(&table, settings, settings.runs > 0 ? settings.runs : 7);
    add_triton_cold(&table, settings, triton);
  }
  for (const auto& [which, what] :
       {std::pair("one", "conv1d forward"), std::pair("conv", "conv1d forward and backward"),
        std::pair("attention", "flash attention forward, D 64"),
        std::pair("attention_grouped", "flash attention forward, D 64, 4 heads a key head"),
        std::pair("kda", "kda forward, K 64")}) {
    if (std::string(what).find(settings.only) == std::string::npos) continue;
    add_cold(&table, settings, which, what, cold);
    if (peers && std::string(what).find("conv1d") == std::string::npos)
      add_triton_forward(&table, settings, which, what, triton);
  }
  return table;
}

}  // namespace bench
