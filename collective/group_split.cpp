// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Splits a group, by NCCL if it has ncclCommSplit. Otherwise each color's first rank makes a unique
// id, which travels over the parent.
#include <cstring>
#include <utility>
#include <vector>

#include "codegen/base/text.h"
#include "collective/group.h"
#include "collective/small_gather.h"

namespace lathe {
namespace {

struct Wish {
  int color, key;
  UniqueId id;
};

}  // namespace

Result<std::shared_ptr<Group>> Group::split_by_nccl(Group& parent, int color, int key) {
  std::shared_ptr<Group> group(new Group(parent.device_, parent.nccl_));
  group->timeout_ms_ = parent.timeout_ms_;
  const Nccl& nccl = *parent.nccl_;
  {
    const Use use(parent);
    LATHE_TRY(use.status());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // NCCL may fill in the communicator from its own thread, so the parent, which outlives that
    // thread, holds the pointer.
    parent.half_made_ = nullptr;
    const ncclResult_t result = nccl.ncclCommSplit(
        parent.comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &parent.half_made_, &config);
    LATHE_TRY(parent.complete(result, "ncclCommSplit"));
    group->comm_ = std::exchange(parent.half_made_, nullptr);
  }
  if (color < 0) return std::shared_ptr<Group>();
  if (group->comm_ == nullptr) {
    return Status(Code::nccl, text(parent.name(), ": ncclCommSplit made no communicator"));
  }
  const ncclResult_t state = wait_while_busy(nccl, group->comm_, parent.timeout_ms_);
  if (state != ncclSuccess) {
    Status status = check(nccl, group->comm_, state, "ncclCommSplit");
    if (state == ncclInProgress) {
      status = {Code::timeout, text(parent.name(), " waited ", parent.timeout_ms_,
                                    " ms for the ranks of color ", color, " to join")};
    }
    (void)nccl.ncclCommAbort(std::exchange(group->comm_, nullptr));
    return status;
  }
  LATHE_TRY(
      check(nccl, group->comm_, nccl.ncclCommCount(group->comm_, &group->world_), "ncclCommCount"));
  LATHE_TRY(check(nccl, group->comm_, nccl.ncclCommUserRank(group->comm_, &group->rank_),
                  "ncclCommUserRank"));
  LATHE_TRY(group->open());
  return group;
}

// Before 2.18 a communicator cannot be split.
Result<std::shared_ptr<Group>> Group::split_by_id(Group& parent, int color, int key) {
  Wish mine{color, key, {}};
  LATHE_ASSIGN(mine.id, make_unique_id(*parent.nccl_));
  LATHE_ASSIGN(const std::string bytes, small_gather(parent, &mine, sizeof(mine), "a split"));
  if (color < 0) return std::shared_ptr<Group>();
  std::vector<Wish> wishes(static_cast<size_t>(parent.world_));
  std::memcpy(wishes.data(), bytes.data(), bytes.size());
  int world = 0, rank = 0, first = -1;
  for (int at = 0; at < parent.world_; ++at) {
    const Wish& other = wishes[static_cast<size_t>(at)];
    if (other.color != color) continue;
    ++world;
    if (std::pair(other.key, at) < std::pair(key, parent.rank_)) ++rank;
    const bool leads = first < 0 || other.key < wishes[static_cast<size_t>(first)].key;
    if (leads) first = at;
  }
  return create(parent.device_, parent.nccl_, wishes[static_cast<size_t>(first)].id, world, rank,
                parent.timeout_ms_);
}

Result<std::shared_ptr<Group>> Group::split(Group& parent, int color, int key) {
  const Device::Scope scope(*parent.device_);
  LATHE_TRY(scope.status());
  if (parent.nccl_->ncclCommSplit == nullptr) return split_by_id(parent, color, key);
  return split_by_nccl(parent, color, key);
}

}  // namespace lathe
