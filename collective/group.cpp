// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Creates groups under a timeout, and destroys them without hanging.
#include "collective/group.h"

#include <chrono>
#include <thread>
#include <utility>

#include "codegen/base/invalid.h"
#include "codegen/base/log.h"

namespace lathe {

Result<UniqueId> make_unique_id(const Nccl& nccl) {
  UniqueId id;
  LATHE_TRY(check(nccl, nullptr, nccl.ncclGetUniqueId(&id), "ncclGetUniqueId"));
  return id;
}

Result<std::shared_ptr<Group>> Group::create(std::shared_ptr<const Device> device,
                                             std::shared_ptr<const Nccl> nccl, const UniqueId& id,
                                             int world, int rank, int timeout_ms) {
  std::shared_ptr<Group> group(new Group(std::move(device), std::move(nccl)));
  group->world_ = world;
  group->rank_ = rank;
  if (timeout_ms > 0) group->timeout_ms_ = timeout_ms;
  const Device::Scope scope(*group->device_);
  LATHE_TRY(scope.status());
  LATHE_TRY(group->connect(id));
  LATHE_TRY(group->open());
  return group;
}

Result<std::shared_ptr<Group>> Group::adopt(std::shared_ptr<const Device> device,
                                            std::shared_ptr<const Nccl> nccl, ncclComm_t comm) {
  if (comm == nullptr) return invalid("the communicator is null");
  std::shared_ptr<Group> group(new Group(std::move(device), std::move(nccl)));
  group->comm_ = comm;
  group->adopted_ = true;
  const Nccl& table = *group->nccl_;
  int ordinal = -1;
  LATHE_TRY(check(table, comm, table.ncclCommCount(comm, &group->world_), "ncclCommCount"));
  LATHE_TRY(check(table, comm, table.ncclCommUserRank(comm, &group->rank_), "ncclCommUserRank"));
  LATHE_TRY(check(table, comm, table.ncclCommCuDevice(comm, &ordinal), "ncclCommCuDevice"));
  if (ordinal != group->device_->ordinal()) {
    return invalid(text("the communicator is on device ", ordinal, ", must be on the context's, ",
                        group->device_->ordinal()));
  }
  const Device::Scope scope(*group->device_);
  LATHE_TRY(scope.status());
  LATHE_TRY(group->open());
  return group;
}

std::shared_ptr<Group> Group::unconnected(int world, int rank) {
  std::shared_ptr<Group> group(new Group(nullptr, nullptr));
  group->world_ = world;
  group->rank_ = rank;
  return group;
}

// The communicator is non-blocking, because a blocking call leaves no communicator to abort while a
// rank is missing.
Status Group::connect(const UniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t state = nccl_->ncclCommInitRankConfig(&comm_, world_, id, rank_, &config);
  if (state == ncclInProgress && comm_ != nullptr) {
    state = wait_while_busy(*nccl_, comm_, timeout_ms_);
  }
  if (state == ncclSuccess) return {};
  const Status status =
      state != ncclInProgress
          ? named(state, "ncclCommInitRankConfig")
          : Status(Code::timeout, text(name(), " waited ", timeout_ms_,
                                       " ms for the other ranks to join the group"));
  if (comm_ != nullptr) (void)nccl_->ncclCommAbort(std::exchange(comm_, nullptr));
  return status;
}

Status Group::open() {
  const Driver& driver = device_->driver();
  LATHE_TRY(
      check(driver, driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  for (CUevent* event : {&to_exchange_, &from_exchange_}) {
    LATHE_TRY(check(driver, driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  }
  LATHE_TRY(flight_.open(driver));
  entry_ = watch(*this);
  return {};
}

bool Group::drained() const {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms_);
  while (pending()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Group::stop_watching() {
  if (entry_ == nullptr) return;
  const std::lock_guard lock(entry_->mutex);
  entry_->what = nullptr;
}

void Group::leave() {
  if (comm_ == nullptr || adopted_ || uses_.load() == kEnded) return;
  bool clean = drained() && async_error().ok();
  stop_watching();
  if (uses_.load() == kEnded) return;
  if (clean) {
    ncclResult_t state = nccl_->ncclCommFinalize(comm_);
    if (state == ncclInProgress) state = wait_while_busy(*nccl_, comm_, timeout_ms_);
    clean = state == ncclSuccess;
  }
  if (clean) {
    (void)nccl_->ncclCommDestroy(comm_);
  } else {
    log_message(LogLevel::warning,
                text(name(), ": the group ends with communication pending or failed"));
    (void)nccl_->ncclCommAbort(comm_);
  }
}

Group::~Group() {
  if (device_ == nullptr) return;
  const Device::Scope scope(*device_);
  leave();
  stop_watching();
  const Driver& driver = device_->driver();
  flight_.close(driver);
  if (to_exchange_ != nullptr) (void)driver.cuEventDestroy(to_exchange_);
  if (from_exchange_ != nullptr) (void)driver.cuEventDestroy(from_exchange_);
  if (stream_ != nullptr) (void)driver.cuStreamDestroy(stream_);
}

}  // namespace lathe
