// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs kda on one rank of several. The exchange is of summaries alone, one for each sequence that
// an end of the shard cuts, so nothing runs beside it:
//
//   stream:   summaries | their segments composed |          | ranks composed | walks | reduction
//   exchange:                                     | one hop  |
#include <algorithm>

#include "codegen/base/integers.h"
#include "collective/exchange.h"
#include "ops/kda/ranks.h"

namespace lathe {

KdaRankRun::KdaRankRun(const KdaOverRanks& program, const Call& call)
    : RankRun(*program.group, call),
      program_(program),
      problem_(program.problem()),
      state_(static_cast<const KdaShardState&>(*call.shard_state)),
      states_(state_.plan),
      rows_(problem_.packed ? 1 : call.extents[Dim::N]),
      key_dim_(problem_.key_dim),
      value_dim_(problem_.value_dim) {}

Status KdaRankRun::lay_out() {
  LATHE_ASSIGN(plan_, program_.own->plan(call_, states_.sequences() * rows_));
  // The one rank's executor reads its sections from the start of the workspace.
  reserve(plan_.total());
  LATHE_TRY(lay_out_steps());
  const int64_t k = key_dim_, v = value_dim_;
  workspace_.end = section({4, states_.open, rows_, heads(), v, k});
  workspace_.map = section({4, states_.whole(), rows_, heads(), k, k});
  workspace_.grad = section({4, states_.carried, rows_, heads(), v, k});
  workspace_.ends = section({4, before(), rows_, heads(), v, k});
  workspace_.end_maps = section({4, before(), rows_, heads(), k, k});
  workspace_.grads = section({4, after(), rows_, heads(), v, k});
  workspace_.grad_maps = section({4, after(), rows_, heads(), k, k});
  return layout_status();
}

Status KdaRankRun::operator()() {
  KdaCall of = {call_, plan_, {true, states_.first, state_.table.data()}};
  KdaCarry& carry = of.shard.carry;
  carry.states = at(workspace_.ends);
  carry.grads = at(workspace_.grads + farthest() * states_bytes());
  carry.carried = static_cast<int>(states_.carried ? rows_ : 0);
  carry.open = static_cast<int>(plan_.shape.sequences - (states_.open ? rows_ : 0));
  if (rows_ > 0 && heads() > 0) {
    LATHE_TRY(summarize(of));
    LATHE_TRY(compose_segments());
    LATHE_TRY(exchange());
    LATHE_TRY(compose_ranks());
  }
  LATHE_TRY(program_.own->run_walks(of));
  return program_.reduces ? reduce_gradients() : Status();
}

// Makes the summaries that are sent. With one segment the summary kernel runs only for the
// sequences that are cut.
Status KdaRankRun::summarize(const KdaCall& of) const {
  KdaSummaryParams p = program_.own->summary_params(of, *program_.kernels().summary);
  int64_t blocks = plan_.launch.summary();
  if (segments() == 1) {
    const KdaSummaryBlocks each = kda_summary_each(*program_.kernels().summary, segment_shape(1));
    const int64_t forward = sends_forth() ? rows_ * each.forward : 0;
    const int64_t back = sends_back() ? rows_ * each.back : 0;
    // The kernel counts sequences from the first local one, so the address is shifted for the last
    // one.
    const int64_t skipped = sends_forth() ? last() : 0;
    p.forward_blocks = static_cast<int>(forward);
    p.forward_skipped = static_cast<int>(skipped * each.forward);
    p.summaries = at(workspace_.end - skipped * heads() * state_bytes());
    p.transitions = at(workspace_.map - skipped * heads() * map_bytes());
    p.grad_ends = at(workspace_.grad);
    blocks = forward + back;
  }
  if (blocks == 0) return {};
  return program_.kernels().summary->launch(p, blocks, call_.stream);
}

// Returns the tokens of a local sequence on this rank.
int64_t KdaRankRun::tokens(int64_t local) const {
  if (!problem_.packed) return plan_.shape.tokens;
  return states_.cu_seqlens[local + 1] - states_.cu_seqlens[local];
}

// Returns how many segments of a local sequence have tokens.
int KdaRankRun::used_segments(int64_t local) const {
  const int64_t count = tokens(local);
  const int64_t length = ceil_div(ceil_div(count, kKdaChunk), segments()) * kKdaChunk;
  return count == 0 ? 0 : static_cast<int>(ceil_div(count, length));
}

Status KdaRankRun::launch_compose(KdaComposeParams p) const {
  const auto blocks = [&](const KdaComposeSide& side) -> int64_t {
    if (side.elements == 0) return 0;
    return kda_compose_blocks(segment_shape(rows_), side.elements, p.step, p.radix);
  };
  const int64_t forward = blocks(p.forward), back = blocks(p.back);
  p.forward_blocks = static_cast<int>(forward);
  p.sequences = static_cast<int>(rows_), p.value_heads = static_cast<int>(heads());
  p.key_dim = problem_.key_dim, p.value_dim = problem_.value_dim;
  if (forward + back == 0) return {};
  return program_.kernels().compose.launch(forward + back, &p, call_.stream);
}

// Composes the rank's map from the maps of the segments of the sequence that is cut.
Status KdaRankRun::compose_segments() const {
  if (segments() == 1) return {};
  const KdaWorkspace& w = plan_.workspace;
  const int64_t each = segments() * heads();
  KdaComposeParams p = {};
  p.radix = static_cast<int>(segments()), p.step = 1;
  const auto side = [&](int64_t ends, int64_t run, int64_t to, int64_t element_runs, int elements) {
    KdaComposeSide out = {};
    out.ends = at(ends + run * state_bytes()),
    out.transitions = at(w.transitions + run * map_bytes());
    out.to_ends = at(to), out.to_transitions = at(workspace_.map);
    out.sequence_runs = each, out.element_runs = element_runs, out.elements = elements;
    return out;
  };
  if (states_.open && program_.states()) {
    const int count = used_segments(last());
    p.forward = side(w.summaries, last() * each, workspace_.end, heads(), count);
    p.forward.maps = states_.whole();
  }
  if (sends_back()) {
    const int count = used_segments(0);
    p.back = side(w.grad_ends, (count - 1) * heads(), workspace_.grad, -heads(), count);
    p.back.maps = states_.whole() && !program_.states();
  }
  return launch_compose(p);
}

Transfer KdaRankRun::transfer(const KdaMessage& message, bool sends) const {
  const bool map = message.kind == KdaMessage::map;
  const int64_t bytes = map ? maps_bytes() : states_bytes();
  const int64_t sent = map ? workspace_.map : message.forth ? workspace_.end : workspace_.grad;
  const int64_t received = message.forth ? (map ? workspace_.end_maps : workspace_.ends)
                                         : (map ? workspace_.grad_maps : workspace_.grads);
  return {message.peer, at((sends ? sent : received) + message.slot * bytes),
          static_cast<size_t>(bytes)};
}

Status KdaRankRun::exchange() {
  HopMessages& hop = state_.hop;
  hop.clear();
  for (const KdaMessage& each : state_.messages.sends) hop.sends.push_back(transfer(each, true));
  for (const KdaMessage& each : state_.messages.receives) {
    hop.receives.push_back(transfer(each, false));
  }
  return exchange_.run(hop.hop("kda's exchange of states"));
}

// Composes the first sequence's state from the ranks before, and the last one's gradient from those
// behind: a tree, in the slots of the messages.
Status KdaRankRun::compose_ranks() const {
  const int64_t runs = rows_ * heads();
  const int forth = program_.states() ? before() : 0, back = program_.grads() ? after() : 0;
  KdaComposeParams p = {};
  p.radix = kKdaComposeRadix;
  p.forward.ends = p.forward.to_ends = at(workspace_.ends);
  p.forward.transitions = p.forward.to_transitions = at(workspace_.end_maps);
  p.forward.element_runs = runs;
  const int64_t slot = std::max(back - 1, 0);
  p.back.ends = p.back.to_ends = at(workspace_.grads + slot * states_bytes());
  p.back.transitions = p.back.to_transitions = at(workspace_.grad_maps + slot * maps_bytes());
  p.back.element_runs = -runs;
  p.forward.sequence_runs = p.back.sequence_runs = heads();
  for (p.step = 1; p.step < std::max(forth, back); p.step *= p.radix) {
    p.forward.elements = p.step < forth ? forth : 0;
    p.back.elements = p.step < back ? back : 0;
    LATHE_TRY(launch_compose(p));
  }
  return {};
}

Status KdaRankRun::reduce_gradients() const {
  const auto sum = [&](int tensor, int64_t count) {
    return all_reduce_f32(group_, call_.tensors[tensor].data, static_cast<size_t>(count),
                          call_.stream);
  };
  if (problem_.dA_log) LATHE_TRY(sum(kda::dA_log, heads()));
  return problem_.ddt_bias ? sum(kda::ddt_bias, heads() * key_dim_) : Status();
}

}  // namespace lathe
