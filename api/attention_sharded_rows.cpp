// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows moved, added and rounded between the steps of sharded attention.
#include "api/attention_sharded_run.h"
#include "api/boundary.h"

namespace lathe {

Status AttentionRankRun::pack_own_keys() { return Status(Code::unsupported, "pack"); }
Status AttentionRankRun::add_sums(int64_t, bool) { return {}; }
Status AttentionRankRun::give(int, const TokenRows&, Dtype) { return {}; }
Status AttentionRankRun::give_keys(int64_t, Dtype) { return {}; }
Status AttentionRankRun::give_shares() { return {}; }
Result<Estimate> AttentionRankRun::estimate() const { return Estimate{}; }

}  // namespace lathe
