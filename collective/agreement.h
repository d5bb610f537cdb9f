// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// That all ranks are about to do the same: digests of what must be equal travel before the first
// hop, so that a difference has a name instead of being a hang or wrong numbers.
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

// Collective, off the launch path. INVALID_ARGUMENT on every rank if a digest is not equal on
// all of them, with the first such of the list and whose differ from rank 0's. What
// decides which others there are (the operator) comes first. TIMEOUT or NCCL if a rank does not
// take part.
Status agree(Group& group, std::span<const NamedDigest> digests);

}  // namespace lathe
