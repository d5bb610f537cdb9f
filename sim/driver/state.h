// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the driver's state: devices, contexts, streams, events, modules, allocations.
// Everything here is guarded by Driver::mutex; work itself (copies, kernels, host functions) runs
// outside it.
//
// A handle given to the caller is a number that is never used again, not a pointer, so a stale or
// invented handle is always told from a live one.
#pragma once

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/driver/options.h"
#include "sim/driver/report/timeline_picture.h"
#include "sim/driver/work_state.h"

namespace sim::driver {

using Lock = std::unique_lock<std::mutex>;

struct Context;
struct Device;

struct Module;

// A Function is one kernel of one module in one context: a CUfunction.
struct Function : Object {
  Module* module = nullptr;
  std::shared_ptr<const sim::Module> code;
  const Kernel* kernel = nullptr;
  int max_dynamic_shared = 0;
  int carveout = -1;
  int scheduling_policy = 0;
  bool non_portable_cluster = false;
  std::optional<int> assembled;  // registers by ptxas, 0 if it did not say; empty: not asked yet
};

struct Module : Object {
  Context* context = nullptr;
  std::shared_ptr<const sim::Module> code;
  std::shared_ptr<const Image> image;
  std::map<std::string, std::shared_ptr<Function>> functions;
};

struct Library;

struct LibraryKernel : Object {
  Library* library = nullptr;
  const Kernel* kernel = nullptr;
  // These attributes, by (device, attribute), were set through the kernel. Functions made later get
  // them too.
  std::map<std::pair<int, CUfunction_attribute>, int> attributes;
};

// A Library is code that belongs to no context. It becomes a module in each context that asks for a
// function.
struct Library : Object {
  std::shared_ptr<const sim::Module> code;
  std::map<std::string, std::shared_ptr<LibraryKernel>> kernels;
  std::map<uint64_t, std::shared_ptr<Module>> modules;  // by context handle
};

struct Pool : Object {
  Device* device = nullptr;
  uint64_t release_threshold = 0;
  uint64_t used = 0, used_high = 0;
  int reuse[3] = {1, 1, 1};
  std::vector<Device*> peers;  // other devices whose kernels may use its memory
};

struct Block {  // one allocation, for look-ups by address
  uint64_t base = 0, bytes = 0;
  MemoryKind kind = MemoryKind::device;
  uint64_t id = 0;
  Context* context = nullptr;
  Device* device = nullptr;
  std::shared_ptr<Pool> pool;  // cuMemAllocAsync
  std::shared_ptr<char> host;  // pinned memory of ours
  unsigned host_flags = 0;
};

struct Context : Object {
  Device* device = nullptr;
  bool primary = false;
  bool alive = true;  // false: a primary context nobody holds, or a destroyed one
  unsigned flags = 0;
  CUresult error = CUDA_SUCCESS;  // sticky, from a fault
  std::shared_ptr<Stream> legacy;
  std::shared_ptr<Stream> janitor;  // releases memory after everything enqueued before
  std::map<uint64_t, std::shared_ptr<Stream>>
      streams;  // by handle, all kinds, in order of creation
  std::map<uint64_t, std::shared_ptr<Event>> events;
  std::map<uint64_t, std::shared_ptr<Module>> modules;
  std::map<uint64_t, size_t> limits;
  std::shared_ptr<Heap> heap;   // of kernels' malloc; made by the first launch, with its limit
  std::vector<Context*> peers;  // contexts whose memory this one's kernels may use
  unsigned cache_config = CU_FUNC_CACHE_PREFER_NONE;
};

struct Runner;  // worker.cpp

struct Device {
  Device();
  ~Device();
  Runner& own_runner();

  int ordinal = 0;
  Profile profile;
  std::unique_ptr<Memory> memory;
  std::shared_ptr<Context> primary;  // made once, revived by every retain
  int primary_references = 0;
  unsigned primary_flags = 0;
  std::shared_ptr<Pool> default_pool, current_pool;
  std::vector<Context*> contexts;  // alive
  std::mt19937_64 random;
  uint64_t allocations = 0;
  bool started = false;                          // the worker thread exists
  int running = 0;                               // operations in flight, of which one has the turn
  std::vector<std::unique_ptr<Runner>> runners;  // the first is the device's own
  std::vector<Runner*> paused, idle;             // in the middle of their work; without work
  bool own_waits = false;                        // its own runner waits for the others
  std::shared_ptr<RaceWorld> world;              // of launches that may run beside each other
  bool shares = false;                           // several streams may run beside each other
  int fruitless = 0;     // chances that running work gave to others, of which none could run
  bool stalled = false;  // there is work, none of it ready
  bool holding = false;  // new work waits a moment for more, so that order is free
  Clock::time_point hold_until;
};

// A Mapping is a range of addresses with memory behind them (cuMemMap), listed by its start.
struct Mapping {
  size_t bytes = 0;
  std::shared_ptr<Object> memory;  // what cuMemCreate made
  std::vector<Device*> seen_by;    // cuMemSetAccess
};

// An Arrival says when a value got what a stream waits for, in model time.
struct Arrival {
  double end = 0;
  double begin = 0;  // of the messages behind it
  std::string name;  // "": none
  uint64_t sent = 0, received = 0;
  int peer = -1;
  TimedPtr by;  // the work that wrote the value; null: not a stream's
};

// Work that has run, but has no place in model time yet; `write` writes its lines once it has.
struct Unsettled {
  TimedPtr timed;
  std::function<void()> write;
};

struct Driver {
  std::mutex mutex;
  std::condition_variable changed;  // anything that somebody may wait for
  bool initialized = false;
  Options options;
  std::vector<std::unique_ptr<Device>> devices;
  std::unordered_map<uint64_t, std::weak_ptr<Object>> objects;
  std::map<uint64_t, std::shared_ptr<Library>> libraries;
  std::map<uint64_t, std::shared_ptr<Pool>> pools;
  std::map<uint64_t, std::shared_ptr<Object>> graphs;    // CUgraph, CUgraphExec, CUuserObject
  std::map<uint64_t, std::shared_ptr<Object>> links;     // CUlinkState
  std::map<uint64_t, std::shared_ptr<Object>> memories;  // CUmemGenericAllocationHandle
  std::map<uint64_t, size_t> reservations;               // cuMemAddressReserve, by start
  std::map<uint64_t, Mapping> mappings;
  std::map<uint64_t, std::shared_ptr<Context>> contexts;
  std::map<uint64_t, Block> blocks;  // by base address
  std::vector<std::weak_ptr<Capture>> captures;
  uint64_t next_handle = 0x1000;
  uint64_t next_block = 1;
  int waiters = 0;            // host threads that want progress now
  uint64_t timeline_age = 1;  // restarts of the timeline, from 1
  ModelTime model_time;
  std::vector<Unsettled> unsettled;
  Spans spans;                           // for the timeline's picture
  int pictures = 0;                      // of it that were drawn
  std::map<uint64_t, Arrival> arrivals;  // model times of values, by address
  uint32_t lines = 0;                    // order.h: of work in order, so far
  std::vector<uint32_t> free_lines;      // whose streams are gone
  OrderClocks numbers;                   // by line: of its newest work
  OrderClocks host_clocks;               // what the host has seen to be over
  OrderClocks over_clocks;               // what is over

  static Driver& get();

  template <typename T>
  std::shared_ptr<T> add(std::shared_ptr<T> object) {
    object->handle = next_handle;
    next_handle += 16;
    objects[object->handle] = object;
    return object;
  }
  template <typename T, typename H>
  std::shared_ptr<T> find(H handle) {
    auto it = objects.find(reinterpret_cast<uint64_t>(handle));
    return it == objects.end() ? nullptr : std::dynamic_pointer_cast<T>(it->second.lock());
  }
  // Returns the block that holds [address, address + bytes); null if none does entirely.
  Block* find_block(uint64_t address, uint64_t bytes = 1);
  // Sleeps until the predicate holds, urging the workers on.
  template <typename P>
  void wait(Lock& lock, P predicate) {
    ++waiters;
    changed.notify_all();
    changed.wait(lock, predicate);
    --waiters;
  }
};

struct TimelineEvent;

// Holds a thread's stack of contexts and what the thread is doing.
struct ThreadState {
  std::vector<uint64_t> stack;                         // handles
  std::unordered_map<uint64_t, uint64_t> own_streams;  // context handle -> per-thread stream
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_host_function = false;
  double model = 0;                         // model time of the newest work it has seen the end of
  uint64_t age = 0;                         // Driver::timeline_age then
  int rank = -1;                            // of its first communicator
  Operation* operation = nullptr;           // the work that it runs, if it is a device's
  Device* device = nullptr;                 // that device
  Stream* stream = nullptr;                 // and the stream
  TimelineEvent* timeline_event = nullptr;  // of that work
};
ThreadState& thread_state();

template <typename H, typename T>
H handle_of(const std::shared_ptr<T>& object) {
  return reinterpret_cast<H>(object->handle);
}

}  // namespace sim::driver
