// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Libraries and modules answer alike for their kernels and functions: by name, by number, and all.
// `members` is a map from names to objects.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

template <typename Out, typename Owner, typename Map>
CUresult find_member(Out* out, const std::shared_ptr<Owner>& owner, Map Owner::*members,
                     const char* name) {
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!owner) return CUDA_ERROR_INVALID_HANDLE;
  const auto it = ((*owner).*members).find(name);
  if (it == ((*owner).*members).end()) return CUDA_ERROR_NOT_FOUND;
  *out = handle_of<Out>(it->second);
  return CUDA_SUCCESS;
}

template <typename Owner, typename Map>
CUresult count_members(unsigned* out, const std::shared_ptr<Owner>& owner, Map Owner::*members) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!owner) return CUDA_ERROR_INVALID_HANDLE;
  *out = static_cast<unsigned>(((*owner).*members).size());
  return CUDA_SUCCESS;
}

template <typename Out, typename Owner, typename Map>
CUresult list_members(Out* out, unsigned count, const std::shared_ptr<Owner>& owner,
                      Map Owner::*members) {
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!owner) return CUDA_ERROR_INVALID_HANDLE;
  unsigned at = 0;
  for (const auto& [name, member] : (*owner).*members) {
    if (at < count) out[at++] = handle_of<Out>(member);
  }
  return CUDA_SUCCESS;
}

}  // namespace sim::driver
