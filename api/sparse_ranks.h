// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention on one rank of several: its rows, and of the keys those that they may see,
// gathered into the workspace.
#pragma once

#include "api/device_table.h"
#include "api/sparse_work.h"
#include "collective/key_gather.h"

namespace lathe {

// Takes over the work of one device. Groups of two ranks and more.
Result<std::unique_ptr<Work>> make_sparse_over_ranks(std::unique_ptr<SparseWork> own,
                                                     const SparseGroup& ranks);

// What runs on a shard need of it.
class SparsePrepared final : public Prepared {
 public:
  // INVALID_ARGUMENT if the shard and the problem do not agree about sequences.
  static Result<std::unique_ptr<const SparsePrepared>> make(const SparseRequest& request,
                                                            const lathe_shard& shard,
                                                            const Device& device);

  KeyGather gather;
  SparsePlaces places;
  const void* sources = nullptr;  // on the device: gradient_sources
  int64_t sequences = 0;          // of the whole axis

 private:
  DeviceTable table_;
};

}  // namespace lathe
