// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the copies behind each operation. Every rank has a lane, a stream of ours in
// its context, which makes all copies into that rank's buffers. Reductions are staged in pinned
// memory, a chunk at a time: each lane brings its rank's data, a host function on the first lane
// reduces in rank order, the lanes take the result.
#include <algorithm>

#include "sim/nccl/reduce.h"
#include "sim/nccl/state.h"

namespace sim::nccl {
namespace {

// Stops at the first error and keeps it.
class Issuer {
 public:
  explicit Issuer(Task& task) : task_(task) {
    for (const Part& part : task.parts) comms_.push_back(part.launch->comm);
  }

  CUresult error() const { return error_; }
  size_t size() const { return comms_.size(); }
  const Call& call(size_t part) const { return task_.parts[part].call; }

  // `to` belongs to part `owner`, whose lane does it; `from` to part `source`.
  void copy(size_t owner, void* to, size_t source, const void* from, size_t bytes) {
    if (error_ != CUDA_SUCCESS || bytes == 0 || to == from) return;
    const ncclComm* comm = comms_[owner];
    const CUcontext other = comms_[source]->context;
    Current current(comm->context);
    const auto target = reinterpret_cast<CUdeviceptr>(to);
    const auto origin = reinterpret_cast<CUdeviceptr>(from);
    error_ = other == comm->context
                 ? cu().memcpy_async(target, origin, bytes, comm->lane)
                 : cu().memcpy_peer_async(target, comm->context, origin, other, bytes, comm->lane);
  }

  // One of the two is pinned memory.
  void stage(size_t owner, void* to, const void* from, size_t bytes) {
    if (error_ != CUDA_SUCCESS || bytes == 0) return;
    Current current(comms_[owner]->context);
    error_ = cu().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                               reinterpret_cast<CUdeviceptr>(from), bytes, comms_[owner]->lane);
  }

  // Makes all that lane `after` does from now on come after the work that lane `before` has so far.
  void order(size_t before, size_t after) {
    if (error_ != CUDA_SUCCESS || before == after) return;
    CUevent event = nullptr;
    {
      Current current(comms_[before]->context);
      error_ = cu().event_create(&event, CU_EVENT_DISABLE_TIMING);
      if (error_ != CUDA_SUCCESS) return;
      error_ = cu().event_record(event, comms_[before]->lane);
    }
    Current current(comms_[after]->context);
    if (error_ == CUDA_SUCCESS) error_ = cu().stream_wait_event(comms_[after]->lane, event, 0);
    cu().event_destroy(event);
  }

  struct Job {
    std::vector<const void*> inputs;
    void* out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
  };
  void reduce_on_host(Job job) {
    if (error_ != CUDA_SUCCESS) return;
    auto kept = std::make_shared<Job>(std::move(job));
    task_.jobs.push_back(kept);
    Current current(comms_[0]->context);
    error_ = cu().launch_host_func(
        comms_[0]->lane,
        [](void* data) {
          const Job& it = *static_cast<Job*>(data);
          reduce(it.inputs, it.out, it.count, it.type, it.op);
        },
        kept.get());
  }

  // The task is over when every lane has come this far.
  void mark() {
    for (const ncclComm* comm : comms_) {
      Current current(comm->context);
      CUevent event = nullptr;
      if (cu().event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) continue;
      if (cu().event_record(event, comm->lane) == CUDA_SUCCESS) {
        task_.marks.push_back({comm->context, event});
      } else {
        cu().event_destroy(event);
      }
    }
  }

 private:
  Task& task_;
  std::vector<ncclComm*> comms_;
  CUresult error_ = CUDA_SUCCESS;
};

char* at(void* base, size_t offset) { return static_cast<char*>(base) + offset; }
const char* at(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }

// Reduces every rank's input from `offset` on; `receivers` take the result to `target(part)`.
template <typename F>
void reduce_range(Issuer& issuer, char* staging, size_t offset, size_t bytes,
                  const std::vector<size_t>& receivers, F target) {
  const Call& call = issuer.call(0);
  const size_t element = bytes_of(call.type);
  char* result = staging + issuer.size() * kChunk;
  for (size_t done = 0; done < bytes; done += kChunk) {
    const size_t piece = std::min(kChunk, bytes - done);
    Issuer::Job job = {{}, result, piece / element, call.type, call.op};
    for (size_t part = 0; part < issuer.size(); ++part) {
      char* slot = staging + part * kChunk;
      issuer.stage(part, slot, at(issuer.call(part).send, offset + done), piece);
      issuer.order(part, 0);
      job.inputs.push_back(slot);
    }
    issuer.reduce_on_host(std::move(job));
    for (size_t part = 1; part < issuer.size(); ++part) issuer.order(0, part);
    for (size_t part : receivers) {
      issuer.stage(part, at(target(part), done), result, piece);
      issuer.order(part, 0);
    }
  }
}

void issue_reduction(Issuer& issuer, char* staging) {
  const Call& call = issuer.call(0);
  const size_t bytes = call.count * bytes_of(call.type);
  std::vector<size_t> all(issuer.size());
  for (size_t part = 0; part < all.size(); ++part) all[part] = part;
  const auto target = [&](size_t part) { return issuer.call(part).recv; };
  if (call.kind == Kind::all_reduce) {
    reduce_range(issuer, staging, 0, bytes, all, target);
  } else if (call.kind == Kind::reduce) {
    reduce_range(issuer, staging, 0, bytes, {static_cast<size_t>(call.root)}, target);
  } else {
    for (size_t part : all) {
      reduce_range(issuer, staging, part * bytes, bytes, {part}, target);
    }
  }
}

void issue_moves(Issuer& issuer) {
  const Call& call = issuer.call(0);
  const size_t bytes = call.count * bytes_of(call.type);
  const auto root = static_cast<size_t>(call.root);
  if (call.kind == Kind::send) {
    issuer.copy(1, issuer.call(1).recv, 0, call.send, bytes);
    return;
  }
  for (size_t to = 0; to < issuer.size(); ++to) {
    void* recv = issuer.call(to).recv;
    switch (call.kind) {
      case Kind::all_gather:
        for (size_t from = 0; from < issuer.size(); ++from) {
          issuer.copy(to, at(recv, from * bytes), from, issuer.call(from).send, bytes);
        }
        break;
      case Kind::all_to_all:
        for (size_t from = 0; from < issuer.size(); ++from) {
          issuer.copy(to, at(recv, from * bytes), from, at(issuer.call(from).send, to * bytes),
                      bytes);
        }
        break;
      case Kind::broadcast:
        issuer.copy(to, recv, root, issuer.call(root).send, bytes);
        break;
      case Kind::gather:
        issuer.copy(root, at(issuer.call(root).recv, to * bytes), to, issuer.call(to).send, bytes);
        break;
      default:  // scatter
        issuer.copy(to, recv, root, at(issuer.call(root).send, to * bytes), bytes);
        break;
    }
  }
}

}  // namespace

CUresult issue(Task& task) {
  Issuer issuer(task);
  if (is_reduction(issuer.call(0).kind)) {
    issue_reduction(issuer, task.clique->staging);
  } else {
    issue_moves(issuer);
  }
  issuer.mark();
  return issuer.error();
}

}  // namespace sim::nccl
