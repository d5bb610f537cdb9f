// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Handles and the meeting of ranks under a unique id.
#include <random>

#include "sim/nccl/export.h"
#include "sim/nccl/meet.h"

namespace sim::nccl {
namespace {

struct Meeting {
  int size = 0;
  std::vector<ncclComm*> ranks;
  int joined = 0;
  bool done = false;
  ncclResult_t result = ncclSuccess;
};

std::map<std::string, std::shared_ptr<Meeting>>& meetings() {
  static auto* all = new std::map<std::string, std::shared_ptr<Meeting>>;
  return *all;
}

std::string missing(const Meeting& meeting) {
  std::string text;
  for (int rank = 0; rank < meeting.size; ++rank) {
    if (meeting.ranks[static_cast<size_t>(rank)] != nullptr) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

ncclResult_t join(State& state, Lock& lock, const std::string& id, int size, int rank,
                  ncclComm** out) {
  std::shared_ptr<Meeting>& entry = meetings()[id];
  if (!entry) {
    entry = std::make_shared<Meeting>();
    entry->size = size;
    entry->ranks.resize(static_cast<size_t>(size));
  }
  const std::shared_ptr<Meeting> meeting = entry;
  if (meeting->size != size || meeting->ranks[static_cast<size_t>(rank)] != nullptr) {
    return fail_call(ncclInvalidArgument,
                     meeting->size != size
                         ? "rank " + std::to_string(rank) + " joins as one of " +
                               std::to_string(size) + " ranks, others as one of " +
                               std::to_string(meeting->size)
                         : "rank " + std::to_string(rank) + " joins a communicator twice");
  }
  CUcontext context = nullptr;
  cu().ctx_get_current(&context);
  ncclComm* comm = nullptr;
  const ncclResult_t result = make_comm(rank, size, context, &comm);
  if (result != ncclSuccess) return result;
  meeting->ranks[static_cast<size_t>(rank)] = comm;
  *out = comm;
  if (++meeting->joined == size) {
    meetings().erase(id);
    meeting->result = make_clique(state, meeting->ranks);
    meeting->done = true;
    state.changed.notify_all();
  }
  return wait_or_defer(state, lock, [meeting, id, out, comm](State& all, Lock& held) {
    if (!all.changed.wait_for(held, timeout(), [&] { return meeting->done; })) {
      meeting->done = true;  // for the others too
      meeting->result = ncclRemoteError;
      meetings().erase(id);
      all.changed.notify_all();
    }
    if (meeting->result == ncclSuccess) return ncclSuccess;
    free_comm(all, held, comm);
    *out = nullptr;
    if (meeting->joined == meeting->size) return meeting->result;
    return fail_call(meeting->result, "waited " + std::to_string(timeout().count()) +
                                          " ms for ranks " + missing(*meeting) +
                                          " to join (ranks are threads of one process)");
  });
}

ncclResult_t init_rank(ncclComm_t* out, int size, const ncclUniqueId& id, int rank) {
  if (out == nullptr) return fail_call(ncclInvalidArgument, "comm is null");
  *out = nullptr;
  if (size < 1 || rank < 0 || rank >= size) {
    return fail_call(ncclInvalidArgument, "rank is " + std::to_string(rank) + " of " +
                                              std::to_string(size) + "; allowed: 0 <= rank < n");
  }
  std::string what;
  if (driver_table(&what) == nullptr) return fail_call(ncclUnhandledCudaError, what);
  State& state = State::get();
  Lock lock(state.mutex);
  return join(state, lock, std::string(id.internal, sizeof id.internal), size, rank, out);
}

}  // namespace

ncclResult_t make_comm(int rank, int size, CUcontext context, ncclComm** out) {
  if (context == nullptr) {
    return fail_call(ncclUnhandledCudaError, "the calling thread has no current context");
  }
  Current current(context);
  auto comm = std::make_unique<ncclComm>();
  comm->rank = rank;
  comm->size = size;
  comm->context = context;
  CUresult result = cu().ctx_get_device(&comm->device);
  if (result == CUDA_SUCCESS) {
    result = cu().stream_create(&comm->lane, CU_STREAM_NON_BLOCKING);
  }
  if (result != CUDA_SUCCESS) return fail_call(ncclUnhandledCudaError, cuda_name(result));
  *out = comm.release();
  return ncclSuccess;
}

ncclResult_t make_clique(State& state, const std::vector<ncclComm*>& ranks) {
  auto clique = std::make_shared<Clique>();
  clique->ranks = ranks;
  {
    Current current(ranks[0]->context);
    void* staging = nullptr;
    const CUresult result =
        cu().mem_host_alloc(&staging, (ranks.size() + 1) * kChunk, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) return fail_call(ncclUnhandledCudaError, cuda_name(result));
    clique->staging = static_cast<char*>(staging);
  }
  for (ncclComm* comm : ranks) {
    comm->clique = clique;
    state.comms.insert(comm);
  }
  state.cliques.insert(clique);
  start_progress(state);
  return ncclSuccess;
}

void free_comm(State& state, Lock& lock, ncclComm* comm) {
  state.comms.erase(comm);
  const std::shared_ptr<Clique> clique = comm->clique;
  char* staging = nullptr;
  if (clique) {
    clique->ranks[static_cast<size_t>(comm->rank)] = nullptr;
    bool empty = true;
    for (const ncclComm* other : clique->ranks) empty = empty && other == nullptr;
    if (empty) state.cliques.erase(clique);
    if (comm->rank == 0) std::swap(staging, clique->staging);
  }
  state.work.notify_all();
  lock.unlock();  // a driver may wait for other work here, which may need the progress thread
  {
    Current current(comm->context);
    cu().stream_destroy(comm->lane);
    for (uint32_t* page : comm->pages) cu().mem_free_host(page);
    if (staging != nullptr) cu().mem_free_host(staging);
  }
  if (comm->retained) cu().device_primary_ctx_release(comm->device);
  delete comm;
  lock.lock();
}

}  // namespace sim::nccl

using namespace sim::nccl;

SIM_NCCL_API ncclGetUniqueId(ncclUniqueId* out) {
  return guarded([&] {
    if (out == nullptr) return fail_call(ncclInvalidArgument, "uniqueId is null");
    std::random_device random;
    for (char& letter : out->internal) letter = static_cast<char>(random());
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  return guarded([&] { return init_rank(out, size, id, rank); });
}

// Every call is short, so a non-blocking communicator is made like a blocking one.
SIM_NCCL_API ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return guarded([&] {
    if (config != nullptr && config->magic != 0xcafebeef) {
      return fail_call(ncclInvalidArgument, "config is not made with NCCL_CONFIG_INITIALIZER");
    }
    return init_rank(out, size, id, rank);
  });
}

SIM_NCCL_API ncclCommInitAll(ncclComm_t* out, int count, const int* devices) {
  return guarded([&]() -> ncclResult_t {
    if (out == nullptr || count < 1) {
      return fail_call(ncclInvalidArgument, "comms is null or there are no devices");
    }
    std::string what;
    if (driver_table(&what) == nullptr) return fail_call(ncclUnhandledCudaError, what);
    State& state = State::get();
    Lock lock(state.mutex);
    std::vector<ncclComm*> ranks;
    ncclResult_t result = ncclSuccess;
    for (int rank = 0; rank < count && result == ncclSuccess; ++rank) {
      const int device = devices != nullptr ? devices[rank] : rank;
      CUcontext context = nullptr;
      const CUresult retained = cu().device_primary_ctx_retain(&context, device);
      if (retained != CUDA_SUCCESS) {
        result = fail_call(ncclUnhandledCudaError,
                           "device " + std::to_string(device) + ": " + cuda_name(retained));
        break;
      }
      ncclComm* comm = nullptr;
      result = make_comm(rank, count, context, &comm);
      if (result != ncclSuccess) {
        cu().device_primary_ctx_release(device);
        break;
      }
      comm->retained = true;
      ranks.push_back(comm);
    }
    if (result == ncclSuccess) result = make_clique(state, ranks);
    if (result != ncclSuccess) {
      for (ncclComm* comm : ranks) free_comm(state, lock, comm);
      return result;
    }
    std::copy(ranks.begin(), ranks.end(), out);
    return ncclSuccess;
  });
}
