// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// run_grid: sets a launch up, lets host threads run its blocks, gathers what they counted.
#include "sim/exec/launch.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <thread>
#include <tuple>

#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"
#include "sim/exec/host_threads.h"

namespace sim {
namespace {

// Returns where shared memory starts: where the hardware has it, or with aligncheck no better
// aligned than its variables ask for, so that code which needs more shows.
uint32_t shared_start(const Launch& l) {
  const bool in_front = l.profile->major >= 9 || l.function->uses_reserved_shared;
  const uint32_t reserved = in_front ? kReservedEnd : 0;
  const uint32_t align = std::max(16u, l.function->shared_align);
  if (!(l.settings->check & kAligncheck) || align >= 1024) return reserved;
  return reserved + align * static_cast<uint32_t>(mix(l.settings->seed) % (1024 / align));
}

void sample(Launch* l) {
  const Grid& g = *l->grid;
  const uint64_t size = uint64_t{g.cluster[0]} * g.cluster[1] * g.cluster[2];
  const uint64_t wanted = (l->settings->sample_blocks + size - 1) / size;
  const Function& f = *l->function;
  if (wanted == 0 || wanted >= l->clusters || (f.sees_blocks && !f.alone_if_sampled)) return;
  l->view.waits_left_out = f.sees_blocks;
  l->sampled = sample_clusters(l->clusters, wanted);
  l->scale = static_cast<double>(l->clusters) / static_cast<double>(l->sampled.size());
  l->clusters = l->sampled.size();
}

// Chooses the clusters that are recorded, among those that run.
void choose_traced(Launch* l) {
  const Traces* traces = l->settings->traces;
  if (!traces || traces->most == 0) return;
  const uint32_t* size = l->grid->cluster;
  const uint64_t each = uint64_t{size[0]} * size[1] * size[2];
  const uint64_t wanted = std::max<uint64_t>(1, traces->most / each);
  std::vector<uint64_t> places(l->clusters);
  std::iota(places.begin(), places.end(), uint64_t{0});
  if (wanted < l->clusters) places = sample_clusters(l->clusters, wanted);
  for (const uint64_t place : places) {
    l->traced.push_back(l->sampled.empty() ? place : l->sampled[place]);
  }
}

void set_up(Launch* l) {
  const Grid& g = *l->grid;
  LaunchView& v = l->view;
  l->function = g.kernel->code.get();
  l->clusters = static_cast<uint64_t>(g.grid[0] / g.cluster[0]) * (g.grid[1] / g.cluster[1]) *
                (g.grid[2] / g.cluster[2]);
  sample(l);
  choose_traced(l);
  const uint32_t threads = g.block[0] * g.block[1] * g.block[2];
  for (auto& tid : l->tid) tid.resize((threads + 31) / 32 * 32);
  for (uint32_t t = 0; t < threads; ++t) {
    l->tid[0][t] = t % g.block[0];
    l->tid[1][t] = t / g.block[0] % g.block[1];
    l->tid[2][t] = t / g.block[0] / g.block[1];
  }
  for (int k = 0; k < 3; ++k) {
    v.tid[k] = l->tid[k].data();
    v.grid[k] = g.grid[k];
    v.block[k] = g.block[k];
    v.cluster[k] = g.cluster[k];
  }
  v.params = g.params.data();
  v.param_bytes = static_cast<uint32_t>(g.params.size());
  const Function& f = *l->function;
  v.shared_begin = shared_start(*l);
  v.shared_bytes = v.shared_begin + f.static_shared;
  if (g.dynamic_shared_bytes) {
    v.shared_bytes = (v.shared_bytes + f.dynamic_align - 1) / f.dynamic_align * f.dynamic_align;
  }
  v.shared_bytes += g.dynamic_shared_bytes;
  v.dynamic_shared = g.dynamic_shared_bytes;
  v.multiprocessors = static_cast<uint32_t>(std::max(1, l->profile->multiprocessors));
  v.seed = l->settings->seed;
  v.depot_bytes = f.local_bytes;
  if (f.uses_stack) v.depot_bytes += (l->settings->stack_bytes + 15) / 16 * 16;
  v.check_nothing = l->settings->check == kCheckNone;
  v.check_memory = (l->settings->check & kMemcheck) != 0;
  v.check_async = (l->settings->check & kAsynccheck) != 0;
  v.explicit_cluster = g.kernel->explicit_cluster || g.cluster[0] * g.cluster[1] * g.cluster[2] > 1;
  v.check_defined = (l->settings->check & kInitcheck) != 0;
  v.tensor_sum = l->settings->tensor_sum;
  v.async_policy = l->settings->async_policy;
  v.memory_version = l->memory->version();
  if (l->settings->check & kRacecheck) l->races = make_race_grid(*l);
  if (g.dependence) g.dependence->blocks = l->clusters * g.cluster[0] * g.cluster[1] * g.cluster[2];
}

// Reports what makes a launch impossible; returns 0 if nothing does.
int refuse(const Grid& g, const Profile& profile, std::vector<Finding>* findings) {
  auto say = [&](const std::string& text) {
    Finding f;
    f.check = "memcheck";
    f.kind = "launch";
    f.text = text;
    f.kernel = g.kernel ? g.kernel->name : "";
    findings->push_back(f);
    return 1;
  };
  if (!g.kernel || !g.kernel->code || !g.image) return say("no kernel or no image");
  const uint64_t threads = static_cast<uint64_t>(g.block[0]) * g.block[1] * g.block[2];
  if (threads == 0 || threads > 1024 || !g.grid[0] || !g.grid[1] || !g.grid[2]) {
    return say("a block of " + std::to_string(threads) + " threads, or an empty grid");
  }
  if (g.params.size() < g.kernel->param_bytes) {
    return say(std::to_string(g.params.size()) + " bytes of parameters; the kernel takes " +
               std::to_string(g.kernel->param_bytes));
  }
  const uint64_t shared = uint64_t{g.kernel->static_shared_bytes} + g.dynamic_shared_bytes;
  if (shared > static_cast<uint64_t>(profile.shared_per_block_optin)) {
    return say("a block of " + std::to_string(g.kernel->static_shared_bytes) + " + " +
               std::to_string(g.dynamic_shared_bytes) +
               " bytes of static and dynamic shared memory; the device has " +
               std::to_string(profile.shared_per_block_optin) + " for one");
  }
  uint64_t cluster = 1;
  for (int k = 0; k < 3; ++k) {
    if (g.cluster[k] == 0 || g.grid[k] % g.cluster[k] != 0) {
      return say("a grid of " + std::to_string(g.grid[k]) + " blocks in clusters of " +
                 std::to_string(g.cluster[k]));
    }
    cluster *= g.cluster[k];
  }
  if (cluster > 16) return say("a cluster of " + std::to_string(cluster) + " blocks");
  return 0;
}

constexpr uint64_t kUsualHeap = 8 << 20;

// A Workspace is what the driver hands to cooperative groups in %envreg1 and %envreg2: a word with
// its size, then the word of the grid's barrier, which begins as 0.
class Workspace {
 public:
  Workspace(Memory* memory, bool wanted) : memory_(memory) {
    if (!wanted) return;
    base_ = memory->allocate(kBytes, MemoryKind::device, 0);
    if (!base_) return;
    const uint32_t words[] = {kBytes, 0};
    std::memset(reinterpret_cast<void*>(base_), 0, kBytes);
    std::memcpy(reinterpret_cast<void*>(base_), words, sizeof(words));
    memory->define(base_, kBytes);
  }
  ~Workspace() {
    if (base_) memory_->release(base_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  uint64_t base() const { return base_; }

 private:
  static constexpr uint32_t kBytes = 256;
  Memory* memory_;
  uint64_t base_ = 0;
};

void run_workers(Launch* launch, std::vector<std::unique_ptr<HostWorker>>* workers) {
  uint64_t wanted = launch->settings->threads > 0
                        ? static_cast<uint64_t>(launch->settings->threads)
                        : std::max(1u, std::thread::hardware_concurrency());
  wanted = std::min(wanted, launch->clusters);
  // Findings and results must not depend on the number of host threads.
  // A grid that may have to wait for another, or let another run, takes turns with it.
  const Settings& settings = *launch->settings;
  if (launch->races || launch->function->ordered_across_blocks || settings.primary_over) wanted = 1;
  launch->takes_turns = wanted == 1 && settings.give_way &&
                        (launch->races || launch->function->ordered_across_blocks ||
                         launch->grid->cooperative || settings.primary_over);
  workers->resize(wanted);
  run_together(wanted, [&](uint64_t k) {
    (*workers)[k] = std::make_unique<HostWorker>(launch);
    (*workers)[k]->run();
  });
  std::erase(*workers, nullptr);
}

void note_dependents(const std::vector<std::unique_ptr<HostWorker>>& workers, Outcome* outcome) {
  double told = 0, waited = 0;
  uint64_t told_blocks = 0, waited_blocks = 0;
  for (const auto& worker : workers) {
    told += worker->told;
    told_blocks += worker->told_blocks;
    waited += worker->waited;
    waited_blocks += worker->waited_blocks;
  }
  if (told_blocks > 0) outcome->told = told / static_cast<double>(told_blocks);
  if (waited_blocks > 0) outcome->waited = waited / static_cast<double>(waited_blocks);
}

// Findings of clusters after the one with a fault do not count.
void take_findings(Launch* launch, Outcome* outcome) {
  const uint64_t last = launch->timed_out ? kNoCluster : launch->fault_cluster.load();
  outcome->findings = launch->kept.take(last);
  std::move(launch->findings.begin(), launch->findings.end(),
            std::back_inserter(outcome->findings));
  auto key = [](const Finding& f) {
    return std::tie(f.block[2], f.block[1], f.block[0], f.ptx_line, f.thread[2], f.thread[1],
                    f.thread[0], f.kind);
  };
  std::stable_sort(outcome->findings.begin(), outcome->findings.end(),
                   [&](const Finding& a, const Finding& b) { return key(a) < key(b); });
}

}  // namespace

void Launch::fail(uint64_t cluster, int code) {
  const std::lock_guard lock(mutex);
  if (timed_out || cluster >= fault_cluster.load()) return;
  error.store(code);
  fault_cluster.store(cluster);
}

void Launch::time_out() {
  const std::lock_guard lock(mutex);
  if (error.load()) return;
  timed_out = true;
  error.store(702);
  fault_cluster.store(0);
}

Outcome run_grid(const Grid& grid, const Profile& profile, Memory& memory,
                 const Settings& settings) {
  Outcome outcome;
  outcome.error = refuse(grid, profile, &outcome.findings);
  if (outcome.error) return outcome;
  const auto begin = std::chrono::steady_clock::now();
  Launch launch;
  launch.grid = &grid;
  launch.profile = &profile;
  launch.memory = &memory;
  launch.settings = &settings;
  Heap own_heap(&memory, kUsualHeap);
  launch.heap = grid.heap ? grid.heap : &own_heap;
  const Workspace workspace(&memory, grid.cooperative);
  launch.view.grid_workspace = workspace.base();
  launch.kept = Findings(settings.findings_per_pc);
  set_up(&launch);
  std::vector<std::unique_ptr<HostWorker>> workers;
  run_workers(&launch, &workers);
  flush_prints(launch);
  // Copies that a fault has ended are under way for nobody.
  if (launch.races && launch.error.load() != 0) launch.races->world->borrowed.clear();
  for (auto& [cluster, blocks] : launch.traces) {
    auto& all = settings.traces->blocks;
    std::move(blocks.begin(), blocks.end(), std::back_inserter(all));
  }
  note_dependents(workers, &outcome);
  outcome.error = launch.error.load();
  take_findings(&launch, &outcome);
  if (outcome.error == 702) {
    Finding f;
    f.check = "synccheck";
    f.kind = "timeout";
    f.text = "the launch ran past " + std::to_string(settings.instruction_limit) +
             " warp instructions: a loop without end, or threads that spin for something that "
             "never comes";
    f.kernel = grid.kernel->name;
    outcome.findings.push_back(f);
  }
  // The host decides where the others stood when a fault came.
  if (outcome.error == 0) outcome.counters = collect(launch, workers);
  outcome.counters.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

}  // namespace sim
