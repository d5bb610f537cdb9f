// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the tensors and options of shard and unshard.
#pragma once

#include "ops/executor.h"
#include "ops/resolve.h"
#include "ops/schema.h"
#include "ops/shapes.h"

namespace lathe {

namespace shard_rows {

inline constexpr const char* kAnyType = "f32|f16|bf16|i32|i64";
// These are the shapes of a tensor with all T tokens, by the axis of tokens, and of one with the S
// indexed tokens.
inline constexpr const char *kWhole = "T,B,H,D|B,T,H,D|B,H,T,D|B,H,D,T|T,H,D|B,T,D|B,H,T|T,D|B,T|T",
                            *kSome = "S,B,H,D|B,S,H,D|B,H,S,D|B,H,D,S|S,H,D|B,S,D|B,H,S|S,D|B,S|S";

inline constexpr TensorInfo kBuffer =
    inout("buffer", kWhole, kAnyType,
          "In the place of x and y: rearranged where it is; S must be T.")
        .optional()
        .strided();

inline constexpr TensorInfo kTensors[] = {
    input("x", kWhole, kAnyType, "A tensor with all tokens.").needs("y").strided(),
    input("indices", "S", "i32", "Which tokens, in which order; one outside T stands for 0."),
    output("y", kSome, "=x", "y[s] = x[indices[s]].").needs("x").strided(),
    kBuffer,
};
inline constexpr TensorInfo kUnshardTensors[] = {
    input("x", kSome, kAnyType, "Some tokens.").needs("y").strided(),
    input("indices", "S", "i32",
          "Where each of them belongs, no place twice; one outside T is left out."),
    inout("y", kWhole, "=x", "y[indices[s]] = x[s]; other tokens stay as they are.")
        .needs("x")
        .strided(),
    kBuffer,
};

consteval int at(std::string_view name) { return index_of(kTensors, name); }
inline constexpr int x = at("x"), indices = at("indices"), y = at("y"), buffer = at("buffer");

}  // namespace shard_rows

struct ShardOptions {
  int64_t axis = 0;
};

// Refuses problems that the tables cannot exclude.
Status check_shard_rows(const Resolved& resolved);

MadeExecutor make_shard_rows(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe
