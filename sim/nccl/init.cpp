// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes communicator handles and handles the meeting of ranks under a unique id.
#include <random>

#include "sim/nccl/export.h"
#include "sim/nccl/meet.h"

namespace sim::nccl {
namespace {

// They are threads of one process; each has a seat that is made when the first one comes.
constexpr int kMostRanks = 65536;
constexpr int kMostNamed = 16;  // of the ranks that are missing

// Communicators whose ranks are still meeting, by their unique id. One that failed stays, so that
// late ranks hear of it at once.
std::map<std::string, std::shared_ptr<Clique>>& meetings() {
  static auto* all = new std::map<std::string, std::shared_ptr<Clique>>;
  return *all;
}

void seat(State& state, const std::shared_ptr<Clique>& clique, ncclComm* comm) {
  comm->clique = clique;
  clique->ranks[static_cast<size_t>(comm->rank)] = comm;
  state.comms.insert(comm);
  state.cliques.insert(clique);
  start_progress(state);
}

// In the context of rank 0, which frees it.
ncclResult_t allocate_staging(Clique& clique, const ncclComm& first) {
  Current current(first.context);
  void* staging = nullptr;
  const CUresult result =
      cu().mem_host_alloc(&staging, (clique.ranks.size() + 1) * kChunk, CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) return fail_call(ncclUnhandledCudaError, cuda_name(result));
  clique.staging = static_cast<char*>(staging);
  return ncclSuccess;
}

std::string place(int rank, int size) {
  return "rank " + std::to_string(rank) + " joins as one of " + std::to_string(size) + " ranks";
}

// Checks whether this rank may take its seat.
ncclResult_t check_seat(const Clique& clique, int size, int rank) {
  if (clique.size() != size) {
    return fail_call(ncclInvalidArgument,
                     place(rank, size) + ", others as one of " + std::to_string(clique.size()));
  }
  if (clique.error != ncclSuccess) return fail_call(clique.error, clique.text);
  if (clique.ranks[static_cast<size_t>(rank)] == nullptr) return ncclSuccess;
  return fail_call(ncclInvalidArgument,
                   "rank " + std::to_string(rank) + " joins a communicator twice");
}

// Waits for a blocking call, which hands out the communicator only when all ranks are there.
ncclResult_t await_all(State& state, Lock& lock, ncclComm* comm, ncclComm** out) {
  const std::shared_ptr<Clique> clique = comm->clique;
  const auto settled = [&] { return clique->complete || clique->error != ncclSuccess; };
  if (!state.changed.wait_for(lock, timeout(), settled)) {
    fail_clique(state, *clique, ncclRemoteError,
                "waited " + std::to_string(timeout().count()) + " ms for ranks " +
                    missing(*clique) + " to join (ranks are threads of one process)");
  }
  if (clique->complete) {
    *out = comm;
    return ncclSuccess;
  }
  free_comm(state, lock, comm);
  return fail_call(clique->error, clique->text);
}

ncclResult_t join(State& state, Lock& lock, const std::string& id, int size, int rank,
                  bool blocking, ncclComm** out) {
  std::shared_ptr<Clique>& entry = meetings()[id];
  if (!entry) {
    entry = std::make_shared<Clique>();
    entry->ranks.resize(static_cast<size_t>(size));
  }
  const std::shared_ptr<Clique> clique = entry;
  const ncclResult_t allowed = check_seat(*clique, size, rank);
  if (allowed != ncclSuccess) return allowed;
  CUcontext context = nullptr;
  cu().ctx_get_current(&context);
  ncclComm* comm = nullptr;
  const ncclResult_t made = make_comm(rank, size, context, &comm);
  if (made != ncclSuccess) return made;
  comm->blocking = blocking;
  seat(state, clique, comm);
  note_rank(rank);
  if (missing(*clique).empty()) {
    meetings().erase(id);
    const ncclResult_t result = allocate_staging(*clique, *clique->ranks[0]);
    if (result == ncclSuccess) {
      clique->complete = true;
    } else {
      fail_clique(state, *clique, result, last_error_text());
    }
    state.changed.notify_all();
  }
  if (!blocking) {
    *out = comm;
    if (!in_group()) return ncclInProgress;
    return wait_or_defer(state, lock, [clique](State&, Lock&) {
      return clique->complete ? ncclSuccess : ncclInProgress;
    });
  }
  return wait_or_defer(
      state, lock, [comm, out](State& all, Lock& held) { return await_all(all, held, comm, out); });
}

ncclResult_t init_rank(ncclComm_t* out, int size, const ncclUniqueId& id, int rank, bool blocking) {
  if (out == nullptr) return fail_call(ncclInvalidArgument, "comm is null");
  *out = nullptr;
  if (size < 1 || size > kMostRanks) {
    return fail_call(ncclInvalidArgument, "nranks is " + std::to_string(size) + "; allowed: 1 to " +
                                              std::to_string(kMostRanks));
  }
  if (rank < 0 || rank >= size) {
    return fail_call(ncclInvalidArgument, "rank is " + std::to_string(rank) + " of " +
                                              std::to_string(size) + "; allowed: 0 <= rank < n");
  }
  std::string what;
  if (driver_table(&what) == nullptr) return fail_call(ncclUnhandledCudaError, what);
  State& state = State::get();
  Lock lock(state.mutex);
  return join(state, lock, std::string(id.internal, sizeof id.internal), size, rank, blocking, out);
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
  note_lane(*comm);
  *out = comm.release();
  return ncclSuccess;
}

ncclResult_t make_clique(State& state, const std::vector<ncclComm*>& ranks) {
  auto clique = std::make_shared<Clique>();
  clique->ranks.resize(ranks.size());
  const ncclResult_t result = allocate_staging(*clique, *ranks[0]);
  if (result != ncclSuccess) return result;
  for (ncclComm* comm : ranks) seat(state, clique, comm);
  clique->complete = true;
  return ncclSuccess;
}

std::string missing(const Clique& clique) {
  std::string text;
  int count = 0;
  for (int rank = 0; rank < clique.size(); ++rank) {
    if (clique.ranks[static_cast<size_t>(rank)] != nullptr) continue;
    if (++count > kMostNamed) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (count > kMostNamed) text += " and " + std::to_string(count - kMostNamed) + " more";
  return text;
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
  end_arrivals(state, comm);
  take_arrivals(state);
  // Pages are given back by whoever holds them last: below, without the lock, or by a later call.
  std::vector<std::shared_ptr<Page>> pages = std::move(state.orphans);
  state.orphans.clear();
  pages.insert(pages.end(), comm->pages.begin(), comm->pages.end());
  comm->pages.clear();
  for (auto it = pages.begin(); it != pages.end();) {
    if (it->use_count() > 1) {
      state.orphans.push_back(std::move(*it));
      it = pages.erase(it);
    } else {
      ++it;
    }
  }
  state.work.notify_all();
  lock.unlock();  // a driver may wait for other work here, which may need the progress thread
  {
    Current current(comm->context);
    cu().stream_destroy(comm->lane);
    pages.clear();
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
  return guarded([&] { return init_rank(out, size, id, rank, true); });
}

// All other calls are short: a non-blocking communicator differs in how it is made alone.
SIM_NCCL_API ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return guarded([&] {
    if (config != nullptr && config->magic != 0xcafebeef) {
      return fail_call(ncclInvalidArgument, "config is not made with NCCL_CONFIG_INITIALIZER");
    }
    const int blocking = config != nullptr ? config->blocking : NCCL_CONFIG_UNDEF_INT;
    if (blocking != 0 && blocking != 1 && blocking != NCCL_CONFIG_UNDEF_INT) {
      return fail_call(ncclInvalidArgument,
                       "config.blocking is " + std::to_string(blocking) + "; allowed: 0, 1");
    }
    return init_rank(out, size, id, rank, blocking != 0);
  });
}

SIM_NCCL_API ncclCommInitAll(ncclComm_t* out, int count, const int* devices) {
  return guarded([&]() -> ncclResult_t {
    if (out == nullptr || count < 1 || count > kMostRanks) {
      return fail_call(ncclInvalidArgument, "comms is null, or ndev is " + std::to_string(count) +
                                                "; allowed: 1 to " + std::to_string(kMostRanks));
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
