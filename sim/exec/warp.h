// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the state of a running grid: launch, worker (a host thread), block, warp. It is
// plain data without standard containers, because the files that are compiled once per instruction
// set read it.
#pragma once

#include <cstdint>

#include "sim/exec/fault.h"
#include "sim/exec/policy.h"
#include "sim/exec/tally.h"
#include "sim/ptx/inst.h"

namespace sim {

struct Launch;
struct CallStack;
struct Worker;
struct Block;
struct WgmmaState;  // wgmma_state.h
struct Warpgroup;
struct Cluster;
class Async;
class Recorder;
struct Function;   // sim/ptx/code.h
struct RaceBlock;  // check/race_state.h
struct RaceWarp;
struct RaceMbarrier;

// These host addresses stand for spaces other than global in a generic address. They are reserved
// once per process, so that no allocation ever lies there.
struct Windows {
  uint64_t shared = 0, local = 0, param = 0, end = 0;  // one after the other
};
constexpr uint64_t kSharedWindow = 256ull << 20;
constexpr uint64_t kLocalWindow = 256ull << 20;
constexpr uint64_t kParamWindow = 2ull << 20;
// A kernel's parameters begin here in .param; those of a .func lie in the depot, below it.
constexpr uint64_t kKernelParams = 1ull << 20;
const Windows& windows();

enum class Parked : uint8_t { no, converge, bar_warp, barrier, blocked };

// A Strand is the lanes of a warp that are at the same place.
struct Strand {
  uint32_t pc = 0, mask = 0;
  int32_t node = -1;  // where it will meet others; -1: nowhere
  Parked parked = Parked::no;
  uint32_t sync_mask = 0;  // the lanes a parked .sync instruction names
  uint32_t depth = 0;      // of calls
};

// A Node is a join point with lanes that wait there.
struct Node {
  uint32_t pc = 0, arrived = 0;
  int32_t pending = 0;  // strands still on their way
  int32_t parent = -1;
  uint32_t depth = 0;
  bool used = false;
};

constexpr int kMaxNodes = 160;

// A `parked` warp stays so until somebody wakes it. All strands of a `waiting` warp are blocked;
// each turn tries them again.
enum class WarpState : uint8_t { runnable, parked, waiting, done };

struct Warp {
  uint8_t* regs = nullptr;
  uint32_t* preds = nullptr;
  Block* block = nullptr;
  Worker* worker = nullptr;
  const Function* function = nullptr;
  const CodeView* code = nullptr;     // the function's, for what does not see sim/ptx/code.h
  WgmmaState* wgmma = nullptr;        // null: the function has none
  uint8_t* local = nullptr;           // 32 depots, one after the other
  uint64_t* local_defined = nullptr;  // a bit per byte of them
  uint32_t index = 0;                 // in its block
  uint32_t live = 0;                  // lanes that have not exited
  uint32_t pc = 0;                    // of the running instruction
  bool stop = false;                  // a fault happened
  bool blocked = false;               // set by a blocking instruction: nothing was done, try again
  uint32_t cluster_pending = 0;       // lanes between barrier.cluster.arrive and .wait
  uint32_t cluster_parity = 0;        // of the phase they arrived in, by lane
  uint32_t register_limit = 0;        // of a thread, as setmaxnreg left it; 0: as launched
  uint64_t spurious = ~0ull;          // Cluster::events when a try_wait last gave up early
  uint64_t executed = 0;              // instructions, up to the end of its last turn
  bool at_grid_control = false;       // its turn has ended before a griddepcontrol
  uint32_t frame[32] = {};            // by lane: where the running function's variables begin
  uint32_t top[32] = {};              // and where its depot is free
  CallStack* calls = nullptr;
  RaceWarp* race = nullptr;  // null: races are not checked
  // By register and predicate, before slots: the lanes that nobody has defined. Null: not checked.
  uint32_t* undefined = nullptr;
  WarpState state = WarpState::runnable;
  int strand_count = 0, current = 0;
  Strand strands[32];
  int node_end = 0;  // nodes from here on have never been used by this block
  Node nodes[kMaxNodes];
};

struct Barrier {
  uint32_t expected = 0, arrived = 0;  // warps
  uint64_t waiting = 0;                // bit w: warp w is parked here
  uint64_t seen = 0;                   // warps that arrived in this phase
  uint32_t popc = 0;
  bool all = true, any = false;
  uint8_t mode = 0;  // 0 none yet, 1 sync/arrive, 2 red
};

// A Milestone says how far a warp had come when its block did something for the first time.
struct Milestone {
  const Warp* warp = nullptr;  // null: the block has not done it
  uint64_t executed = 0;       // by the warp
};

struct Block {
  uint32_t id[3] = {0, 0, 0};
  uint64_t linear = 0;
  uint32_t warps = 0, threads = 0;
  uint32_t warps_done = 0;
  uint8_t* shared = nullptr;  // of shared_bytes
  uint64_t* shared_defined = nullptr;
  RaceBlock* races = nullptr;                   // null: not checked
  uint32_t shared_bytes = 0, shared_begin = 0;  // valid offsets: [shared_begin, shared_bytes)
  Cluster* cluster = nullptr;
  uint32_t rank = 0;          // in its cluster
  uint64_t window = 0;        // rank << kRankShift: what addresses in its shared memory begin with
  uint16_t* marks = nullptr;  // by word of shared memory, see exec/async_marks.h; null: none needed
  uint32_t marked = 0;        // words with a mark
  uint32_t free_registers = 0;      // of the block's, for setmaxnreg
  Warpgroup* warpgroups = nullptr;  // one for four warps; null: the function has no wgmma
  Warp* warp = nullptr;
  Barrier barriers[16];
  uint64_t random = 0;
  uint64_t executed = 0;   // warp instructions
  Milestone told, waited;  // griddepcontrol.launch_dependents and griddepcontrol.wait
};

// A Cluster is the blocks that are launched together and see each other's shared memory. One block
// is the usual case.
struct Cluster {
  uint64_t linear = 0;
  uint32_t size = 1;
  Block** blocks = nullptr;  // by rank
  Async* async = nullptr;    // null: nothing asynchronous in this kernel
  uint64_t random = 0;
  uint64_t events = 0;           // phases of barriers completed, copies landed
  uint64_t phase = 0;            // of barrier.cluster
  RaceMbarrier* race = nullptr;  // of barrier.cluster
  bool awaits_primary = false;   // a warp found that griddepcontrol.wait has to be tried again
};
constexpr unsigned kRankShift = 24;

// The system's part of shared memory ends where the program's may begin. It has two rooms for
// libraries: cooperative groups keep the barriers of tiles of several warps, 288 bytes, in the
// last.
constexpr uint32_t kReservedEnd = 1024, kReservedRooms[2] = {448, 736};

// A Region is what a memory instruction found last time; it is checked again before use.
struct Region {
  uint64_t base = 0, end = 0;  // empty: none
  uint64_t* defined = nullptr;
  uint64_t* loaded = nullptr;  // a bit per 32-byte sector that the grid touched
  uint64_t* stored = nullptr;
  bool read_only = false;
};

struct Tally : AllTraffic {
  uint64_t thread_instructions = 0;
  uint64_t tensor_ops = 0;
};

// A Worker is one host thread's share of a launch.
struct Worker {
  Launch* launch = nullptr;
  uint64_t* pc_counts = nullptr;  // executions by instruction
  Region* regions = nullptr;      // by memory ordinal
  uint64_t memory_version = 0;    // of which the regions were looked up
  Tally tally;
  LineTally* lines = nullptr;    // by instruction; null: no profile is wanted
  LineTally before;              // totals that have been given to an instruction already
  Recorder* recorder = nullptr;  // null: no trace is wanted
  // Sums over blocks that came to a milestone, of the share of its warp's instructions before it.
  double told = 0, waited = 0;
  uint64_t told_blocks = 0, waited_blocks = 0;
  // In a trace lanes at a join wait for partners that wait for other warps, as the hardware's do,
  // unless nothing else can happen.
  bool lanes_part = false;
};
// Adds the tally's growth to the instruction; to none if `pc` is kNoTarget.
void note_line(Worker& worker, uint32_t pc);
// These functions are in exec/trace.cpp. Lanes of the warp ran straight from one instruction to
// another; an instruction was executed; one will be tried again.
void trace_turn(const Warp& warp, uint32_t first, uint32_t end, uint32_t lanes);
void trace_step(const Warp& warp, uint32_t pc, uint32_t lanes);
void trace_forget(const Warp& warp);
// Lanes touch `size` bytes of global memory each.
void trace_lanes(const Warp& warp, const uint64_t* addresses, uint32_t exec, uint32_t size);

// A LaunchView is the part of a launch that handlers need.
struct LaunchView {
  const uint8_t* params = nullptr;
  uint32_t param_bytes = 0;
  const uint32_t* tid[3] = {nullptr, nullptr, nullptr};  // by linear thread number
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  bool explicit_cluster = false;
  bool waits_left_out = false;  // a few blocks run, of a function whose blocks wait for others
  uint32_t shared_begin = 0, shared_bytes = 0, dynamic_shared = 0;
  uint32_t multiprocessors = 1;
  uint32_t depot_bytes = 0;  // of one thread: local variables and the stack
  uint64_t seed = 0;
  bool check_nothing = false;
  bool check_memory = true;   // bounds and alignment
  bool check_defined = true;  // uninitialised reads
  bool check_async = true;    // accesses to what is in flight
  TensorSum tensor_sum = TensorSum::exact;
  AsyncPolicy async_policy = AsyncPolicy::lazy;
  uint64_t grid_workspace = 0;  // of cooperative groups; 0: the launch is not cooperative
  const uint64_t* memory_version = nullptr;  // Memory::version()
};
const LaunchView& view(const Worker& worker);

// Reports a fault whose sentence the caller writes.
void report_text(Warp& warp, const Inst& inst, Fault fault, unsigned lane, uint64_t address,
                 uint32_t bytes, const char* text);
// These functions are slow paths in the base build. `report` decides whether the warp stops.
void report(Warp& warp, const Inst& inst, Fault fault, unsigned lane, uint64_t address,
            uint32_t bytes, Space space, bool store);
// Reports lanes of one convergent instruction whose masks differ and have lanes in common.
void report_overlap(Warp& warp, const Inst& inst, uint32_t lanes, uint32_t mask, uint32_t others,
                    uint32_t other_mask);
// Returns the region that holds [low, high), or null.
Region* find_region(Warp& warp, const Inst& inst, uint64_t low, uint64_t high);
// Returns the modifiers of an instruction of the running function.
const Form& form_of(const Warp& warp, const Inst& inst);
// Finds the target of a brx; returns false if the index is past the table.
bool branch_target(const Warp& warp, const Inst& inst, uint32_t index, uint32_t* target);
// These functions are in exec/calls.cpp. The lanes `exec` enter a function, or return from one:
// those that return to the same place as the first, which is *pc.
bool enter_function(Warp& warp, const Inst& inst, uint32_t callee, uint32_t exec,
                    uint32_t return_pc, uint32_t* pc);
uint32_t leave_function(Warp& warp, uint32_t exec, uint32_t* pc);
bool callee_at(const Warp& warp, const Inst& inst, uint64_t address, uint32_t* callee);
// Does one lane's printf (exec/print.cpp). Returns the number of arguments, or -1 after a fault.
int print(Warp& warp, const Inst& inst, unsigned lane, uint64_t format, uint64_t arguments);
// These functions do one lane's malloc, which returns 0 if the heap is full, and free
// (exec/heap.cpp).
uint64_t heap_allocate(Warp& warp, unsigned lane, uint64_t bytes);
void heap_release(Warp& warp, const Inst& inst, unsigned lane, uint64_t address);
uint64_t next_random(uint64_t& state);
uint64_t global_timer();

inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A RunResult is the reason why a warp stopped running.
enum class RunResult : uint8_t { quantum, parked, done, stopped };

// An Isa is the code of one host instruction set.
struct Isa {
  const char* name;
  Handler (*resolve)(const Form& form);
  RunResult (*run)(Warp& warp, uint64_t quantum);
};
const Isa& isa();  // the best this machine has; LATHE_SIM_ISA picks another

// Follows registers that nobody has written through the instruction, which the lanes `exec` of
// `mask` are about to execute (exec/undefined.cpp).
void watch_registers(Warp& warp, const Inst& inst, uint32_t mask, uint32_t exec);

// Executes griddepcontrol (exec/dependents.cpp). Returns false if it has to be tried again.
bool grid_control(Warp& warp, const Inst& inst);

// Makes a warp's strand arrive at a block barrier; in the base build.
void arrive_at_barrier(Warp& warp, const Inst& inst, Strand& strand);

}  // namespace sim
