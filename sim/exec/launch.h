// This file declares the run of one grid. It is the only door from sim/driver into the interpreter.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/check/memory.h"
#include "sim/exec/policy.h"
#include "sim/exec/tally.h"
#include "sim/exec/trace.h"
#include "sim/ptx/module.h"

namespace sim {

// A Profile describes a device: the numbers behind cuDeviceGetAttribute and the limits of a launch.
struct Profile {
  std::string arch;  // "sm_90a": PTX with this target, or an older plain one, runs
  std::string gpu;   // "h100": what LATHE_SIM_GPU calls it
  std::string name;  // the hardware's own
  int major = 9, minor = 0;
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
  int blocks_per_multiprocessor = 32;
  int registers_per_multiprocessor = 65536;
  int shared_per_multiprocessor = 233472;
  int shared_per_block_optin = 232448;
  int shared_per_block = 49152;
  int shared_reserved = 1024;
  int l2_bytes = 52428800;
  bool clusters = true;
  uint64_t memory_bytes = 0;
  double memory_bytes_per_second = 0;
  double clock_hz = 0;
};

// Returns the profile by its arch name (sm_80, sm_86, sm_89, sm_90, sm_90a); null if unknown.
const Profile* find_profile(const std::string& arch);
// find_gpu() finds a profile by Profile::gpu; null if unknown. The other function lists all of
// them, for messages.
const Profile* find_gpu(const std::string& gpu);
std::string gpu_names();

// An Image is a module loaded into a context; it says where the module's variables live.
struct Image {
  std::shared_ptr<const Module> module;
  std::unordered_map<std::string, uint64_t> symbols;
};
// Allocates and initialises the module's variables. Returns null and fills `log` if memory runs
// out.
std::shared_ptr<const Image> load_image(std::shared_ptr<const Module> module, Memory& memory,
                                        std::string* log);
void unload_image(const Image& image, Memory& memory);

// The checks of a launch are a set of these bits.
enum Check : uint32_t {
  kMemcheck = 1,     // bounds, alignment, lifetime; without it a wild address ends the process
  kInitcheck = 2,    // reads of bytes that nobody wrote
  kRacecheck = 4,    // unordered accesses
  kSynccheck = 8,    // barriers and convergence; their faults end a launch in any case
  kAsynccheck = 16,  // copies and products in flight, proxies, descriptors
  kAligncheck = 32,  // shared memory begins no better aligned than its variables ask for
  kRegcheck = 64,    // registers that nobody has written; compilers leave such, so not in `all`
  kCheckNone = 0,    // a misuse after which a kernel can go on has no error then
  kCheckAll = 63
};

struct Settings {
  uint64_t seed = 0;
  int threads = 0;                 // host threads that run CTAs; 0: as many as there are cores
  uint32_t check = kCheckAll;      // of Check
  uint64_t instruction_limit = 0;  // warp instructions per launch; 0: none. Past it: error 702
  int findings_per_pc = 1;
  AsyncPolicy async_policy = AsyncPolicy::lazy;
  TensorSum tensor_sum = TensorSum::exact;
  uint32_t stack_bytes = 1024;  // per thread, for calls and alloca: CU_LIMIT_STACK_SIZE
  // Takes the text that kernels print, whole calls, in the order of blocks. Where this is empty,
  // the standard output gets the text.
  std::function<void(std::string_view)> print;
  bool profile = false;  // count by PTX line too
  // At most so many blocks of a grid run, spread evenly, and counters are scaled to all of it: the
  // results of the grid are wrong then. With 0 all run. Kernels whose blocks look at what others do
  // run whole.
  uint64_t sample_blocks = 0;
  // Is called now and then by a grid that runs on one host thread: other work may run then, and the
  // grid may be waiting for it, which it knows if it is urgent. An answer other than 0 ends the
  // grid with that error.
  std::function<int(bool urgent)> give_way;
  // Says whether the grids that griddepcontrol.wait waits for are over. Empty: they are.
  std::function<bool()> primary_over;
  Traces* traces = nullptr;  // filled if it is not null
};

// A LaunchOrder says where a launch, a copy or a fill stands among the work of a device. A line is
// work in order: a stream, or a branch of a graph.
struct LaunchOrder {
  uint32_t line = 0;
  uint64_t number = 0;                  // in the line, from 1
  std::map<uint32_t, uint64_t> before;  // by line: what is over when this begins, up to a number
  std::vector<uint64_t> early;          // but not these of the own line, before its wait
  bool covers(const LaunchOrder& other) const;
};

// A Dependence is what a grid tells the next one of its stream, which programmatic dependent launch
// may start early.
struct Dependence {
  std::atomic<uint64_t> blocks{~0ull};     // that have neither told dependents to start nor ended
  std::atomic<bool> told{false};           // launch_dependents was executed,
  std::atomic<bool> told_unwaited{false};  // also by a warp that had not waited
  std::atomic<bool> waited{false};         // griddepcontrol.wait was executed
  bool triggered() const { return blocks.load() == 0; }
  // The numbers of what may still run when the next grid begins early; `mine` is this grid's order.
  std::vector<uint64_t> early_for_next(const LaunchOrder& mine) const;
};

class Heap;        // heap.h
struct RaceWorld;  // check/race_world.h

struct Grid {
  const Kernel* kernel = nullptr;
  const Image* image = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  std::vector<uint8_t> params;  // laid out as Kernel::params says
  LaunchOrder order;
  // It says what other launches did to global memory, for the race check; null: this one is alone.
  std::shared_ptr<RaceWorld> world;
  std::shared_ptr<Dependence> dependence;  // null: nobody asks
  // All blocks run together, and cooperative groups find their barrier.
  bool cooperative = false;
  Heap* heap = nullptr;  // of malloc; null: the grid has one of the usual size for itself
};

// A Finding is one thing that the checkers found.
struct Finding {
  std::string check;  // "memcheck", "initcheck", "racecheck", "synccheck", "asynccheck", "regcheck"
  std::string kind;   // "out_of_bounds", "misaligned", "uninitialized", "barrier", "race", ...
  std::string text;   // one sentence: what, where, the nearest allocation
  std::string kernel;
  uint32_t block[3] = {0, 0, 0};
  uint32_t thread[3] = {0, 0, 0};
  uint64_t address = 0;
  uint32_t bytes = 0;
  int ptx_line = 0;
  std::string source;  // "conv/causal_conv1d.cuh:42", empty without .loc
  // These fields name the other party of a race; other_ptx_line is 0 if there is none.
  uint32_t other_block[3] = {0, 0, 0};
  uint32_t other_thread[3] = {0, 0, 0};
  int other_ptx_line = 0;
  std::string other_source;
  std::string other_access;  // "load", "store", "atomic", ..., "copy", "fill"
  std::string other_kernel;  // "": the same launch
};

// Holds the counts of one line of PTX.
struct LineCounters : LineTally {
  int ptx_line = 0;
  std::string source, text;  // "conv/causal_conv1d.cuh:42" or ""; the line's instructions
  std::string cls;           // of the first of them, as in Counters::by_class
  uint64_t executions = 0;   // warp instructions
  uint64_t barrier_waits = 0;
};

// Counters hold everything that was counted while a grid ran. Bytes are those the lanes asked for;
// sectors are the 32-byte pieces of memory a warp's request touched, so sectors * 32 / bytes == 1
// is full coalescing.
struct Counters : AllTraffic {
  uint64_t warp_instructions = 0;
  uint64_t thread_instructions = 0;
  std::map<std::string, uint64_t> by_class;  // warp instructions: "integer", "float", "memory", ...
  // These counts are the distinct 32-byte sectors of global memory that the whole grid touched.
  uint64_t unique_load_sectors = 0, unique_store_sectors = 0;
  // These are the distinct sectors that L2 was asked for ahead of loads, and those of them that no
  // block which ran has loaded.
  uint64_t unique_prefetch_sectors = 0, vain_prefetch_sectors = 0;
  uint64_t tensor_ops = 0;          // additions and multiplications of matrix instructions
  uint64_t barrier_waits = 0;       // warp instructions that wait: for barriers, mbarriers, groups
  std::vector<LineCounters> lines;  // Settings::profile; by PTX line, those that ran
  double seconds = 0;               // host time of the simulation
  uint64_t sampled_blocks = 0;      // those that ran, if not all did
  bool waits_left_out = false;      // those did not wait for the others

  void add(const Counters& other);
};

struct Outcome {
  int error = 0;  // CUresult: 0, 700 illegal address, 716 misaligned, 719 launch failure, 702, ...
  // The share of a block's work before griddepcontrol.launch_dependents, and before
  // griddepcontrol.wait; on average. 1, and below 0, if no block has executed it.
  double told = 1, waited = -1;
  std::vector<Finding> findings;
  Counters counters;
};

// Names the values that LATHE_SIM_ISA may have on this machine, if it has another one; returns ""
// if there is nothing to refuse.
std::string isa_refused();

// Runs the grid and blocks until it is done. Several threads may call this at once.
Outcome run_grid(const Grid& grid, const Profile& profile, Memory& memory,
                 const Settings& settings);

}  // namespace sim
