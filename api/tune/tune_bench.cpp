// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes plans of candidates and runs them on copies of the caller's tensors.
#include <algorithm>
#include <chrono>
#include <thread>

#include "api/boundary.h"
#include "api/tune/tune_plan.h"

namespace lathe {
namespace {

constexpr double kUsualSeconds = 30;
constexpr size_t kGuard = 256;
constexpr unsigned char kPattern = 0xff;  // not a number in every float type

std::vector<int64_t> strides_of(const DLTensor& tensor) {
  if (tensor.strides) return {tensor.strides, tensor.strides + tensor.ndim};
  std::vector<int64_t> strides(static_cast<size_t>(tensor.ndim), 1);
  for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * tensor.shape[i];
  return strides;
}

// Returns what an exported function reports as a Status again.
Status status_of_call(lathe_status status) {
  if (status == LATHE_OK) return {};
  return Status(static_cast<Code>(status), lathe_last_error());
}

}  // namespace

TuneBench::TuneBench(lathe_context& context, const lathe_problem& problem,
                     const lathe_tune_options& options)
    : context_(context),
      problem_(problem),
      options_(options),
      seconds_(options.seconds > 0 ? options.seconds : kUsualSeconds) {}

Status TuneBench::open(const std::vector<Slot>& slots, const DLTensor* const* given) {
  tensors_.reserve(slots.size());  // they stay where they are pointed to
  for (const Slot& slot : slots) {
    pointers_.push_back(&tensors_.emplace_back(**given++));
    if (slot.written) LATHE_TRY(replace(slot, &tensors_.back()));
  }
  if (const lathe_shard* shard = options_.shard) {
    shard_ = std::make_unique<lathe_shard>();
    shard_->layout = shard->layout, shard_->rank = shard->rank;
  }
  const Driver& driver = device().driver();
  LATHE_TRY(LATHE_DRIVER_CALL(driver, cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING));
  LATHE_TRY(LATHE_DRIVER_CALL(driver, cuEventCreate, &begin_, CU_EVENT_DEFAULT));
  LATHE_TRY(LATHE_DRIVER_CALL(driver, cuEventCreate, &end_, CU_EVENT_DEFAULT));
  const int64_t l2_bytes = device().facts().l2_bytes;
  if (options_.keep_cache || by_model() || l2_bytes <= 0) return {};
  return reserve(2 * static_cast<size_t>(l2_bytes), &flush_);
}

// Nothing is freed while a kernel that did not end may write to it: freeing would wait for it.
TuneBench::~TuneBench() {
  if (!lost_.empty()) return;
  const Driver& driver = device().driver();
  for (const Output& output : outputs_) (void)driver.cuMemFree(output.memory.at);
  for (const Memory& memory : {workspace_, flush_}) {
    if (memory.at != 0) (void)driver.cuMemFree(memory.at);
  }
  if (begin_) (void)driver.cuEventDestroy(begin_);
  if (end_) (void)driver.cuEventDestroy(end_);
  if (stream_) (void)driver.cuStreamDestroy(stream_);
}

Status TuneBench::reserve(size_t bytes, Memory* memory) const {
  if (bytes <= memory->bytes) return {};
  const Driver& driver = device().driver();
  if (memory->at != 0) LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemFree, memory->at));
  *memory = {};
  LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemAlloc, &memory->at, bytes));
  memory->bytes = bytes;
  return {};
}

Status TuneBench::replace(const Slot& slot, DLTensor* tensor) {
  Output output;
  output.layout = {.name = slot.name,
                   .dtype = slot.dtype,
                   .extents = {tensor->shape, tensor->shape + tensor->ndim},
                   .strides = strides_of(*tensor),
                   .guard = kGuard};
  const size_t bytes = output.layout.inner_bytes();
  if (bytes == 0) return {};  // an empty tensor: nothing is written
  LATHE_TRY(reserve(bytes + 2 * kGuard, &output.memory));
  if (problem_.op->tensors[slot.tensor].role == Role::inout) {
    output.original = reinterpret_cast<CUdeviceptr>(tensor->data) + tensor->byte_offset;
  }
  tensor->data = reinterpret_cast<void*>(output.memory.at + kGuard);
  tensor->byte_offset = 0;
  outputs_.push_back(std::move(output));
  return {};
}

Status TuneBench::restore() const {
  const Driver& driver = device().driver();
  for (const auto& [layout, memory, original] : outputs_) {
    LATHE_TRY(
        LATHE_DRIVER_CALL(driver, cuMemsetD8Async, memory.at, kPattern, memory.bytes, stream_));
    if (original == 0) continue;
    LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemcpyDtoDAsync, memory.at + kGuard, original,
                                layout.inner_bytes(), stream_));
  }
  return {};
}

Result<std::vector<std::string>> TuneBench::read() const {
  const Driver& driver = device().driver();
  std::vector<std::string> all;
  for (const Output& output : outputs_) {
    std::string& bytes = all.emplace_back(output.memory.bytes, '\0');
    LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemcpyDtoHAsync, bytes.data(), output.memory.at,
                                bytes.size(), stream_));
    LATHE_TRY(LATHE_DRIVER_CALL(driver, cuStreamSynchronize, stream_));
  }
  return all;
}

Status TuneBench::compare(const std::vector<std::string>& filled,
                          const std::vector<std::string>& expected,
                          const std::vector<std::string>& found) const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    LATHE_TRY(compare_outputs(outputs_[i].layout, filled[i], expected[i], found[i]));
  }
  return {};
}

Result<TuneBench::Plan> TuneBench::plan(std::shared_ptr<const Choices> choices) const {
  lathe_problem trial = problem_;
  trial.choices = std::move(choices);
  lathe_plan* raw = nullptr;
  LATHE_TRY(status_of_call(lathe_plan_create(&raw, &context_, &trial)));
  Plan out;
  out.plan.reset(raw);
  return out;
}

Status TuneBench::prepare(Plan* plan) {
  if (!lost_.empty()) return Status(Code::timeout, lost_);
  const lathe_plan* what = plan->plan.get();
  if (shard_) LATHE_TRY(status_of_call(lathe_shard_prepare(shard_.get(), what)));
  return status_of_call(lathe_plan_workspace(what, slots(), shard_.get(), &plan->workspace_bytes));
}

Status TuneBench::launch(const Plan& plan) {
  const Driver& driver = device().driver();
  const size_t bytes = plan.workspace_bytes;
  LATHE_TRY(reserve(bytes, &workspace_));
  if (flush_.bytes > 0) {
    LATHE_TRY(LATHE_DRIVER_CALL(driver, cuMemsetD8Async, flush_.at, 0, flush_.bytes, stream_));
  }
  LATHE_TRY(LATHE_DRIVER_CALL(driver, cuEventRecord, begin_, stream_));
  const lathe_plan* what = plan.plan.get();
  auto* const workspace = reinterpret_cast<void*>(workspace_.at);
  LATHE_TRY(status_of_call(
      shard_ ? lathe_plan_run_sharded(what, shard_.get(), slots(), workspace, bytes, stream_)
             : lathe_plan_run(what, slots(), workspace, bytes, stream_)));
  return LATHE_DRIVER_CALL(driver, cuEventRecord, end_, stream_);
}

// A kernel cannot be stopped: one that is late is out, and one that does not end by ten times its
// time ends the tuning.
Status TuneBench::wait() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const Driver& driver = device().driver();
  auto pause = std::chrono::microseconds(20);
  double passed = 0;
  for (;;) {
    const CUresult state = driver.cuEventQuery(end_);
    passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (state == CUDA_SUCCESS) break;
    if (state != CUDA_ERROR_NOT_READY) return check(driver, state, "cuEventQuery");
    if (passed > 10 * seconds_) {
      lost_ = text("a run did not end within ", 10 * seconds_, " s; the device is not usable");
      return Status(Code::timeout, lost_);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  if (passed <= seconds_) return {};
  return Status(Code::timeout, text("a run took ", passed, " s; allowed are ", seconds_));
}

Result<double> TuneBench::run(const Plan& plan) {
  if (!lost_.empty()) return Status(Code::timeout, lost_);
  LATHE_TRY(restore());
  LATHE_TRY(launch(plan));
  LATHE_TRY(wait());
  float milliseconds = 0;
  const Driver& driver = device().driver();
  LATHE_TRY(LATHE_DRIVER_CALL(driver, cuEventElapsedTime, &milliseconds, begin_, end_));
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace lathe
