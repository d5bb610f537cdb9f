// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions make communicators: ranks meet, inside one process, under a unique id or at a
// split.
#pragma once

#include <functional>

#include "sim/nccl/state.h"

namespace sim::nccl {

// A waiter waits, at the end of a group, for something that the thread has begun inside the group.
using Waiter = std::function<ncclResult_t(State&, Lock&)>;

// Makes a rank's handle in the calling thread's context, not yet in a clique.
ncclResult_t make_comm(int rank, int size, CUcontext context, ncclComm** out);
// Gives back what the handle owns; its launches are over.
void free_comm(State& state, Lock& lock, ncclComm* comm);
// Joins handles, in order of rank, into one communicator.
ncclResult_t make_clique(State& state, const std::vector<ncclComm*>& ranks);
// Returns the ranks that are not there, as in "1, 4".
std::string missing(const Clique& clique);

// Says whether this thread is between ncclGroupStart and ncclGroupEnd.
bool in_group();
// Runs the waiter now, or at the end of the group.
ncclResult_t wait_or_defer(State& state, Lock& lock, Waiter waiter);
// Remembers a call's error if it is made inside a group.
ncclResult_t note(ncclResult_t result);
// Adds an operation to this thread's group, or runs it alone.
ncclResult_t queue(State& state, Queued call);

}  // namespace sim::nccl
