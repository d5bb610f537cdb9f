// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the rows of tensors and options that every operator over packed sequences and a pool of
// states has: which slots a sequence reads and writes, and which states in between are kept.
#pragma once

#include <array>

#include "ops/options.h"
#include "ops/schema.h"
#include "ops/shapes.h"

namespace lathe::pool_rows {

inline constexpr TensorInfo kSourceIndices =
    input("source_indices", "N", "=state_indices",
          "The slot that each sequence reads in place of the one that it writes; below 0 or "
          "null_slot: its state before is 0.")
        .needs("state_indices");
inline constexpr TensorInfo kHasInitialState =
    input("has_initial_state", "N", "i32",
          "0: the state before a sequence is 0, and no slot is read for it.")
        .needs("state_indices");
// Rows of an operator whose calls take whole sequences and leave their states at the end, and after
// any token where a checkpoint asks for it.
inline constexpr std::array kOfSequences = {
    input("state_indices", "N", kOffsets,
          "The slot of each sequence, in place of initial_state and final_state; below 0 or "
          "null_slot: padding.")
        .needs("state_pool"),
    kSourceIndices,
    kHasInitialState,
    input("cu_checkpoints", "N+1", "i32", "Offsets of each sequence's checkpoints.")
        .needs("state_pool,checkpoint_tokens,checkpoint_slots"),
    input("checkpoint_tokens", "C", "i32",
          "After so many tokens of its sequence, 0 to its length, the state goes to a slot of "
          "its own too.")
        .needs("cu_checkpoints"),
    input("checkpoint_slots", "C", "i32",
          "The slots of checkpoints; below 0 or null_slot: none is written.")
        .needs("cu_checkpoints"),
};

template <typename Options>
inline constexpr std::array kNullSlot = {Bind<Options>::template integer<&Options::null_slot>(
    "null_slot", "-1", "-1|[-2147483648,2147483648)",
    "A slot that stands for padding wherever it is named, as those below 0 do.")};

}  // namespace lathe::pool_rows
