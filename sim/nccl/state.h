// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the library's state. State::mutex guards all of it.
//
// An operation runs like this. A call records an event in the caller's stream ("ready": this rank's
// buffers may be used), then makes the stream wait for a 32-bit flag in pinned memory, and returns.
// Calls of different ranks are matched on the host at once. The progress thread waits until all
// ready events of a matched task are over, copies (and reduces) on streams of its own, and then
// writes the flags. No driver thread is ever blocked by a partner that has not come, and an error
// releases the streams by writing the flags as well.
//
// In a graph a host function takes the place of the event, at each replay (arrival.cpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sim/nccl/call.h"
#include "sim/nccl/table.h"

namespace sim::nccl {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

struct Arrival;
struct Clique;
struct Split;

// Says what a launch moves, and when, in the simulator's model time (timeline.cpp).
struct Travel {
  std::string name;                 // the operations in words
  uint64_t sent = 0, received = 0;  // bytes, on the links
  int peer = -1;                    // who sends to this rank; below 0: nobody, or several
  double ready = -1;                // microseconds; below 0: not asked yet
  double begin = -1, end = 0;
};

// A Launch is all operations that one rank put into one stream in one go.
struct Launch {
  ncclComm* comm = nullptr;
  CUstream stream = nullptr;
  std::thread::id thread;    // says which stream CU_STREAM_PER_THREAD is
  uint64_t order = 0;        // of all launches of the process
  CUevent ready = nullptr;   // null: a host function says so
  CUevent passed = nullptr;  // recorded after the wait for the flag; null: a replay
  bool is_ready = false, released = false, failed = false;
  uint32_t* flag = nullptr;  // the stream waits until it has reached `value`
  uint32_t value = 0;
  int remaining = 0;  // operations not over
  int running = 0;    // operations whose copies are under way
  Travel travel;
};
using LaunchPtr = std::shared_ptr<Launch>;

struct Part {
  int rank = 0;
  Call call;
  LaunchPtr launch;
  Clock::time_point since;
};

// A Page holds pinned flags of one communicator; the last owner to let go gives them back, without
// State::mutex.
struct Page {
  CUcontext context = nullptr;
  uint32_t* flags = nullptr;
  Page() = default;
  ~Page();
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
};

// A Task is operations that belong together: those of all ranks, or a send and a receive.
struct Task {
  Clique* clique = nullptr;
  std::vector<Part> parts;
  bool running = false;
  struct Mark {
    CUcontext context;
    CUevent event;
  };
  std::vector<Mark> marks;                  // over when all of these are
  std::vector<std::shared_ptr<void>> jobs;  // what host functions read
};

// The ranks of one communicator share a Clique.
struct Clique {
  std::vector<ncclComm*> ranks;                       // null: gone
  std::map<uint64_t, std::vector<Part>> collectives;  // by number; those still missing a rank
  std::map<std::pair<int, int>, std::deque<Part>> sends, recvs;  // by (from, to)
  std::map<uint64_t, std::shared_ptr<Split>> splits;
  char* staging = nullptr;  // pinned: a piece per rank and one for the result
  bool complete = false;    // all ranks have met
  ncclResult_t error = ncclSuccess;
  std::string text;
  int size() const { return static_cast<int>(ranks.size()); }
};

}  // namespace sim::nccl

// An ncclComm is one rank's handle.
struct ncclComm {
  std::shared_ptr<sim::nccl::Clique> clique;
  int rank = 0, size = 0;
  int device = 0;
  CUcontext context = nullptr;
  bool retained = false;                        // the primary context is held by us
  bool blocking = true;                         // joins and splits wait for the other ranks
  std::shared_ptr<sim::nccl::Split> splitting;  // the newest split, if that did not wait
  CUstream lane = nullptr;                      // copies into this rank's buffers
  uint64_t operations = 0, collectives = 0, splits = 0, hops = 0;
  int arrivals = 0;                                        // that are alive
  std::string last;                                        // the newest operation in words
  std::vector<sim::nccl::LaunchPtr> launches;              // not over
  std::vector<std::shared_ptr<sim::nccl::Page>> pages;     // of flags
  std::vector<std::pair<uint32_t*, uint32_t>> free_flags;  // and the value last used
};

namespace sim::nccl {

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // launches over, ranks joined
  std::condition_variable work;     // for the progress thread
  std::set<ncclComm*> comms;
  std::vector<std::shared_ptr<Task>> tasks;  // matched, not over
  std::set<std::shared_ptr<Clique>> cliques;
  std::set<Arrival*> arrivals;
  std::vector<std::shared_ptr<Page>> orphans;  // of ended communicators, used by graphs
  uint64_t launches = 0;
  bool progress_running = false;

  static State& get();
};

constexpr size_t kFlagsPerPage = 1024;
constexpr size_t kChunk = 256 * 1024;  // bytes reduced at a time

std::chrono::milliseconds timeout();
// Reads LATHE_SIM_NCCL_TIMEOUT_MS; `what` receives a value that is not allowed.
std::chrono::milliseconds read_timeout(std::string* what);

// Keeps `text` as this thread's last error and returns `code`.
ncclResult_t fail_call(ncclResult_t code, const std::string& text);
const char* last_error_text();

// Ends a communicator for all its ranks: streams are released, later calls answer `code`.
void fail_clique(State& state, Clique& clique, ncclResult_t code, const std::string& text);

// Handles a failed driver call of this rank, as all fail once its context is dead: the other ranks
// must know.
ncclResult_t cuda_failure(State& state, const ncclComm& comm, CUresult result);

// Says whether the handle is a live communicator, whose ranks may still be meeting; CUDA is then
// known to be there.
bool is_live(State& state, ncclComm* comm);

// Enqueues a thread's operations; see group.cpp.
struct Queued {
  ncclComm* comm;
  Call call;
  CUstream stream;
};
ncclResult_t enqueue(State& state, std::vector<Queued> calls);
// Begins an operation whose place in its rank's order is known.
void begin(State& state, ncclComm& comm, const Call& call, const LaunchPtr& launch);

// Matches operations; see match.cpp. Matched tasks go to State::tasks.
void match(State& state, Clique& clique, Part part);
// Fails the communicator if an operation waits for a rank that is gone.
void check_gone(State& state, Clique& clique);
// Fails communicators whose operations wait for a partner longer than allowed. Returns when to look
// again.
Clock::time_point check_timeouts(State& state);
// Fails communicators whose operations wait for each other through the order of their streams.
void check_deadlock(State& state);

// Puts a ready task's copies into the lanes; see transfer.cpp.
CUresult issue(Task& task);

// These functions keep model time, where the driver has it; see timeline.cpp.
void note_lane(const ncclComm& comm);
void note_rank(int rank);
void note_call(Launch& launch, const Call& call);
void note_start(Task& task);
void note_release(const Launch& launch);

// These functions handle operations that meet their partners when the stream comes to them; see
// arrival.cpp. The communicator's context is current; the calls come before and instead of
// hold_stream.
CUresult make_arrival(State& state, ncclComm* comm, CUstream stream, bool captured, Arrival** out);
void add_call(Arrival& arrival, const Call& call);
CUresult hold_stream(Arrival& arrival);
// Takes what host functions have said since the last call. Returns whether there was anything.
bool take_arrivals(State& state);
// Lets streams that wait in the arrivals of an ending communicator go on, now and at later replays.
void end_arrivals(State& state, ncclComm* comm);

// These functions handle flags. The first two need the communicator's context to be current.
CUresult make_launch(State& state, ncclComm* comm, CUstream stream, LaunchPtr* out,
                     bool with_event = true);
CUresult take_flag(ncclComm* comm, std::pair<uint32_t*, uint32_t>* out);
CUresult hold_stream(Launch& launch);
void release(Launch& launch);

void start_progress(State& state);

}  // namespace sim::nccl
