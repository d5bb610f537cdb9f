// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds operations as ranks ask for them, in numbers and in words.
#pragma once

#include <cstdint>
#include <string>

#include "abi/nccl.h"

namespace sim::nccl {

enum class Kind {
  send,
  recv,
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter
};

// A Call is one operation of one rank. `count` is in elements, as the call gave it.
struct Call {
  Kind kind = Kind::send;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;           // of rooted collectives; the peer of send and recv
  uint64_t sequence = 0;  // this rank's operations on the communicator, counted from 0
};

bool is_reduction(Kind kind);
bool is_rooted(Kind kind);
inline bool is_pair(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

// Returns 0 for a value that is no type.
size_t bytes_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

// Returns text such as "AllReduce #3 (count 8, float32, sum)".
std::string describe(const Call& call);

}  // namespace sim::nccl
