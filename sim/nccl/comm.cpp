// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions split and end communicators and answer questions about them.
#include <algorithm>

#include "sim/nccl/export.h"
#include "sim/nccl/meet.h"

namespace sim::nccl {

// The ranks of a communicator that have called its n-th split.
struct Split {
  struct Entry {
    bool here = false;
    int color = 0, key = 0;
    ncclComm** out = nullptr;
    bool blocking = true;
  };
  std::vector<Entry> entries;
  int joined = 0;
  bool done = false;
  ncclResult_t result = ncclSuccess;
};

namespace {

ncclResult_t make_color(State& state, Lock& lock, Clique& parent, Split& split, int color) {
  std::vector<int> members;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (split.entries[static_cast<size_t>(rank)].color == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return split.entries[static_cast<size_t>(a)].key < split.entries[static_cast<size_t>(b)].key;
  });
  std::vector<ncclComm*> ranks;
  for (int member : members) {
    ncclComm* comm = nullptr;
    const auto index = static_cast<size_t>(member);
    const ncclResult_t result =
        make_comm(static_cast<int>(ranks.size()), static_cast<int>(members.size()),
                  parent.ranks[index]->context, &comm);
    if (result != ncclSuccess) {
      for (ncclComm* made : ranks) free_comm(state, lock, made);
      return result;
    }
    comm->blocking = split.entries[index].blocking;
    ranks.push_back(comm);
  }
  const ncclResult_t result = make_clique(state, ranks);
  for (size_t at = 0; at < ranks.size(); ++at) {
    if (result != ncclSuccess) {
      free_comm(state, lock, ranks[at]);
    } else {
      *split.entries[static_cast<size_t>(members[at])].out = ranks[at];
    }
  }
  return result;
}

void make_all(State& state, Lock& lock, Clique& parent, Split& split) {
  std::set<int> colors;
  for (const auto& entry : split.entries) colors.insert(entry.color);
  colors.erase(NCCL_SPLIT_NOCOLOR);
  for (int color : colors) {
    if (split.result == ncclSuccess) split.result = make_color(state, lock, parent, split, color);
  }
  split.done = true;
  state.changed.notify_all();
}

// Until all of this rank's operations are over, at most as long as a partner may take to come.
void drain(State& state, Lock& lock, ncclComm& comm) {
  state.work.notify_all();
  state.changed.wait_for(lock, timeout() + std::chrono::seconds(5),
                         [&] { return comm.launches.empty(); });
}

std::string rank_name(const ncclComm& comm) { return "rank " + std::to_string(comm.rank); }

// Says what the rank was doing when it left.
std::string circumstances(const ncclComm& comm) {
  if (!comm.clique->complete) return " before ranks " + missing(*comm.clique) + " had joined";
  return comm.last.empty() ? "" : "; it last called " + comm.last;
}

// Releases what is left, waits for it and frees the handle.
void end(State& state, Lock& lock, ncclComm& comm) {
  const std::shared_ptr<Clique> clique = comm.clique;
  drain(state, lock, comm);
  if (!comm.launches.empty()) {
    fail_clique(state, *clique, ncclRemoteError,
                rank_name(comm) + " was destroyed while " + comm.last + " was under way");
    drain(state, lock, comm);
  }
  free_comm(state, lock, &comm);
  if (clique->error == ncclSuccess) check_gone(state, *clique);
}

}  // namespace
}  // namespace sim::nccl

using namespace sim::nccl;

SIM_NCCL_API ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out,
                           ncclConfig_t* config) {
  return with_ready_comm(comm, [&](State& state, Lock& lock, ncclComm& parent) -> ncclResult_t {
    if (out == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
      return fail_call(ncclInvalidArgument, "newcomm is null or color is negative");
    }
    if (config != nullptr && config->magic != 0xcafebeef) {
      return fail_call(ncclInvalidArgument, "config is not made with NCCL_CONFIG_INITIALIZER");
    }
    *out = nullptr;
    const std::shared_ptr<Clique> clique = parent.clique;
    if (clique->error != ncclSuccess) return fail_call(clique->error, clique->text);
    std::shared_ptr<Split>& entry = clique->splits[parent.splits];
    if (!entry) {
      entry = std::make_shared<Split>();
      entry->entries.resize(clique->ranks.size());
    }
    const std::shared_ptr<Split> split = entry;
    const uint64_t number = parent.splits++;
    const bool inherits = config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT;
    const bool blocking = inherits ? parent.blocking : config->blocking != 0;
    split->entries[static_cast<size_t>(parent.rank)] = {true, color, key, out, blocking};
    if (++split->joined == clique->size()) {
      clique->splits.erase(number);
      make_all(state, lock, *clique, *split);
    }
    if (!parent.blocking) {  // ncclCommGetAsyncError of the parent says when it is done
      parent.splitting = split;
      return split->done ? split->result : ncclInProgress;
    }
    return wait_or_defer(state, lock, [clique, split](State& all, Lock& held) {
      all.changed.wait_for(held, timeout(),
                           [&] { return split->done || clique->error != ncclSuccess; });
      if (split->done) return split->result;
      fail_clique(all, *clique, ncclRemoteError,
                  "a split was called by " + std::to_string(split->joined) + " of " +
                      std::to_string(clique->size()) + " ranks only");
      return fail_call(clique->error, clique->text);
    });
  });
}

SIM_NCCL_API ncclCommFinalize(ncclComm_t comm) {
  return with_ready_comm(comm, [](State& state, Lock& lock, ncclComm& it) -> ncclResult_t {
    drain(state, lock, it);
    return it.clique->error == ncclSuccess ? ncclSuccess
                                           : fail_call(it.clique->error, it.clique->text);
  });
}

SIM_NCCL_API ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return with_comm(comm, [](State& state, Lock& lock, ncclComm& it) -> ncclResult_t {
    if (!it.clique->complete) {
      fail_clique(state, *it.clique, ncclRemoteError,
                  rank_name(it) + " destroyed the communicator" + circumstances(it));
    }
    end(state, lock, it);
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return with_comm(comm, [](State& state, Lock& lock, ncclComm& it) -> ncclResult_t {
    fail_clique(state, *it.clique, ncclRemoteError,
                rank_name(it) + " aborted the communicator" + circumstances(it));
    end(state, lock, it);
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* out) {
  return with_comm(comm, [&](State&, Lock&, ncclComm& it) -> ncclResult_t {
    if (out == nullptr) return fail_call(ncclInvalidArgument, "asyncError is null");
    const Clique& clique = *it.clique;
    const bool splits = it.splitting != nullptr && !it.splitting->done;
    *out = clique.error;
    if (clique.error == ncclSuccess && (splits || !clique.complete)) *out = ncclInProgress;
    if (clique.error == ncclSuccess && it.splitting != nullptr && it.splitting->done) {
      *out = it.splitting->result;
    }
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommCount(const ncclComm_t comm, int* out) {
  return with_ready_comm(comm, [&](State&, Lock&, ncclComm& it) -> ncclResult_t {
    if (out == nullptr) return fail_call(ncclInvalidArgument, "count is null");
    *out = it.size;
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommCuDevice(const ncclComm_t comm, int* out) {
  return with_ready_comm(comm, [&](State&, Lock&, ncclComm& it) -> ncclResult_t {
    if (out == nullptr) return fail_call(ncclInvalidArgument, "device is null");
    *out = it.device;
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommUserRank(const ncclComm_t comm, int* out) {
  return with_ready_comm(comm, [&](State&, Lock&, ncclComm& it) -> ncclResult_t {
    if (out == nullptr) return fail_call(ncclInvalidArgument, "rank is null");
    *out = it.rank;
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommRegister(const ncclComm_t comm, void* buffer, size_t size, void** handle) {
  return with_ready_comm(comm, [&](State&, Lock&, ncclComm&) -> ncclResult_t {
    if (buffer == nullptr || size == 0 || handle == nullptr) {
      return fail_call(ncclInvalidArgument, "buffer, size or handle is null");
    }
    *handle = buffer;  // copies need no registration
    return ncclSuccess;
  });
}

SIM_NCCL_API ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return with_ready_comm(comm, [&](State&, Lock&, ncclComm&) -> ncclResult_t {
    return handle != nullptr ? ncclSuccess : fail_call(ncclInvalidArgument, "handle is null");
  });
}
