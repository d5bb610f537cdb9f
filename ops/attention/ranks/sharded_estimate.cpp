// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Estimates what one rank launches, computes and sends. A step counts only the visible pairs as
// computed.
#include "ops/attention/ranks/sharded.h"

namespace lathe {

struct AttentionTally {
  Estimate sum;

  Status add(const Part& part, const Call& call, double share = 1) {
    LATHE_ASSIGN(const Estimate one, part.executor().estimate(call));
    sum.launches += one.launches;
    sum.cost.minimum_bytes += one.cost.minimum_bytes;
    sum.cost.bytes += one.cost.bytes;
    sum.cost.flops += static_cast<uint64_t>(static_cast<double>(one.cost.flops) * share);
    return {};
  }
  void kernel(uint64_t bytes) {
    if (bytes == 0) return;
    ++sum.launches;
    sum.cost.bytes += bytes;
    sum.cost.minimum_bytes += bytes;
  }
};

Status AttentionRankRun::estimate_slice(AttentionTally* tally) const {
  const int64_t half = element(), travels = bytes_of(executor_.travelling());
  // Keys or gradients of a block: a launch each, of which a value is read and written.
  const auto block_pair = [&](int64_t tokens, int64_t bytes, bool k, bool v) {
    const int64_t row = batch_ * tokens * kv_heads_ * bytes;
    if (k) tally->kernel(static_cast<uint64_t>(row * problem().head_dim));
    if (v) tally->kernel(static_cast<uint64_t>(row * problem().value_dim));
  };
  const bool forward = problem().forward, backward = problem().backward;
  for (int i = 0; packs_ && i < (forward ? 1 : 0) + (backward && !keeps_gathered() ? 1 : 0); ++i) {
    block_pair(own_tokens(), 2 * half, true, true);
  }
  for (int i = 0; i < count(); ++i) {
    if (i > 0 && at_round(i).ranges.empty()) continue;
    const KeyBlock keys = keys_of(i);
    const double pairs = static_cast<double>(rows_) * static_cast<double>(keys.k.tokens);
    const double seen = pairs > 0 ? static_cast<double>(at_round(i).visible) / pairs : 0;
    if (forward) {
      const Part& part = forward_part(i);
      LATHE_TRY(tally->add(part, step_call(part, i, keys), seen));
    }
    if (!backward) continue;
    const Part& part = gradients_part(i == 0);
    const KeyBlock sums = block(part_, keys.k.tokens, 4);
    LATHE_TRY(tally->add(part, gradients_call(part, i, keys, sums), seen));
    const bool arrived = !gathers() && i > 0 && at_round(i - 1).receive_gradients;
    const bool rounded =
        travels != 4 && !arrived && (gathers() ? i > 0 : bool(at_round(0).send_gradients));
    if (rounded) block_pair(keys.k.tokens, 4 + travels, true, true);
    if (arrived) {
      tally->kernel(static_cast<uint64_t>(key_elements(keys.k.tokens) * (4 + 2 * travels)));
    }
  }
  const AttentionGradients& wanted = request_.gradients;
  if (backward) block_pair(own_tokens(), travels + half, wanted.dk, wanted.dv);
  return {};
}

Result<Estimate> AttentionRankRun::estimate() {
  AttentionTally tally;
  for (int64_t s = 0; s < slices(); ++s) {
    take(s);
    LATHE_TRY(estimate_slice(&tally));
    add_exchange(&tally.sum);
  }
  take_all();
  if (steps_.finish) LATHE_TRY(tally.add(*steps_.finish, finish_call()));
  if (steps_.delta) LATHE_TRY(tally.add(*steps_.delta, delta_call()));
  const int64_t dq = batch_ * rows_ * heads_ * problem().head_dim * (4 + element());
  if (request_.gradients.dq) tally.kernel(static_cast<uint64_t>(dq));
  return tally.sum;
}

void AttentionRankRun::add_exchange(Estimate* out) const {
  const auto add = [&](const ExchangeCounts& counts) {
    const uint64_t token = static_cast<uint64_t>(key_elements(1));
    out->exchanges += static_cast<uint64_t>(counts.groups);
    out->exchange_bytes += token * (counts.key_tokens * element() +
                                    counts.gradient_tokens * bytes_of(executor_.travelling()));
  };
  if (problem().forward) add(forward_exchange(rounds_));
  if (problem().backward) add(backward_exchange(rounds_, gathers() && keeps_gathered()));
}

}  // namespace lathe
