// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures the speed of the simulator: lane-instructions, multiply-adds and copied bytes per second
// of one host thread's processor time, for every instruction set this machine has; and what a
// launch costs.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <stdexcept>

#include "bench/sim_kernels.h"
#include "bench/verbs.h"
#include "sim/exec/launch.h"
#include "sim/exec/tensor_map.h"
#include "sim/exec/warp.h"

namespace bench {
namespace {

const std::vector<std::string> kColumns = {"isa",    "loop", "checks", "unit",
                                           "median", "p10",  "p90",    "ns_per_warp_instruction"};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

double seconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The interpreter does not cover an instruction.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A module on a device of its own.
class Bench {
 public:
  Bench(const std::string& ptx, uint32_t check) {
    settings_.threads = 1;
    settings_.check = check;
    std::string log;
    module_ = sim::Module::parse(ptx, &log);
    if (!module_) throw Refused(log);
    image_ = sim::load_image(module_, memory_, &log);
    if (!image_) throw std::runtime_error(log);
    grid_.kernel = module_->find_kernel("k");
    grid_.image = image_.get();
    grid_.block[0] = kSimThreads;
    grid_.params.resize(grid_.kernel->param_bytes);
    const uint64_t in = buffer(kSimInputBytes), out = buffer(kSimInputBytes);
    place(0, &out, sizeof(out));
    place(1, &in, sizeof(in));
    sim::TensorMapView map;
    map.dtype = 9;  // bfloat16
    map.rank = 2;
    map.swizzle = 3;
    map.element_bytes = 2;
    map.base = in;
    map.dims[0] = map.box[0] = 64;
    map.dims[1] = map.box[1] = kSimTileRows;
    map.strides[0] = 2;
    map.strides[1] = 128;
    const std::string fault = sim::tensor_map_fault(map);
    if (!fault.empty()) throw std::runtime_error(fault);
    uint8_t record[sim::kTensorMapBytes];
    sim::encode_tensor_map(map, record);
    place(3, record, sizeof(record));
  }

  sim::Counters run(uint32_t n) {
    place(2, &n, sizeof(n));
    const sim::Outcome outcome = sim::run_grid(grid_, *profile_, memory_, settings_);
    if (!outcome.findings.empty()) throw std::runtime_error(outcome.findings[0].text);
    if (outcome.error) throw std::runtime_error("error " + std::to_string(outcome.error));
    return outcome.counters;
  }
  sim::Grid& grid() { return grid_; }
  sim::Settings& settings() { return settings_; }

 private:
  uint64_t buffer(uint64_t bytes) {
    const uint64_t at = memory_.allocate(bytes, sim::MemoryKind::device, 1);
    std::memset(reinterpret_cast<void*>(at), 0, bytes);
    memory_.define(at, bytes);
    return at;
  }
  void place(size_t param, const void* value, size_t bytes) {
    std::memcpy(grid_.params.data() + grid_.kernel->params.at(param).offset, value, bytes);
  }

  const sim::Profile* profile_ = sim::find_profile("sm_90a");
  sim::Memory memory_{0, 1ull << 30};
  sim::Settings settings_;
  std::shared_ptr<const sim::Module> module_;
  std::shared_ptr<const sim::Image> image_;
  sim::Grid grid_;
};

double amount(Work work, uint32_t n, const sim::Counters& c) {
  if (work == Work::bytes) return static_cast<double>(n) * kSimTileBytes;
  if (work == Work::products) return static_cast<double>(c.tensor_ops) / 2;
  return static_cast<double>(c.thread_instructions);
}

std::vector<std::string> time_loop(const SimKernel& k, uint32_t check, int samples) {
  Bench bench(k.ptx, check);
  constexpr double kWanted = 0.04;  // seconds of a sample
  uint32_t n = 64;
  for (;;) {
    const double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
    bench.run(n);
    const double took = seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    if (took >= kWanted / 2) break;
    n = took < kWanted / 20 ? 8 * n : 2 * n;
  }
  std::vector<double> rates, costs;
  for (int s = 0; s < samples; ++s) {
    const double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
    const sim::Counters c = bench.run(n);
    const double took = seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    rates.push_back(1e-9 * amount(k.work, n, c) / took);
    costs.push_back(1e9 * took / static_cast<double>(c.warp_instructions));
  }
  const Spread rate = spread(rates);
  const char* unit = k.work == Work::lanes      ? "G lane instructions/s"
                     : k.work == Work::products ? "G multiply-adds/s"
                                                : "GB/s";
  return {unit, number(rate.median, 3), number(rate.low, 3), number(rate.high, 3),
          number(spread(costs).median, 2)};
}

// Microseconds for a grid that does nothing: processor time of one thread, wall time of several.
std::vector<std::string> time_launch(uint32_t blocks, int threads, int samples) {
  Bench bench(empty_kernel(), sim::kMemcheck);
  bench.grid().grid[0] = blocks;
  bench.settings().threads = threads;
  constexpr int kBatch = 200;
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<double> times;
  for (int s = 0; s < samples + 1; ++s) {
    const double begin = seconds(clock);
    for (int call = 0; call < kBatch; ++call) bench.run(1);
    if (s) times.push_back(1e6 * (seconds(clock) - begin) / kBatch);
  }
  const Spread t = spread(times);
  return {"us", number(t.median, 2), number(t.low, 2), number(t.high, 2), "-"};
}

const char* check_name(uint32_t check) {
  return check == sim::kCheckNone ? "none" : check == sim::kMemcheck ? "memcheck" : "all";
}

using Row = std::vector<std::string>;

std::vector<Row> rows(int samples, const std::string& only) {
  std::vector<Row> all;
  const auto add = [&](const std::string& name, const std::string& checks, const Row& cells) {
    Row row = {sim::isa().name, name, checks};
    row.insert(row.end(), cells.begin(), cells.end());
    all.push_back(std::move(row));
  };
  for (const SimKernel& k : sim_kernels()) {
    if (std::string(k.name).find(only) == std::string::npos) continue;
    for (const uint32_t check : {sim::kCheckNone, sim::kMemcheck, sim::kCheckAll}) {
      if (!k.every_check && check != sim::kMemcheck) continue;
      try {
        add(k.name, check_name(check), time_loop(k, check, samples));
      } catch (const Refused& refused) {
        add(k.name, check_name(check), {refused.what(), "-", "-", "-", "-"});
      } catch (const std::exception& error) {
        throw std::runtime_error(std::string(k.name) + ": " + error.what());
      }
    }
  }
  if (std::string("launch").find(only) == std::string::npos) return all;
  add("launch, 1 block", "memcheck", time_launch(1, 1, samples));
  add("launch, 64 blocks", "memcheck", time_launch(64, 1, samples));
  add("launch, 64 blocks on 2 threads", "memcheck", time_launch(64, 2, samples));
  return all;
}

// The instruction set is chosen once per process, so that each has a process of its own.
std::vector<Row> rows_of(const char* isa, int samples, const std::string& only) {
  int ends[2];
  if (pipe(ends)) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    close(ends[0]);
    setenv("LATHE_SIM_ISA", isa, 1);
    std::string text;
    int status = 0;
    try {
      if (std::strcmp(sim::isa().name, isa) == 0) {
        for (const Row& row : rows(samples, only)) {
          for (const std::string& cell : row) text += cell + '\t';
          text += '\n';
        }
      }
    } catch (const std::exception& error) {
      text = error.what();
      status = 1;
    }
    for (size_t done = 0; done < text.size();) {
      const ssize_t wrote = write(ends[1], text.data() + done, text.size() - done);
      if (wrote <= 0) _exit(1);
      done += static_cast<size_t>(wrote);
    }
    _exit(status);
  }
  close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t got; (got = read(ends[0], piece, sizeof(piece))) > 0;) {
    text.append(piece, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status) throw std::runtime_error(text);
  std::vector<Row> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    all.emplace_back();
    for (size_t tab; (tab = text.find('\t', at)) < end; at = tab + 1) {
      all.back().push_back(text.substr(at, tab - at));
    }
    at = end + 1;
  }
  return all;
}

}  // namespace

Table bench_sim(const Settings& settings) {
  std::vector<std::string> columns = kColumns;
  columns.push_back("processor");
  Table table(columns);
  const std::string model = processor();
  for (const char* isa : {"avx512", "avx2", "base"}) {
    if (!settings.isa.empty() && settings.isa != isa) continue;
    for (Row& row : rows_of(isa, settings.runs > 0 ? settings.runs : 7, settings.only)) {
      row.push_back(model);
      table.add(std::move(row));
    }
  }
  return table;
}

}  // namespace bench
