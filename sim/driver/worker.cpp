// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One thread per device takes ready work in a seeded order among streams: any order that streams,
// events and the legacy stream leave open may come. A kernel that looks at what others do gives way
// now and then to work of other streams, which runs to its end in between. New work on an idle
// device is held back for a moment, or until somebody waits, so that there is something to reorder.
#include <thread>

#include "sim/driver/graph/capture.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

constexpr auto kHold = std::chrono::microseconds(500);
constexpr auto kPoll = std::chrono::microseconds(200);  // of values that host threads may write

struct Choice {
  std::shared_ptr<Stream> stream;
  bool any_work = false;
};

bool is_ready(const Operation& operation) {
  for (const CompletionPtr& completion : operation.after) {
    if (!completion->done) return false;
  }
  return !operation.ready || operation.ready();
}

// Also forgets destroyed streams that have nothing left to do.
Choice choose(Device& device) {
  Choice choice;
  std::vector<std::shared_ptr<Stream>> ready;
  for (Context* context : device.contexts) {
    for (auto it = context->streams.begin(); it != context->streams.end();) {
      const std::shared_ptr<Stream>& stream = it->second;
      if (stream->queue.empty() && stream->destroyed) {
        it = context->streams.erase(it);
        continue;
      }
      if (!stream->queue.empty()) {
        choice.any_work = true;
        const Operation& front = *stream->queue.front();
        if (!front.running && is_ready(front)) ready.push_back(stream);
      }
      ++it;
    }
  }
  if (!ready.empty()) choice.stream = ready[device.random() % ready.size()];
  return choice;
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
    const auto first = queue.begin() + (!queue.empty() && queue.front()->running ? 1 : 0);
    for (auto it = first; it != queue.end(); ++it) end(**it, context.error);
    queue.erase(first, queue.end());
  }
}

void run_one(Driver& driver, Lock& lock, Device& device, const std::shared_ptr<Stream>& stream) {
  const std::shared_ptr<Operation> operation = stream->queue.front();
  CUresult error = CUDA_SUCCESS;
  Deed deed;
  // Inside another operation that gives way, what belongs to that one comes back afterwards.
  const bool inside = device.running;
  Deed* const outer_deed = thread_state().deed;
  const double outer_begin = thread_state().begin;
  operation->running = true;
  if (operation->run) {
    device.running = true;
    if (keeps_timeline(driver)) {
      thread_state().deed = &deed;
      thread_state().begin = begin_of(driver, *stream, *operation);
    }
    lock.unlock();
    error = without_exceptions(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN,
                               [&] { return operation->run(); });
    thread_state().deed = outer_deed;
    thread_state().begin = outer_begin;
    lock.lock();
    device.running = inside;
  }
  operation->running = false;
  advance(driver, *stream, *operation, deed);
  end(*operation, error);
  stream->queue.pop_front();
  if (error != CUDA_SUCCESS && stream->context->error == CUDA_SUCCESS) {
    stream->context->error = error;
    drop_queues(*stream->context);
  }
  driver.changed.notify_all();
}

void work(Driver& driver, Device& device) {
  Lock lock(driver.mutex);
  while (true) {
    if (device.holding && driver.waiters == 0 && Clock::now() < device.hold_until) {
      driver.changed.wait_until(lock, device.hold_until);
      continue;
    }
    device.holding = false;
    const Choice choice = choose(device);
    if (choice.stream) {
      device.stalled = false;
      run_one(driver, lock, device, choice.stream);
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

bool is_idle(const Device& device) {
  if (device.running) return false;
  for (const Context* context : device.contexts) {
    for (const auto& [handle, stream] : context->streams) {
      if (!stream->queue.empty()) return false;
    }
  }
  return true;
}

// Work that is over counts only for its model time.
void add_pending(std::vector<CompletionPtr>& list, const CompletionPtr& completion,
                 bool timeline = false) {
  if (completion && (timeline || !completion->done)) list.push_back(completion);
}

}  // namespace

CUresult give_way(Driver& driver, Context& context) {
  Lock lock(driver.mutex);
  Device& device = *context.device;
  const Choice choice = device.random() % 2 ? choose(device) : Choice{};
  if (choice.stream) run_one(driver, lock, device, choice.stream);
  return context.error;
}

void wake(Driver& driver, Device& device) {
  device.stalled = false;
  if (!device.started) {
    device.started = true;
    std::thread([&driver, &device] { work(driver, device); }).detach();
  }
  driver.changed.notify_all();
}

CUresult submit(Driver& driver, Stream& stream, Action action, std::vector<CompletionPtr> after,
                CompletionPtr* completion, std::function<bool()> ready) {
  if (stream.capture) {
    return capture_node(stream, std::move(action), std::move(ready));
  }
  if (stream.legacy || stream.blocking()) {
    const CUresult result = check_implicit_capture(*stream.context, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  auto operation = std::make_shared<Operation>();
  operation->run = std::move(action);
  operation->ready = std::move(ready);
  const bool timeline = keeps_timeline(driver);
  if (timeline) stamp(stream, *operation);
  for (const CompletionPtr& other : after) add_pending(operation->after, other, timeline);
  Context& context = *stream.context;
  if (stream.legacy) {
    for (auto& [handle, other] : context.streams) {
      if (other->legacy || !other->blocking()) continue;
      add_pending(operation->after, other->last, timeline);
    }
  } else if (stream.blocking()) {
    add_pending(operation->after, context.legacy->last, timeline);
  }
  Device& device = *context.device;
  if (is_idle(device)) {
    device.holding = true;
    device.hold_until = Clock::now() + kHold;
  }
  stream.last = operation->completion;
  if (completion != nullptr) *completion = operation->completion;
  stream.queue.push_back(std::move(operation));
  wake(driver, device);
  return CUDA_SUCCESS;
}

CUresult wait_for(Driver& driver, Lock& lock, Context& context, const CompletionPtr& completion) {
  if (completion && !completion->done) {
    driver.wait(lock, [&] { return completion->done; });
  }
  if (completion) host_saw(*completion);
  if (context.error != CUDA_SUCCESS) return context.error;
  return completion ? completion->error : CUDA_SUCCESS;
}

std::vector<CompletionPtr> everything(Context& context) {
  std::vector<CompletionPtr> all;
  for (auto& [handle, stream] : context.streams) {
    if (stream != context.janitor) add_pending(all, stream->last);
  }
  return all;
}

CUresult synchronize(Driver& driver, Lock& lock, Context& context) {
  const std::vector<CompletionPtr> all = everything(context);
  // The janitor gives back what was freed while the device was stalled; it works in order.
  const CompletionPtr freed = context.janitor->last;
  driver.wait(lock, [&] {
    for (const CompletionPtr& completion : all) {
      if (!completion->done) return false;
    }
    return !freed || freed->done;
  });
  for (const CompletionPtr& completion : all) host_saw(*completion);
  return context.error;
}

CUresult after_everything(Driver& driver, Lock& lock, Context& context, Action action) {
  CompletionPtr completion;
  const CUresult result =
      submit(driver, *context.janitor, std::move(action), everything(context), &completion);
  if (result != CUDA_SUCCESS) return result;
  Device& device = *context.device;
  driver.wait(lock, [&] { return completion->done || device.stalled; });
  return context.error;
}

void drop_work(Driver& driver, Lock& lock, Context& context) {
  driver.wait(lock, [&] { return !context.device->running; });
  drop_queues(context);
  driver.changed.notify_all();
}

}  // namespace sim::driver
