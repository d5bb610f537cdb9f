// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the progress thread, which starts matched tasks whose buffers are ready, ends
// those whose copies are done, and watches for partners that never come. It runs while there are
// communicators.
#include <algorithm>
#include <thread>

#include "sim/nccl/state.h"

namespace sim::nccl {
namespace {

constexpr auto kFastPoll = std::chrono::microseconds(50);
constexpr auto kSlowPoll = std::chrono::milliseconds(1);
constexpr auto kDeadlockCheck = std::chrono::milliseconds(200);

std::string broken(const Part& part, CUresult error) {
  return "rank " + std::to_string(part.rank) + ", " + describe(part.call) + ": " + cuda_name(error);
}

// Returns true if the event is over; an error counts as over and is kept.
bool is_over(CUcontext context, CUevent event, CUresult* error) {
  Current current(context);
  const CUresult result = cu().event_query(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS && *error == CUDA_SUCCESS) *error = result;
  return true;
}

// Starts the task if all its ranks are ready. Returns whether anything changed.
bool try_start(State& state, Task& task) {
  for (const Part& part : task.parts) {
    Launch& launch = *part.launch;
    if (launch.is_ready) continue;
    CUresult error = CUDA_SUCCESS;
    if (!is_over(launch.comm->context, launch.ready, &error)) return false;
    if (error != CUDA_SUCCESS) {
      fail_clique(state, *task.clique, ncclUnhandledCudaError, broken(part, error));
      return true;
    }
    launch.is_ready = true;
  }
  task.running = true;
  note_start(task);
  for (const Part& part : task.parts) ++part.launch->running;
  const CUresult error = issue(task);
  if (error != CUDA_SUCCESS) {
    fail_clique(state, *task.clique, ncclUnhandledCudaError, broken(task.parts[0], error));
  }
  return true;
}

bool try_end(State& state, Task& task) {
  CUresult error = CUDA_SUCCESS;
  for (const Task::Mark& mark : task.marks) {
    if (!is_over(mark.context, mark.event, &error)) return false;
  }
  for (const Task::Mark& mark : task.marks) {
    Current current(mark.context);
    cu().event_destroy(mark.event);
  }
  if (error != CUDA_SUCCESS) {
    fail_clique(state, *task.clique, ncclUnhandledCudaError, broken(task.parts[0], error));
  }
  for (const Part& part : task.parts) {
    Launch& launch = *part.launch;
    --launch.running;
    --launch.remaining;
    if (launch.remaining == 0 || (launch.failed && launch.running == 0)) release(launch);
  }
  return true;
}

// Forgets released launches whose stream has gone on. Returns whether any is left to watch.
bool retire_launches(State& state) {
  bool watching = false, changed = false;
  for (ncclComm* comm : state.comms) {
    const auto is_gone = [&](const LaunchPtr& launch) {
      if (!launch->released || launch->running > 0) return false;
      if (launch->passed == nullptr) return changed = true;  // its flag stays the graph's
      CUresult error = CUDA_SUCCESS;
      if (!is_over(comm->context, launch->passed, &error)) {
        watching = true;
        return false;
      }
      Current current(comm->context);
      if (launch->ready != nullptr) cu().event_destroy(launch->ready);
      cu().event_destroy(launch->passed);
      comm->free_flags.emplace_back(launch->flag, launch->value);
      changed = true;
      return true;
    };
    std::erase_if(comm->launches, is_gone);
  }
  if (changed) state.changed.notify_all();
  return watching;
}

// Returns whether anything changed.
bool step(State& state) {
  bool changed = false;
  const std::vector<std::shared_ptr<Task>> tasks = state.tasks;  // may shrink on failures
  for (const std::shared_ptr<Task>& task : tasks) {
    if (task->running) {
      if (!try_end(state, *task)) continue;
      std::erase(state.tasks, task);
      changed = true;
    } else if (task->clique->error == ncclSuccess) {
      changed = try_start(state, *task) || changed;
    }
  }
  return changed;
}

void run(State& state) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cu().exchange_capture_mode(&mode);  // its questions are no part of anybody's capture
  Lock lock(state.mutex);
  Clock::time_point deadlock_check = Clock::now() + kDeadlockCheck;
  std::chrono::microseconds pause = kFastPoll;
  while (!state.comms.empty()) {
    const bool arrived = take_arrivals(state);
    const bool changed = step(state) || arrived;
    const bool watching = retire_launches(state);
    const Clock::time_point next = check_timeouts(state);
    if (state.tasks.empty()) {
      deadlock_check = Clock::now() + kDeadlockCheck;
    } else if (Clock::now() >= deadlock_check) {
      check_deadlock(state);
      deadlock_check = Clock::now() + kDeadlockCheck;
    }
    pause = changed ? kFastPoll : std::min<std::chrono::microseconds>(pause * 2, kSlowPoll);
    if (!state.tasks.empty() || watching) {
      state.work.wait_for(lock, pause);
    } else if (!state.arrivals.empty()) {
      state.work.wait_for(lock, kSlowPoll);  // host functions ring without the lock
    } else if (next != Clock::time_point::max()) {
      state.work.wait_until(lock, next);
    } else {
      state.work.wait(lock);
    }
  }
  state.progress_running = false;
  state.changed.notify_all();
}

}  // namespace

void start_progress(State& state) {
  if (state.progress_running) return;
  state.progress_running = true;
  std::thread([&state] { run(state); }).detach();
}

}  // namespace sim::nccl
