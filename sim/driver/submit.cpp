// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file puts work into streams, and waits for it.
#include "sim/driver/graph/capture.h"
#include "sim/driver/order.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

constexpr auto kHold = std::chrono::microseconds(500);  // of new work on an idle device

bool is_idle(const Device& device) {
  if (device.running > 0) return false;
  for (const Context* context : device.contexts) {
    for (const auto& [handle, stream] : context->streams) {
      if (!stream->queue.empty()) return false;
    }
  }
  return true;
}

// Times must not depend on which of the work that may run had run when the host saw some of it.
void rest(Driver& driver, Lock& lock, const Device& device) {
  if (keeps_timeline(driver)) driver.wait(lock, [&] { return is_at_rest(device); });
}

// Work that is over counts only for its model time, and for the order of memory accesses.
void add_pending(std::vector<CompletionPtr>& list, const CompletionPtr& completion,
                 bool over_too = false) {
  if (completion && (over_too || !completion->done)) list.push_back(completion);
}

}  // namespace

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
  const bool over_too = keeps_timeline(driver) || tracks_order(driver);
  stamp(stream, *operation);
  for (const CompletionPtr& other : after) add_pending(operation->after, other, over_too);
  Context& context = *stream.context;
  if (stream.legacy) {
    for (auto& [handle, other] : context.streams) {
      if (other->legacy || !other->blocking()) continue;
      add_pending(operation->after, other->last, over_too);
    }
  } else if (stream.blocking()) {
    add_pending(operation->after, context.legacy->last, over_too);
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
  rest(driver, lock, *context.device);
  if (completion) host_saw(*completion);
  if (context.error != CUDA_SUCCESS) return context.error;
  return completion ? completion->error : CUDA_SUCCESS;
}

std::vector<CompletionPtr> everything(Context& context) {
  const Driver& driver = Driver::get();
  const bool over_too = keeps_timeline(driver) || tracks_order(driver);
  std::vector<CompletionPtr> all;
  for (auto& [handle, stream] : context.streams) {
    if (stream != context.janitor) add_pending(all, stream->last, over_too);
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
  rest(driver, lock, *context.device);
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
  if (completion->done) host_saw(*completion);
  return context.error;
}

}  // namespace sim::driver
