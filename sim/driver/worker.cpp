// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ready work of a device runs in a seeded order among streams: any order that streams, events and
// the legacy stream leave open may come. A kernel that runs on one host thread gives way now and
// then: work of other streams begins or goes on meanwhile, on a host thread of its own, so that
// kernels of different streams take turns. New work on an idle device is held back for a moment, or
// until somebody waits, so that there is something to reorder.
//
// Each such host thread is a Runner. One of a device's runners has the turn; the others wait,
// either in the middle of their work or for work.
#include <algorithm>
#include <thread>
#include <utility>

#include "sim/driver/order.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

namespace sim::driver {

struct Runner {
  bool turn = false;
  std::condition_variable wake;
  std::shared_ptr<Stream> stream;        // whose work it is to run
  std::shared_ptr<Operation> operation;  // that work
  uint64_t patience = 1;                 // it gives way once in so many chances, on average
};

namespace {

// So often in a row work that runs finds nothing else to run before it seems to wait for the host.
constexpr int kFruitless = 500;
constexpr auto kPoll = std::chrono::microseconds(200);  // of values that host threads may write

thread_local Runner* this_runner = nullptr;

// A Choice is what a device may do next: begin a piece of work, or go on with one.
struct Choice {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Operation> operation;
  Runner* runner = nullptr;
  bool any_work = false;
  bool something() const { return operation || runner; }
};

bool is_ready(const Operation& operation) {
  for (const CompletionPtr& completion : operation.after) {
    if (!completion->done) return false;
  }
  return !operation.ready || operation.ready();
}

// Returns the work of a stream that may begin now; null if none may.
std::shared_ptr<Operation> next_of(const Stream& stream) {
  const auto& queue = stream.queue;
  if (queue.empty()) return nullptr;
  const std::shared_ptr<Operation>& front = queue.front();
  if (!front->running) return is_ready(*front) ? front : nullptr;
  // Programmatic dependent launch: the next may begin once all blocks in front say so.
  if (queue.size() < 2) return nullptr;
  const std::shared_ptr<Operation>& second = queue[1];
  const bool early = !second->running && second->primary && second->primary->told.load() &&
                     second->primary->triggered() && is_ready(*second);
  return early ? second : nullptr;
}

// Also forgets destroyed streams that have nothing left to do.
Choice choose(Device& device) {
  Choice choice;
  std::vector<Choice> all;
  for (Context* context : device.contexts) {
    for (auto it = context->streams.begin(); it != context->streams.end();) {
      const std::shared_ptr<Stream>& stream = it->second;
      if (stream->queue.empty() && stream->destroyed) {
        give_line(Driver::get(), *stream);
        it = context->streams.erase(it);
        continue;
      }
      choice.any_work |= !stream->queue.empty();
      if (auto operation = next_of(*stream)) all.push_back({stream, operation, nullptr, true});
      ++it;
    }
  }
  for (Runner* runner : device.paused) all.push_back({nullptr, nullptr, runner, true});
  return all.empty() ? choice : all[device.random() % all.size()];
}

void end(Operation& operation, CUresult error) {
  operation.completion->done = true;
  operation.completion->error = error;
  operation.completion->time = Clock::now();
}

// Everything queued in the context ends with its error, except what is running.
void drop_queues(Context& context) {
  for (auto& [handle, stream] : context.streams) {
    auto& queue = stream->queue;
    const auto first =
        std::find_if(queue.begin(), queue.end(), [](const auto& each) { return !each->running; });
    for (auto it = first; it != queue.end(); ++it) end(**it, context.error);
    queue.erase(first, queue.end());
  }
}

// Gives the turn to `to` and waits until it comes back.
void pass_turn(Lock& lock, Runner& from, Runner& to) {
  from.turn = false;
  to.turn = true;
  to.wake.notify_one();
  from.wake.wait(lock, [&] { return from.turn; });
}

// A dependent launch that is over before the one in front of it waits for that.
void await_primary(Lock& lock, Device& device, const Stream& stream, const Operation& operation) {
  while (stream.queue.front().get() != &operation) {
    Runner& next = *device.paused[device.random() % device.paused.size()];
    std::erase(device.paused, &next);
    device.paused.push_back(this_runner);
    pass_turn(lock, *this_runner, next);
  }
}

void run_one(Driver& driver, Lock& lock, Device& device, const std::shared_ptr<Stream>& stream,
             const std::shared_ptr<Operation>& operation) {
  CUresult error = CUDA_SUCCESS;
  TimelineEvent timeline_event;
  operation->running = true;
  begin_order(driver, *stream, *operation);
  if (operation->run) {
    ++device.running;
    constexpr uint64_t kPatience[] = {1, 2, 8};
    this_runner->patience = kPatience[device.random() % std::size(kPatience)];
    ThreadState& thread = thread_state();
    thread.operation = operation.get();
    thread.device = &device;
    thread.stream = stream.get();
    if (keeps_timeline(driver)) thread.timeline_event = &timeline_event;
    lock.unlock();
    error = without_exceptions(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN,
                               [&] { return operation->run(); });
    thread.timeline_event = nullptr;
    thread.operation = nullptr;
    lock.lock();
    await_primary(lock, device, *stream, *operation);
    --device.running;
  }
  operation->running = false;
  end_order(driver, *stream, *operation);
  advance(driver, *stream, *operation, std::move(timeline_event));
  device.fruitless = 0;
  end(*operation, error);
  stream->queue.pop_front();
  if (error != CUDA_SUCCESS && stream->context->error == CUDA_SUCCESS) {
    stream->context->error = error;
    drop_queues(*stream->context);
  }
  driver.changed.notify_all();
}

// Runs what others leave to it, then gives the turn back to whoever can use it.
void serve(Driver& driver, Device& device, Runner& me) {
  this_runner = &me;
  Lock lock(driver.mutex);
  while (true) {
    me.wake.wait(lock, [&] { return me.turn; });
    run_one(driver, lock, device, std::exchange(me.stream, nullptr),
            std::exchange(me.operation, nullptr));
    me.turn = false;
    device.idle.push_back(&me);
    Runner* next = &device.own_runner();
    if (!device.own_waits) {
      next = device.paused[device.random() % device.paused.size()];
      std::erase(device.paused, next);
    }
    next->turn = true;
    next->wake.notify_one();
  }
}

// Lets another runner do what was chosen; the caller waits for its next turn.
void give_turn(Driver& driver, Lock& lock, Device& device, const Choice& choice) {
  Runner* next = choice.runner;
  if (next != nullptr) {
    std::erase(device.paused, next);
  } else if (!device.idle.empty()) {
    next = device.idle.back();
    device.idle.pop_back();
  } else {
    device.runners.push_back(std::make_unique<Runner>());
    next = device.runners.back().get();
    std::thread([&driver, &device, next] { serve(driver, device, *next); }).detach();
  }
  if (choice.operation) {
    choice.operation->running = true;  // nobody else is to take it
    next->stream = choice.stream;
    next->operation = choice.operation;
  }
  pass_turn(lock, *this_runner, *next);
}

void work(Driver& driver, Device& device) {
  this_runner = &device.own_runner();
  Lock lock(driver.mutex);
  this_runner->turn = true;
  while (true) {
    if (device.holding && driver.waiters == 0 && Clock::now() < device.hold_until) {
      driver.changed.wait_until(lock, device.hold_until);
      continue;
    }
    device.holding = false;
    const Choice choice = choose(device);
    if (choice.something()) {
      device.stalled = false;
      if (choice.operation) {
        run_one(driver, lock, device, choice.stream, choice.operation);
      } else {
        device.own_waits = true;
        give_turn(driver, lock, device, choice);
        device.own_waits = false;
      }
      continue;
    }
    if (choice.any_work && !device.stalled) {
      device.stalled = true;
      driver.changed.notify_all();
    }
    if (choice.any_work) {
      driver.changed.wait_for(lock, kPoll);
    } else {
      device.stalled = false;
      driver.changed.wait(lock);
    }
  }
}

}  // namespace

Device::Device() { runners.push_back(std::make_unique<Runner>()); }
Device::~Device() = default;
Runner& Device::own_runner() { return *runners.front(); }

CUresult give_way(Driver& driver, Context& context, bool urgent) {
  Lock lock(driver.mutex);
  Device& device = *context.device;
  if (!urgent && device.random() % this_runner->patience != 0) return context.error;
  const Choice choice = choose(device);
  if (!choice.something()) {
    if (++device.fruitless == kFruitless) driver.changed.notify_all();
    return context.error;
  }
  device.paused.push_back(this_runner);
  give_turn(driver, lock, device, choice);
  return context.error;
}

bool is_at_rest(const Device& device) {
  if (device.running > 0) return device.fruitless >= kFruitless;
  return device.stalled ||
         std::all_of(device.contexts.begin(), device.contexts.end(), [](const Context* context) {
           return std::all_of(context->streams.begin(), context->streams.end(),
                              [](const auto& each) { return each.second->queue.empty(); });
         });
}

void wake(Driver& driver, Device& device) {
  device.stalled = false;
  device.fruitless = 0;
  if (!device.started) {
    device.started = true;
    std::thread([&driver, &device] { work(driver, device); }).detach();
  }
  driver.changed.notify_all();
}

void drop_work(Driver& driver, Lock& lock, Context& context) {
  driver.wait(lock, [&] { return context.device->running == 0; });
  drop_queues(context);
  driver.changed.notify_all();
}

}  // namespace sim::driver
