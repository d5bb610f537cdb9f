// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks are about to do the same. Digests of what must be equal travel before the
// first hop, so a difference is named instead of causing a hang or wrong numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "collective/group.h"

namespace lathe {

// "cu_seqlens" and the digest of their values. The name lives as long as the call.
struct NamedDigest {
  const char* name;
  uint64_t value;
};
uint64_t digest_of(std::string_view text);
uint64_t digest_of(std::span<const int64_t> values);

constexpr size_t kMostDigests = 15;

// Collective, off the launch path. Returns INVALID_ARGUMENT on every rank if a digest is not equal
// on all of them. The message names the first such digest of the list and the ranks that differ
// from rank 0. A digest that decides which others there are (the operator) comes first. Returns
// TIMEOUT or NCCL if a rank does not take part.
Status agree(Group& group, std::span<const NamedDigest> digests);

}  // namespace lathe
