// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs kda on one rank among several: the state of a shard, the workspace and the cost of its part;
// summaries of the sequences that the part's ends cut, one exchange of them, their composition, and
// one rank's launches on what it gives.
#include <algorithm>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "collective/plans/conv_halo.h"
#include "ops/kda/chunked_run.h"

namespace lathe {
namespace {

// Chunks are counted from the starts of sequences: a part that begins within one would leave states
// that are none of the whole's.
Status check_chunks(const Layout& layout, int64_t chunk) {
  for (int rank = 0; rank < layout.world(); ++rank) {
    const KdaStatesPlan plan = kda_states_plan(layout, rank);
    if (plan.carried_tokens % chunk == 0) continue;
    return invalid(text("chunk_states is declared with chunk_size ", chunk, ", and rank ", rank,
                        " begins ", plan.carried_tokens, " tokens into sequence ", plan.first,
                        "; allowed are multiples of chunk_size (the shard's bounds)"));
  }
  return {};
}

}  // namespace

MadeShardState KdaExecutor::prepare(const lathe_shard& shard) const {
  if (!problem().ranks) return std::unique_ptr<const ShardState>();
  const Layout& layout = shard.layout;
  LATHE_TRY(check_shard_form(layout, problem().packed, "cu_seqlens"));
  if (problem().chunk_states) LATHE_TRY(check_chunks(layout, request_.chunk_size));
  auto out = std::make_unique<KdaShardState>();
  out->plan = kda_states_plan(layout, shard.rank);
  out->messages = kda_messages(out->plan, kernels_.summary.numbers().states != 0,
                               kernels_.summary.numbers().grads != 0);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  out->transfers.reserve(out->messages.sends.size() + out->messages.receives.size());
  if (problem().packed) {
    const std::vector<int64_t>& offsets = out->plan.cu_seqlens;
    const std::vector<int32_t> narrow(offsets.begin(), offsets.end());
    LATHE_ASSIGN(out->table, problem().cu_seqlens == Dtype::i64
                                 ? DeviceTable::upload(group_->device(), offsets)
                                 : DeviceTable::upload(group_->device(), narrow));
  }
  return std::unique_ptr<const ShardState>(std::move(out));
}

Result<KdaRankWorkspace> KdaExecutor::rank_workspace(const Call& call, const KdaPlan& plan) const {
  const KdaStatesPlan& states = state_of(call).plan;
  const int64_t rows = problem().packed ? 1 : call.extents[Dim::N];
  const int64_t heads = plan.shape.value_heads, k = problem().key_dim, v = problem().value_dim;
  const auto before = static_cast<int64_t>(states.before.size());
  const auto after = static_cast<int64_t>(states.after.size());
  KdaRankWorkspace out;
  WorkspaceLayout layout;
  layout.add({plan.workspace.total});
  out.end = layout.add({4, states.open, rows, heads, v, k});
  out.map = layout.add({4, states.whole(), rows, heads, k, k});
  out.grad = layout.add({4, states.carried, rows, heads, v, k});
  out.ends = layout.add({4, before, rows, heads, v, k});
  out.end_maps = layout.add({4, before, rows, heads, k, k});
  out.grads = layout.add({4, after, rows, heads, v, k});
  out.grad_maps = layout.add({4, after, rows, heads, k, k});
  out.total = layout.total();
  LATHE_TRY(layout.status());
  out.state_bytes = static_cast<size_t>(4 * rows * heads * v * k);
  out.map_bytes = static_cast<size_t>(4 * rows * heads * k * k);
  return out;
}

// Adds the launches that a single rank does not have: summaries that are sent, and their
// composition. Messages are no launches.
void KdaExecutor::add_exchange(const Call& call, const KdaChunkedShape& shape,
                               Estimate* out) const {
  const KdaStatesPlan& plan = state_of(call).plan;
  const int64_t rows = problem().packed ? 1 : call.extents[Dim::N];
  if (plan.sequences() == 0 || rows == 0 || shape.value_heads == 0) return;
  const bool states = kernels_.summary.numbers().states != 0;
  const bool grads = kernels_.summary.numbers().grads != 0;
  const auto tokens = [&](int64_t local) {
    return rows * (plan.cu_seqlens[local + 1] - plan.cu_seqlens[local]);
  };
  KdaPartWalks walks;
  walks.states = states, walks.maps = plan.whole();
  const auto forth = states ? static_cast<int64_t>(plan.before.size()) : 0;
  const auto back = grads ? static_cast<int64_t>(plan.after.size()) : 0;
  walks.links = std::max<int64_t>(forth - 1, 0) + std::max<int64_t>(back - 1, 0);
  for (int64_t step = 1; step < std::max(forth, back); step *= kKdaComposeRadix) ++out->launches;
  const bool hands_on = (plan.open && (states || plan.whole())) || (plan.carried && grads);
  if (hands_on) ++out->launches;
  if (hands_on && shape.segments == 1) {
    if (plan.open && (states || plan.whole())) walks.forth = tokens(plan.sequences() - 1);
    if (plan.carried && grads) walks.back = tokens(0);
  }
  out->add({0, kda_part_cost(problem(), *kernels_.summary,
                             {rows, shape.value_heads, 1, problem().key_dim, problem().value_dim},
                             walks)});
}

// Holds the steps of one call, on the stack.
struct ShardedKda {
  const KdaExecutor& executor;
  const KdaShardState& shard_state;
  const KdaCall& of;
  int64_t rows;
  const KdaRankWorkspace& ranks = *of.plan.ranks;

  const KdaStatesPlan& plan() const { return shard_state.plan; }
  char* at(int64_t offset) const { return of.call.workspace + offset; }
  int before() const { return static_cast<int>(plan().before.size()); }
  int after() const { return static_cast<int>(plan().after.size()); }
  bool states() const { return executor.kernels_.summary.numbers().states != 0; }
  bool grads() const { return executor.kernels_.summary.numbers().grads != 0; }
  int64_t last() const { return of.plan.shape.sequences - rows; }
  KdaSegmentShape segment_shape(int64_t sequences) const {
    return {sequences, of.plan.shape.value_heads, of.plan.shape.segments,
            executor.problem().key_dim, executor.problem().value_dim};
  }

  Status summarize() const;
  Status compose_segments() const;
  Status exchange() const;
  Status compose_parts() const;
  Status launch_compose(KdaComposeParams p) const;
  int used(int64_t local) const;
};

// Makes the summaries that are sent. With one segment the summary kernel runs only for the
// sequences that are cut.
Status ShardedKda::summarize() const {
  KdaSummaryParams p = executor.summary_params(of);
  int64_t blocks = of.plan.launch.summary();
  if (of.plan.shape.segments == 1) {
    const KdaSummaryBlocks each =
        kda_summary_each(executor.kernels_.summary.numbers(), segment_shape(1));
    const bool forth = plan().open && (states() || plan().whole());
    const int64_t forward = forth ? rows * each.forward : 0;
    const int64_t back = plan().carried && grads() ? rows * each.back : 0;
    // The kernel counts sequences from the first local one, so the address is shifted for the last
    // one.
    const int64_t skipped = forth ? last() : 0;
    p.forward_blocks = static_cast<int>(forward);
    p.forward_skipped = static_cast<int>(skipped * each.forward);
    p.summaries = at(ranks.end - skipped * static_cast<int64_t>(ranks.state_bytes) / rows);
    p.transitions = at(ranks.map - skipped * static_cast<int64_t>(ranks.map_bytes) / rows);
    p.grad_ends = at(ranks.grad);
    blocks = forward + back;
  }
  if (blocks == 0) return {};
  return executor.kernels_.summary.launch(blocks, &p, of.call.stream);
}

// Returns how many segments of a local sequence have tokens.
int ShardedKda::used(int64_t local) const {
  const bool packed = executor.problem().packed;
  const int64_t count =
      packed ? plan().cu_seqlens[local + 1] - plan().cu_seqlens[local] : of.plan.shape.tokens;
  const int64_t length = ceil_div(ceil_div(count, kKdaChunk), of.plan.shape.segments) * kKdaChunk;
  return count == 0 ? 0 : static_cast<int>(ceil_div(count, length));
}

Status ShardedKda::launch_compose(KdaComposeParams p) const {
  const auto blocks = [&](const KdaComposeSide& side) -> int64_t {
    if (side.elements == 0) return 0;
    return kda_compose_blocks(segment_shape(rows), side.elements, p.step, p.radix);
  };
  const int64_t forward = blocks(p.forward), back = blocks(p.back);
  p.forward_blocks = static_cast<int>(forward);
  p.sequences = static_cast<int>(rows), p.value_heads = static_cast<int>(of.plan.shape.value_heads);
  p.key_dim = executor.problem().key_dim, p.value_dim = executor.problem().value_dim;
  if (forward + back == 0) return {};
  return executor.kernels_.compose.launch(forward + back, &p, of.call.stream);
}

// Composes the part's map from the maps of the segments of the sequence that is cut.
Status ShardedKda::compose_segments() const {
  if (of.plan.shape.segments == 1) return {};
  const KdaWorkspace& w = of.plan.workspace;
  const int64_t heads = of.plan.shape.value_heads, each = of.plan.shape.segments * heads;
  const auto state = static_cast<int64_t>(ranks.state_bytes) / (rows * heads);
  const auto map = static_cast<int64_t>(ranks.map_bytes) / (rows * heads);
  KdaComposeParams p = {};
  p.radix = static_cast<int>(of.plan.shape.segments), p.step = 1;
  const auto side = [&](int64_t ends, int64_t run, int64_t to, int64_t element_runs, int elements) {
    KdaComposeSide out = {};
    out.ends = at(ends + run * state), out.transitions = at(w.transitions + run * map);
    out.to_ends = at(to), out.to_transitions = at(ranks.map);
    out.sequence_runs = each, out.element_runs = element_runs, out.elements = elements;
    return out;
  };
  if (plan().open && states()) {
    p.forward = side(w.summaries, last() * each, ranks.end, heads, used(last()));
    p.forward.maps = plan().whole();
  }
  if (plan().carried && grads()) {
    const int count = used(0);
    p.back = side(w.grad_ends, (count - 1) * heads, ranks.grad, -heads, count);
    p.back.maps = plan().whole() && !states();
  }
  return launch_compose(p);
}

Status ShardedKda::exchange() const {
  const auto transfer = [&](const KdaMessage& message, bool sends) -> Transfer {
    const bool map = message.kind == KdaMessage::map;
    const size_t bytes = map ? ranks.map_bytes : ranks.state_bytes;
    int64_t place = map ? ranks.map : message.forth ? ranks.end : ranks.grad;
    if (!sends) {
      place = message.forth ? (map ? ranks.end_maps : ranks.ends)
                            : (map ? ranks.grad_maps : ranks.grads);
    }
    return {message.peer, at(place) + static_cast<size_t>(message.slot) * bytes, bytes};
  };
  HopMessages& transfers = shard_state.transfers;
  transfers.clear();
  for (const KdaMessage& message : shard_state.messages.sends) {
    transfers.sends.push_back(transfer(message, true));
  }
  for (const KdaMessage& message : shard_state.messages.receives) {
    transfers.receives.push_back(transfer(message, false));
  }
  return Exchange(*executor.group_, of.call.stream).run(transfers.hop("kda's exchange of states"));
}

// Composes the first sequence's state from the parts before, and the last one's gradient from those
// behind: a tree, in the slots of the messages.
Status ShardedKda::compose_parts() const {
  const int64_t runs = rows * of.plan.shape.value_heads;
  const int forth = states() ? before() : 0, back = grads() ? after() : 0;
  KdaComposeParams p = {};
  p.radix = kKdaComposeRadix;
  p.forward.ends = p.forward.to_ends = at(ranks.ends);
  p.forward.transitions = p.forward.to_transitions = at(ranks.end_maps);
  p.forward.element_runs = runs;
  const auto farthest = static_cast<size_t>(std::max(back - 1, 0));
  p.back.ends = p.back.to_ends = at(ranks.grads) + farthest * ranks.state_bytes;
  p.back.transitions = p.back.to_transitions = at(ranks.grad_maps) + farthest * ranks.map_bytes;
  p.back.element_runs = -runs;
  p.forward.sequence_runs = p.back.sequence_runs = of.plan.shape.value_heads;
  for (p.step = 1; p.step < std::max(forth, back); p.step *= p.radix) {
    p.forward.elements = p.step < forth ? forth : 0;
    p.back.elements = p.step < back ? back : 0;
    LATHE_TRY(launch_compose(p));
  }
  return {};
}

Status KdaExecutor::run_sharded(const Call& call, const KdaPlan& asked) const {
  const KdaRankWorkspace& ranks = *asked.ranks;
  const KdaShardState& shard_state = state_of(call);
  const KdaStatesPlan& plan = shard_state.plan;
  const int64_t rows = problem().packed ? 1 : call.extents[Dim::N];
  KdaCall of = {call, asked, {true, plan.first, shard_state.table.data()}};
  const size_t farthest = plan.after.empty() ? 0 : plan.after.size() - 1;
  KdaCarry& carry = of.part.carry;
  carry.states = call.workspace + ranks.ends;
  carry.grads = call.workspace + ranks.grads + farthest * ranks.state_bytes;
  carry.carried = static_cast<int>(plan.carried ? rows : 0);
  carry.open = static_cast<int>(asked.shape.sequences - (plan.open ? rows : 0));
  const ShardedKda sharded = {*this, shard_state, of, rows};
  if (rows > 0 && asked.shape.value_heads > 0) {
    LATHE_TRY(sharded.summarize());
    LATHE_TRY(sharded.compose_segments());
    LATHE_TRY(sharded.exchange());
    LATHE_TRY(sharded.compose_parts());
  }
  LATHE_TRY(run_walks(of));
  return reduce_gradients(call);
}

Status KdaExecutor::reduce_gradients(const Call& call) const {
  if (!reduce_) return {};
  const auto heads = static_cast<size_t>(call.extents[Dim::HV]);
  const auto keys = static_cast<size_t>(problem().key_dim);
  if (problem().dA_log) {
    LATHE_TRY(all_reduce_f32(*group_, call.tensors[kda::dA_log].data, heads, call.stream));
  }
  if (!problem().ddt_bias) return {};
  return all_reduce_f32(*group_, call.tensors[kda::ddt_bias].data, heads * keys, call.stream);
}

}  // namespace lathe
