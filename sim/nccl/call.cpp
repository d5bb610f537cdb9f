// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file gives names and sizes of operations and types.
#include "sim/nccl/call.h"

namespace sim::nccl {
namespace {

struct Type {
  const char* name;
  size_t bytes;
};

constexpr Type kTypes[] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},      {"uint32", 4},
                           {"int64", 8},   {"uint64", 8},   {"float16", 2},    {"float32", 4},
                           {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}};
constexpr const char* kOps[] = {"sum", "prod", "max", "min", "avg"};
constexpr const char* kKinds[] = {"Send",      "Recv",   "AllGather", "ReduceScatter", "AllReduce",
                                  "Broadcast", "Reduce", "AlltoAll",  "Gather",        "Scatter"};

}  // namespace

bool is_reduction(Kind kind) {
  return kind == Kind::reduce_scatter || kind == Kind::all_reduce || kind == Kind::reduce;
}

bool is_rooted(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather ||
         kind == Kind::scatter;
}

size_t bytes_of(ncclDataType_t type) {
  return type >= 0 && type < ncclNumTypes ? kTypes[type].bytes : 0;
}

const char* name_of(ncclDataType_t type) {
  return type >= 0 && type < ncclNumTypes ? kTypes[type].name : "unknown type";
}

std::string describe(const Call& call) {
  std::string text = kKinds[static_cast<int>(call.kind)];
  text += " #" + std::to_string(call.sequence);
  if (call.kind == Kind::send) text += " to rank " + std::to_string(call.root);
  if (call.kind == Kind::recv) text += " from rank " + std::to_string(call.root);
  text += " (count " + std::to_string(call.count) + ", " + name_of(call.type);
  if (is_reduction(call.kind)) text += std::string(", ") + kOps[call.op];
  if (is_rooted(call.kind)) text += ", root " + std::to_string(call.root);
  return text + ")";
}

}  // namespace sim::nccl
