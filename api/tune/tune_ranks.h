// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tuning over ranks: votes by NCCL, and choices that all ranks have alike.
#pragma once

#include "api/tune/tune_race.h"
#include "ops/group.h"

namespace lathe {

class GroupBallot : public Ballot {
 public:
  explicit GroupBallot(Group& group) : group_(group) {}
  Result<Votes> exchange(const std::vector<double>& mine) override;

 private:
  Group& group_;
};

// Gives the group rank 0's choices. Collective.
Status share_tuned(lathe_group& group);

}  // namespace lathe
