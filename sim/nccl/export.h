// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every exported function is declared and guarded by these.
#pragma once

#include "abi/nccl.h"
#include "sim/driver/forked.h"
#include "sim/nccl/state.h"

#define SIM_NCCL_API extern "C" __attribute__((visibility("default"))) ncclResult_t

namespace sim::nccl {

template <typename F>
ncclResult_t guarded(F body) noexcept {
  if (forked()) {
    return fail_call(ncclUnhandledCudaError,
                     "CUDA was initialised before fork(), so this child cannot use it");
  }
  return without_exceptions(ncclSystemError, ncclInternalError, body);
}

// Runs body(State&, Lock&, ncclComm&) with a handle whose ranks may still be meeting.
template <typename F>
ncclResult_t with_comm(ncclComm* comm, F body) noexcept {
  return guarded([&]() -> ncclResult_t {
    State& state = State::get();
    Lock lock(state.mutex);
    if (!is_live(state, comm)) {
      return fail_call(ncclInvalidArgument,
                       comm == nullptr ? "comm is null" : "comm is not a live communicator");
    }
    return body(state, lock, *comm);
  });
}

// Does the same for calls that need all ranks to have met.
template <typename F>
ncclResult_t with_ready_comm(ncclComm* comm, F body) noexcept {
  return with_comm(comm, [&](State& state, Lock& lock, ncclComm& it) -> ncclResult_t {
    if (it.clique->complete || it.clique->error != ncclSuccess) return body(state, lock, it);
    return fail_call(ncclInvalidArgument,
                     "the communicator is used while ncclCommGetAsyncError says in progress");
  });
}

}  // namespace sim::nccl
