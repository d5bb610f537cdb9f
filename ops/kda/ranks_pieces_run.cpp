// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs kda over the pieces of one rank. The exchange is of summaries alone, so nothing runs beside
// it; with one launch for each level of the walks, most often one:
//
//   stream:   given states | summaries | given states applied |         | walks | step | results
//   exchange:                                                 | one hop |
//
// Over canonical pieces the rank joins its own summaries before the hop.
#include <algorithm>

#include "codegen/base/integers.h"
#include "collective/exchange.h"
#include "ops/kda/ranks_pieces.h"

namespace lathe {

KdaPiecesRun::KdaPiecesRun(const KdaOverPieces& program, const Call& call)
    : RankRun(*program.group, call),
      program_(program),
      problem_(program.walks.problem()),
      state_(static_cast<const KdaPiecesState&>(*call.shard_state)),
      batch_(call.extents[Dim::B]),
      tokens_(call.extents[Dim::T]) {}

constexpr int kRowTensors[] = {kda::q, kda::k,  kda::v,  kda::g,  kda::beta, kda::d_o,
                               kda::o, kda::dq, kda::dk, kda::dv, kda::dg,   kda::dbeta};

Status KdaPiecesRun::check_strides() const {
  if (state_.fixed) LATHE_TRY(check_one_row("q", batch_));
  for (const int tensor : kRowTensors) {
    LATHE_TRY(check_rows_follow(kda::kTensors[tensor].name, call_.tensors[tensor]));
  }
  return {};
}

Status KdaPiecesRun::lay_out() {
  LATHE_TRY(check_strides());
  LATHE_TRY(reserve(*program_.step, step()));
  LATHE_TRY(lay_out_steps());
  const int64_t all = batch_ * pieces(), elements = batch_ * state_.plan.elements;
  const KdaProblem& asked = program_.asked.problem;
  const auto states = [&](bool wanted) { return section({4, wanted, all, state_size()}); };
  const bool cuts = state_.plan.cuts();
  KdaPiecesWorkspace& w = workspace_;
  w.offsets = section({batch_ > 1, PieceOffsets::bytes(batch_, pieces())});
  w.states = states(program_.states());
  w.final_grads = states(program_.grads());
  w.finals = states(asked.final_state);
  w.initial_grads = states(asked.dinitial_state);
  w.ends = section({4, cuts && program_.states(), elements, state_size()});
  w.grad_ends = section({4, cuts && program_.grads(), elements, state_size()});
  w.maps = section({4, cuts, elements, map_size()});
  if (!program_.sums.add) return layout_status();
  w.words = section({exact_sum_bytes(heads() * (problem_.ddt_bias ? problem_.key_dim : 1))});
  return layout_status();
}

// Puts the rows of all rows of the batch, one after another, as one packed row.
void KdaPiecesRun::put_rows(Call* call, int tensor) const {
  const Tensor& given = call_.tensors[tensor];
  if (given.data == nullptr && given.extent[2] == 0) return;  // not declared
  const int64_t rows = batch_ * tokens_, whole = rows * given.stride[1];
  if (tensor == kda::beta || tensor == kda::dbeta) {
    program_.step.put(call, tensor, given.data, {1, rows, given.extent[2]},
                      {whole, given.stride[1], given.stride[2]});
    return;
  }
  program_.step.put(call, tensor, given.data, {1, rows, given.extent[2], given.extent[3]},
                    {whole, given.stride[1], given.stride[2], 1});
}

// Returns the call of the step, whose sequences are the pieces of all rows.
Call KdaPiecesRun::step() const {
  Call out = step_call();
  const RankStep& to = program_.step;
  for (const int tensor : kRowTensors) put_rows(&out, tensor);
  const int64_t k = problem_.key_dim, v = problem_.value_dim, all = batch_ * pieces();
  for (const int tensor : {kda::A_log, kda::dA_log}) {
    to.put(&out, tensor, call_.tensors[tensor].data, {heads()});
  }
  for (const int tensor : {kda::dt_bias, kda::ddt_bias}) {
    to.put(&out, tensor, call_.tensors[tensor].data, {heads() * k});
  }
  const auto states = [&](int tensor, bool wanted, int64_t section) {
    if (wanted) to.put(&out, tensor, at(section), {all, heads(), k, v});
  };
  const KdaProblem& asked = program_.asked.problem;
  states(kda::initial_state, program_.states(), workspace_.states);
  states(kda::dht, program_.grads(), workspace_.final_grads);
  states(kda::final_state, asked.final_state, workspace_.finals);
  states(kda::dinitial_state, asked.dinitial_state, workspace_.initial_grads);
  const Tensor& chunks = call_.tensors[kda::chunk_states];
  if (asked.chunk_states) {
    to.put(&out, kda::chunk_states, chunks.data,
           {1, chunks.extent[0] * chunks.extent[1], heads(), k, v});
  }
  to.put(&out, kda::cu_seqlens, offsets_, {all + 1});
  return out;
}

Status KdaPiecesRun::copy_states(RowCopier* copier, const StateCopy& copy, bool to_pieces) const {
  RowCopier::Side whole, own;
  whole.view = {call_.tensors[copy.tensor].data, state_size(), state_size(),
                state_size() / std::max<int64_t>(heads(), 1)};
  own.view = {at(copy.section), state_size(), pieces() * state_size(), whole.view.head};
  whole.view.width = own.view.width = whole.view.head;
  whole.index = state_.table.data() + copy.sequences;
  own.index = state_.table.data() + copy.pieces;
  return to_pieces ? copier->add(whole, own, copy.count, batch_, heads())
                   : copier->add(own, whole, copy.count, batch_, heads());
}

// Fills in the states and gradients that the caller gives; without them they are 0.
Status KdaPiecesRun::take_given() const {
  const KdaProblem& asked = program_.asked.problem;
  const int64_t bytes = 4 * batch_ * pieces() * state_size();
  RowCopier copier(program_.rows, call_.stream);
  const auto take = [&](const StateCopy& copy, bool given) -> Status {
    // Some of a fixed number of pieces are none, and some begin with what the walks give them.
    if (!given || state_.fixed) LATHE_TRY(clear(group_, at(copy.section), bytes, call_.stream));
    return given ? copy_states(&copier, copy, true) : Status();
  };
  if (program_.states()) {
    LATHE_TRY(take({kda::initial_state, workspace_.states, state_.at.first_pieces,
                    state_.at.first_sequences, std::ssize(state_.plan.first_pieces)},
                   asked.initial_state));
  }
  if (program_.grads()) {
    LATHE_TRY(take({kda::dht, workspace_.final_grads, state_.at.last_pieces,
                    state_.at.last_sequences, std::ssize(state_.plan.last_pieces)},
                   asked.dht));
  }
  return copier.launch();
}

Status KdaPiecesRun::give_results() const {
  const KdaProblem& asked = program_.asked.problem;
  RowCopier copier(program_.rows, call_.stream);
  if (asked.final_state) {
    LATHE_TRY(copy_states(&copier,
                          {kda::final_state, workspace_.finals, state_.at.last_pieces,
                           state_.at.last_sequences, std::ssize(state_.plan.last_pieces)},
                          false));
  }
  if (asked.dinitial_state) {
    LATHE_TRY(copy_states(&copier,
                          {kda::dinitial_state, workspace_.initial_grads, state_.at.first_pieces,
                           state_.at.first_sequences, std::ssize(state_.plan.first_pieces)},
                          false));
  }
  return copier.launch();
}

// Calls `body` for each run of pieces of cut sequences, among the pieces of all rows.
template <typename Body>
Status KdaPiecesRun::each_run(Body body) const {
  const int64_t all = batch_ * pieces();
  for (int64_t first = 0; first < all;) {
    int64_t last = first;
    while (last < all && state_.plan.cut[last % pieces()]) ++last;
    if (last > first) LATHE_TRY(body(first, last));
    first = last + 1;
  }
  return {};
}

// Makes the summaries of pieces [first, last) of all rows' pieces: E, M and D of each, from 0.
Status KdaPiecesRun::summarize(int64_t first, int64_t last, const KdaSummaryParams& common) const {
  const KdaSegmentShape one = {1, heads(), 1, problem_.key_dim, problem_.value_dim};
  const KdaSummaryBlocks each = kda_summary_each(*program_.summary, one);
  KdaSummaryParams p = common;
  const int64_t forward = (last - first) * each.forward, back = (last - first) * each.back;
  p.forward_blocks = static_cast<int>(forward);
  p.forward_skipped = static_cast<int>(first * each.forward);
  p.back_skipped = static_cast<int>(first * each.back);
  return program_.summary->launch(p, forward + back, call_.stream);
}

// Makes the summaries of the pieces of cut sequences, a launch for each run of them.
Status KdaPiecesRun::summarize() const {
  const Call step_call = step();
  LATHE_ASSIGN(const KdaPlan plan, program_.walks.plan(step_call));
  KdaSummaryParams p = program_.walks.summary_params({step_call, plan}, *program_.summary);
  const int64_t all = batch_ * pieces();
  p.summaries = at(workspace_.ends), p.grad_ends = at(workspace_.grad_ends);
  p.transitions = at(workspace_.maps);
  p.in.segments = 1, p.wanted_only = 0;
  p.carried = static_cast<int>(all), p.open = 0;  // each begins, and ends, with what is elsewhere
  return each_run([&](int64_t first, int64_t last) { return summarize(first, last, p); });
}

Transfer KdaPiecesRun::transfer(const PieceMessage& message, bool sends) const {
  const bool map = message.kind == PieceMessage::map;
  const int64_t element_bytes = 4 * (map ? map_size() : state_size());
  const int64_t bytes = element_bytes * message.elements;
  const int64_t section = map                                 ? workspace_.maps
                          : message.kind == PieceMessage::end ? workspace_.ends
                                                              : workspace_.grad_ends;
  // Elements that are no pieces of the rank have the rows of the batch side by side
  // (KdaPiecesSide). Several elements go in one message only where there is one row.
  const bool own = sends && message.element < pieces();
  const int64_t first = own ? message.element : batch_ * message.element;
  const int64_t stride = element_bytes * (own ? pieces() : 1);
  return {message.peer, at(section + first * element_bytes), static_cast<size_t>(bytes), batch_,
          static_cast<size_t>(stride)};
}

Status KdaPiecesRun::exchange() {
  HopMessages& hop = state_.hop;
  hop.clear();
  for (const PieceMessage& each : state_.plan.sends) hop.sends.push_back(transfer(each, true));
  for (const PieceMessage& each : state_.plan.receives) {
    hop.receives.push_back(transfer(each, false));
  }
  return exchange_.run(hop.hop("kda's exchange of states"));
}

// Runs walks of both directions, level by level.
Status KdaPiecesRun::walk(const KdaWalkTable& forward, const KdaWalkTable& back) const {
  const char* const tables = state_.table.data();
  KdaPiecesParams p = {};
  p.maps = at(workspace_.maps);
  p.batch = static_cast<int>(batch_), p.pieces = static_cast<int>(pieces());
  p.value_heads = static_cast<int>(heads());
  p.key_dim = problem_.key_dim, p.value_dim = problem_.value_dim;
  p.forward.ends = at(workspace_.ends), p.forward.states = at(workspace_.states);
  p.back.ends = at(workspace_.grad_ends), p.back.states = at(workspace_.final_grads);
  p.forward.steps = tables + forward.steps, p.back.steps = tables + back.steps;
  const int64_t each =
      bounded_product({batch_, heads(), kda_piece_tiles(problem_.key_dim, problem_.value_dim)});
  for (int level = 0; level < std::max(forward.count(), back.count()); ++level) {
    const int64_t forth = forward.walks_of(level), home = back.walks_of(level);
    if (forth > 0) {
      p.forward.walks = tables + forward.walks + forward.levels[level] * sizeof(KdaPieceWalk);
    }
    if (home > 0) p.back.walks = tables + back.walks + back.levels[level] * sizeof(KdaPieceWalk);
    p.forward_blocks = static_cast<int>(forth * each);
    if (forth + home == 0) continue;
    LATHE_TRY(program_.chains.launch((forth + home) * each, &p, call_.stream));
  }
  return {};
}

Status KdaPiecesRun::operator()() {
  const PieceOffsets offsets = {program_.repeat, state_.table.data() + state_.at.offsets, pieces(),
                                tokens_};
  LATHE_ASSIGN(offsets_, offsets.of_batch(batch_, at(workspace_.offsets), call_.stream));
  const KdaProblem& asked = program_.asked.problem;
  if (batch_ > 0 && heads() > 0) {
    LATHE_TRY(take_given());
    if (state_.plan.cuts()) {
      LATHE_TRY(summarize());
      static const KdaWalkTable kNone;
      LATHE_TRY(walk(asked.initial_state ? state_.at.given_states : kNone,
                     asked.dht ? state_.at.given_grads : kNone));
      LATHE_TRY(walk(state_.at.joined_forward, state_.at.joined_back));
    }
    LATHE_TRY(exchange());
    if (state_.plan.cuts()) LATHE_TRY(walk(state_.at.forward, state_.at.back));
  }
  LATHE_TRY(program_.step->run(step()));
  if (batch_ > 0 && heads() > 0) LATHE_TRY(give_results());
  if (program_.sums.add) return add_gradients();
  return program_.mode.reduces ? reduce_gradients() : Status();
}

// Adds up what the chunks of all pieces have left, of all ranks if they are to be, in no order that
// shows.
Status KdaPiecesRun::add_gradients() const {
  LATHE_ASSIGN(const KdaPlan plan, program_.walks.plan(step()));
  const auto add = [&](int tensor, int64_t section, int64_t columns) {
    ExactSum sum;
    sum.terms = steps_workspace() + section;
    // Without tokens no chunk leaves anything.
    sum.rows = plan.launch.backward > 0 ? kda_slots(problem_, plan.shape) : 0;
    sum.row_stride = sum.columns = columns;
    sum.words = at(workspace_.words), sum.out = call_.tensors[tensor].data;
    return make_exact_sums(program_.sums, sum, program_.mode.reduces ? &group_ : nullptr,
                           call_.stream);
  };
  if (problem_.dA_log) LATHE_TRY(add(kda::dA_log, plan.workspace.rate_sums, heads()));
  if (!problem_.ddt_bias) return {};
  return add(kda::ddt_bias, plan.workspace.bias_sums, heads() * problem_.key_dim);
}

Status KdaPiecesRun::reduce_gradients() const {
  const auto sum = [&](int tensor, int64_t count) {
    return all_reduce_f32(group_, call_.tensors[tensor].data, static_cast<size_t>(count),
                          call_.stream);
  };
  if (problem_.dA_log) LATHE_TRY(sum(kda::dA_log, heads()));
  return problem_.ddt_bias ? sum(kda::ddt_bias, heads() * problem_.key_dim) : Status();
}

Result<Estimate> KdaPiecesRun::estimate() const {
  LATHE_ASSIGN(Estimate out, program_.step->estimate(step()));
  if (batch_ == 0 || heads() == 0) return out;
  const PieceStatesPlan& plan = state_.plan;
  const KdaProblem& asked = program_.asked.problem;
  const auto count = [&out](bool launch) { out.launches += launch ? 1 : 0; };
  const bool given = asked.initial_state && !plan.given_states.walks.empty();
  const bool given_back = asked.dht && !plan.given_grads.walks.empty();
  const bool first = !plan.first_pieces.empty(), last = !plan.last_pieces.empty();
  count(batch_ > 1);
  count((program_.states() && asked.initial_state && first) || (asked.dht && last));
  count((asked.final_state && last) || (asked.dinitial_state && first));
  count(given || given_back);
  LATHE_TRY(each_run([&](int64_t, int64_t) { return count(true), Status(); }));
  for (const auto& [forward, back] : {std::pair(&state_.at.joined_forward, &state_.at.joined_back),
                                      {&state_.at.forward, &state_.at.back}}) {
    out.launches += static_cast<uint64_t>(std::max({forward->count(), back->count(), 0}));
  }
  if (program_.sums.add)
    out.launches += 2 * ((problem_.dA_log ? 1 : 0) + (problem_.ddt_bias ? 1 : 0));
  int64_t cut = 0, links = 0;  // tokens of cut sequences, and links of walks
  for (const SequencePiece& piece : plan.pieces) {
    if (plan.cut[piece.number]) cut += piece.tokens;
  }
  for (const PieceWalks* walks :
       {&plan.joined_forward, &plan.joined_back, &plan.forward, &plan.back}) {
    links += std::ssize(walks->steps) - std::ssize(walks->walks);
  }
  KdaPartWalks extra;
  extra.forth = extra.back = batch_ * cut;
  extra.states = program_.states(), extra.maps = true, extra.links = links;
  if (!program_.grads()) extra.back = 0;
  const KdaSegmentShape one = {batch_, heads(), 1, problem_.key_dim, problem_.value_dim};
  if (cut > 0) out.add({0, kda_part_cost(problem_, *program_.summary, one, extra)});
  return out;
}

}  // namespace lathe
