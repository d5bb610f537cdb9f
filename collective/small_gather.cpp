// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs one all-gather between two copies, with a wait that an absent rank cannot make endless.
#include "collective/small_gather.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "codegen/base/text.h"

namespace lathe {
namespace {

// Holds a rank's bytes, then those of all ranks, in device memory.
class GatherBuffer {
 public:
  explicit GatherBuffer(Group& group) : group_(group) {}
  ~GatherBuffer() {
    // An exchange that nobody can end may still write here, and freeing would wait for it.
    if (at_ != 0 && !stuck_) (void)group_.device().driver().cuMemFree(at_);
    if (event_ != nullptr) (void)group_.device().driver().cuEventDestroy(event_);
  }
  GatherBuffer(const GatherBuffer&) = delete;
  GatherBuffer& operator=(const GatherBuffer&) = delete;

  Status gather(const void* mine, size_t bytes, const char* what);
  Status wait(const char* what);
  Status fetch(size_t bytes, std::string* out) const;

 private:
  Group& group_;
  CUdeviceptr at_ = 0;
  CUevent event_ = nullptr;
  bool stuck_ = false;
};

Status GatherBuffer::gather(const void* mine, size_t bytes, const char* what) {
  const Driver& driver = group_.device().driver();
  const Nccl& nccl = group_.nccl();
  const CUstream stream = group_.exchange_stream();
  const size_t all = bytes * static_cast<size_t>(group_.world());
  const Group::Use use(group_);
  LATHE_TRY(use.status());
  LATHE_TRY(check(driver, driver.cuMemAlloc(&at_, bytes + all), "cuMemAlloc"));
  LATHE_TRY(check(driver, driver.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  LATHE_TRY(check(driver, driver.cuMemcpyHtoDAsync(at_, mine, bytes, stream), "cuMemcpyHtoDAsync"));
  stuck_ = group_.adopted();
  const ncclResult_t result =
      nccl.ncclAllGather(reinterpret_cast<void*>(at_), reinterpret_cast<void*>(at_ + bytes), bytes,
                         ncclInt8, group_.comm(), stream);
  LATHE_TRY(group_.complete(result, what));
  return check(driver, driver.cuEventRecord(event_, stream), "cuEventRecord");
}

Status GatherBuffer::wait(const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(group_.timeout_ms());
  const Driver& driver = group_.device().driver();
  auto pause = std::chrono::microseconds(10);
  for (;;) {
    const CUresult state = driver.cuEventQuery(event_);
    if (state == CUDA_SUCCESS) break;
    if (state != CUDA_ERROR_NOT_READY) return check(driver, state, "cuEventQuery");
    if (Clock::now() >= deadline) {
      return group_.fail(
          {Code::timeout, text("rank ", group_.rank(), " of ", group_.world(), " waited ",
                               group_.timeout_ms(), " ms for the other ranks in ", what)});
    }
    if (const Status error = group_.async_error(); !error.ok()) return group_.fail(error);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  stuck_ = false;
  // An exchange that failed may be over as well.
  return group_.async_error();
}

Status GatherBuffer::fetch(size_t bytes, std::string* out) const {
  const Driver& driver = group_.device().driver();
  const CUstream stream = group_.exchange_stream();
  out->resize(bytes * static_cast<size_t>(group_.world()));
  LATHE_TRY(check(driver, driver.cuMemcpyDtoHAsync(out->data(), at_ + bytes, out->size(), stream),
                  "cuMemcpyDtoHAsync"));
  return check(driver, driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace

Result<std::string> small_gather(Group& group, const void* mine, size_t bytes, const char* what) {
  std::string out(static_cast<const char*>(mine), bytes);
  if (group.world() == 1) return out;
  const Device::Scope scope(group.device());
  LATHE_TRY(scope.status());
  GatherBuffer buffer(group);
  LATHE_TRY(buffer.gather(mine, bytes, what));
  LATHE_TRY(buffer.wait(what));
  LATHE_TRY(buffer.fetch(bytes, &out));
  return out;
}

}  // namespace lathe
