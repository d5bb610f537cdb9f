// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Puts histories together, runs the pieces and returns gradients. A hop carries at most W - 1 lines
// of channels for a piece:
//
//   stream:   lines packed |       | joined | step: y, dx, dweight | lines packed |       | added
//   exchange:              | a hop |                                              | a hop |
#include <array>

#include "codegen/base/integers.h"
#include "ops/conv/ranks_pieces.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

// Holds offsets of the workspace's sections. A section that a call does not use has no bytes.
struct ConvPiecesWorkspace {
  int64_t offsets = 0;              // int32 [B * pieces + 1]
  int64_t sent = 0, received = 0;   // [lines, B, D]
  int64_t states = 0, finals = 0;   // [B * pieces, D, W]
  int64_t final_grads = 0;          // the same
  int64_t state_grads = 0;          // float32, the same
  int64_t returned = 0, taken = 0;  // float32 [lines, B, D]: gradients that leave, and arrive
  int64_t words = 0, sums = 0;      // exact sums of W + 1 rows of D, and float32 [W + 1, D]
};

using Buffers = std::array<ConvLineBuffer, kConvLineBuffers>;

class ConvPiecesRun final : public RankRun {
 public:
  ConvPiecesRun(const ConvOverPieces& program, const Call& call)
      : RankRun(*program.group, call),
        program_(program),
        asked_(program.asked),
        state_(static_cast<const ConvPiecesState&>(*call.shard_state)),
        batch_(call.extents[Dim::B]),
        tokens_(call.extents[Dim::T]),
        channels_(call.extents[Dim::D]) {}
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  int64_t all_pieces() const { return batch_ * state_.pieces; }
  Status check_strides() const;
  Call step() const;

  ConvLineBuffer rows(const Tensor& tensor) const;
  ConvLineBuffer messages(int64_t section, bool wide) const;
  ConvLineBuffer states(const Tensor& tensor) const;
  ConvLineBuffer pieces(int64_t section, bool wide) const;
  Status make(const ConvLineTable& table, const Buffers& from, const Buffers& to,
              bool adds = false) const;
  Status exchange(const PieceHistory& history, bool back);
  Status join();
  Status take_results();
  Status return_gradients();
  Status add_weight_grad() const;

  const ConvOverPieces& program_;
  const ConvProblem& asked_;
  const ConvPiecesState& state_;
  const int64_t batch_, tokens_, channels_;
  const void* offsets_ = nullptr;
  ConvPiecesWorkspace workspace_;
};

Status ConvPiecesRun::lay_out() {
  LATHE_TRY(check_strides());
  LATHE_TRY(reserve(*program_.step, step()));
  LATHE_TRY(lay_out_steps());
  const int64_t element = bytes_of(asked_.x), width = asked_.width;
  const auto lines = [&](int64_t count, int64_t bytes) {
    return section({count, batch_, channels_, bytes});
  };
  const auto slots = [&](bool wanted, int64_t bytes) {
    return section({wanted, all_pieces(), channels_, width, bytes});
  };
  ConvPiecesWorkspace& w = workspace_;
  w.offsets = section({batch_ > 1, PieceOffsets::bytes(batch_, state_.pieces)});
  w.sent = lines(std::ssize(state_.history.sent), element);
  w.received = lines(state_.history.received(), element);
  w.states = slots(true, element);
  w.finals = slots(asked_.final_state, element);
  w.final_grads = slots(asked_.dfinal_state, element);
  w.state_grads = slots(program_.returns(), 4);
  w.returned = lines(state_.gradients.received(), 4);
  w.taken = lines(std::ssize(state_.gradients.sent), 4);
  if (!program_.sums.add) return layout_status();
  w.words = section({exact_sum_bytes((width + 1) * channels_)});
  w.sums = section({width + 1, channels_, 4});
  return layout_status();
}

Status ConvPiecesRun::check_strides() const {
  if (state_.fixed) LATHE_TRY(check_one_row("x", batch_));
  for (const int tensor : {conv::x, conv::residual, conv::y, conv::dy, conv::dx}) {
    LATHE_TRY(check_rows_follow(conv::kTensors[tensor].name, call_.tensors[tensor]));
  }
  return {};
}

// Returns the call of the step, whose sequences are the pieces of all rows.
Call ConvPiecesRun::step() const {
  Call out = step_call();
  const RankStep& to = program_.step;
  for (const int tensor : {conv::x, conv::residual, conv::y, conv::dy, conv::dx}) {
    const Tensor& given = call_.tensors[tensor];
    if (given.data == nullptr && given.extent[2] != channels_) continue;  // not declared
    to.put(&out, tensor, given.data, {1, batch_ * tokens_, channels_},
           {batch_ * tokens_ * given.stride[1], given.stride[1], 1});
  }
  const int64_t width = asked_.width;
  for (const int tensor : {conv::weight, conv::dweight}) {
    to.put(&out, tensor, call_.tensors[tensor].data, {channels_, width});
  }
  for (const int tensor : {conv::bias, conv::dbias}) {
    to.put(&out, tensor, call_.tensors[tensor].data, {channels_});
  }
  const auto slots = [&](int tensor, bool wanted, int64_t section) {
    if (wanted) to.put(&out, tensor, at(section), {all_pieces(), channels_, width});
  };
  slots(conv::initial_state, true, workspace_.states);
  slots(conv::final_state, asked_.final_state, workspace_.finals);
  slots(conv::dfinal_state, asked_.dfinal_state, workspace_.final_grads);
  slots(conv::dinitial_state, program_.returns(), workspace_.state_grads);
  to.put(&out, conv::cu_seqlens, offsets_, {all_pieces() + 1});
  return out;
}

ConvLineBuffer ConvPiecesRun::rows(const Tensor& tensor) const {
  return {tensor.data, tensor.stride[0], tensor.stride[1], 1, 0};
}
ConvLineBuffer ConvPiecesRun::messages(int64_t section, bool wide) const {
  return {at(section), channels_, batch_ * channels_, 1, wide};
}
ConvLineBuffer ConvPiecesRun::states(const Tensor& tensor) const {
  const int64_t state = channels_ * asked_.width;
  return {tensor.data, state, state, asked_.width, 0};
}
ConvLineBuffer ConvPiecesRun::pieces(int64_t section, bool wide) const {
  const int64_t state = channels_ * asked_.width;
  return {at(section), state_.pieces * state, state, asked_.width, wide};
}

// Makes lines in one launch. Buffers are by LineRef::Kind.
Status ConvPiecesRun::make(const ConvLineTable& table, const Buffers& from, const Buffers& to,
                           bool adds) const {
  if (table.lines == 0 || batch_ == 0 || channels_ == 0) return {};
  ConvLinesParams p = {};
  p.sums = state_.table.data() + table.sums, p.sources = state_.table.data() + table.sources;
  std::ranges::copy(from, p.from), std::ranges::copy(to, p.to);
  p.batch = static_cast<int>(batch_), p.channels = static_cast<int>(channels_);
  p.lines = table.lines, p.adds = adds;
  const int64_t tiles = ceil_div(channels_, program_.lines->threads);
  LATHE_ASSIGN(const int64_t blocks, checked_product("lines", {batch_, table.lines, tiles}));
  if (blocks > kMaxExtent) {
    return unsupported(text("x needs ", blocks, " blocks for the histories of its pieces; allowed ",
                            "are ", kMaxExtent, ": split the batch"));
  }
  return program_.lines.launch(blocks, &p, call_.stream);
}

// Sends lines, or back their gradients the other way.
Status ConvPiecesRun::exchange(const PieceHistory& history, bool back) {
  const int64_t line = batch_ * channels_ * (back ? 4 : bytes_of(asked_.x));
  HopMessages& hop = state_.hop;
  hop.clear();
  const auto add = [&](const std::vector<LineMessage>& from, int64_t section,
                       std::vector<Transfer>* to) {
    for (const LineMessage& each : from) {
      to->push_back(
          {each.peer, at(section + each.first * line), static_cast<size_t>(each.lines * line)});
    }
  };
  add(back ? history.receives : history.sends, back ? workspace_.returned : workspace_.sent,
      &hop.sends);
  add(back ? history.sends : history.receives, back ? workspace_.taken : workspace_.received,
      &hop.receives);
  return exchange_.run(hop.hop(back ? "gradients of the history" : "the history"));
}

Status ConvPiecesRun::join() {
  const auto& t = call_.tensors;
  Buffers from = {}, to = {};
  from[LineRef::token] = rows(t[conv::x]);
  from[LineRef::state] = states(t[conv::initial_state]);
  to[LineRef::message] = messages(workspace_.sent, false);
  LATHE_TRY(make(state_.at.packed, from, to));
  LATHE_TRY(exchange(state_.history, false));
  from[LineRef::message] = messages(workspace_.received, false);
  to[LineRef::piece] = pieces(workspace_.states, false);
  LATHE_TRY(make(state_.at.joined, from, to));
  if (!asked_.dfinal_state) return {};
  from[LineRef::state] = states(t[conv::dfinal_state]);
  to[LineRef::piece] = pieces(workspace_.final_grads, false);
  return make(state_.at.final_grads, from, to);
}

Status ConvPiecesRun::take_results() {
  if (!asked_.final_state) return {};
  Buffers from = {}, to = {};
  from[LineRef::piece] = pieces(workspace_.finals, false);
  to[LineRef::state] = states(call_.tensors[conv::final_state]);
  return make(state_.at.finals, from, to);
}

Status ConvPiecesRun::return_gradients() {
  if (!program_.returns()) return {};
  Buffers from = {}, to = {};
  from[LineRef::piece] = pieces(workspace_.state_grads, true);
  to[LineRef::message] = messages(workspace_.returned, true);
  LATHE_TRY(make(state_.at.returned, from, to));
  LATHE_TRY(exchange(state_.gradients, true));
  from[LineRef::message] = messages(workspace_.taken, true);
  if (asked_.backward) {
    to[LineRef::token] = rows(call_.tensors[conv::dx]);
    LATHE_TRY(make(state_.at.tokens, from, to, true));
  }
  if (!asked_.dinitial_state) return {};
  to[LineRef::state] = states(call_.tensors[conv::dinitial_state]);
  return make(state_.at.states, from, to);
}

Status ConvPiecesRun::operator()() {
  const PieceOffsets offsets = {program_.repeat, state_.table.data() + state_.at.offsets,
                                state_.pieces, tokens_};
  LATHE_ASSIGN(offsets_, offsets.of_batch(batch_, at(workspace_.offsets), call_.stream));
  LATHE_TRY(join());
  LATHE_TRY(program_.step->run(step()));
  if (program_.sums.add) LATHE_TRY(add_weight_grad());
  LATHE_TRY(take_results());
  return return_gradients();
}

// Adds up the sums of all pieces, of all ranks if they are to be, in no order that shows.
Status ConvPiecesRun::add_weight_grad() const {
  const Call call = step();
  LATHE_ASSIGN(const ConvPlan plan, program_.own.plan(call));
  ExactSum sum;
  sum.terms = steps_workspace() + plan.workspace.partials;
  sum.rows = all_pieces(), sum.row_stride = (asked_.width + 1) * channels_;
  sum.columns = (asked_.width + (asked_.bias ? 1 : 0)) * channels_;
  sum.words = at(workspace_.words), sum.out = at(workspace_.sums);
  LATHE_TRY(
      make_exact_sums(program_.sums, sum, program_.mode.reduces ? &group_ : nullptr, call_.stream));
  return program_.own.give_weight_grad(call, plan, at(workspace_.sums));
}

Result<Estimate> ConvPiecesRun::estimate() const {
  LATHE_ASSIGN(Estimate out, program_.step->estimate(step()));
  if (batch_ == 0 || channels_ == 0) return out;
  const ConvPiecesState::Places& s = state_.at;
  for (const ConvLineTable* table :
       {&s.packed, &s.joined, &s.final_grads, &s.finals, &s.returned, &s.tokens, &s.states}) {
    if (table->lines > 0) ++out.launches;
  }
  if (batch_ > 1) ++out.launches;
  if (program_.sums.add) out.launches += 3;
  return out;
}

MadeExecutor make_program(const ConvProblem& asked, const DeviceFacts& facts, Group* group,
                          const ConvPiecesMode& mode) {
  ConvProblem pieces = asked;
  pieces.halo = false;
  pieces.packed = true, pieces.cu_seqlens = Dtype::i32;
  pieces.initial_state = true;
  pieces.dinitial_state = pieces.wide_state_grads = asked.backward || asked.dinitial_state;
  pieces.by_pieces = mode.canonical && asked.weight_grad;
  const bool reduce = mode.reduces && !mode.canonical;
  LATHE_ASSIGN(ConvKernels kernels, conv_kernels(pieces, facts, reduce));
  auto executor = std::make_unique<ConvExecutor>(pieces, std::move(kernels),
                                                 reduce ? group : nullptr, facts.multiprocessors);
  const ConvExecutor& own = *executor;
  LATHE_ASSIGN(RankStep step,
               RankStep::make("causal_conv1d", std::unique_ptr<Executor>(std::move(executor))));
  return executor_of<RankExecutor<ConvOverPieces, ConvPiecesRun>>(asked, own, std::move(step),
                                                                  group, mode);
}

}  // namespace

MadeExecutor make_conv_over_pieces(const ConvProblem& asked, const DeviceFacts& facts, Group* group,
                                   bool reduce) {
  return make_program(asked, facts, group, {.reduces = reduce});
}

// A measured tile would change how a piece's sums are made.
MadeExecutor make_conv_rank_invariant(const ConvProblem& asked, const DeviceFacts& facts,
                                      Group* group, bool reduce) {
  return make_program(asked, without_choices(facts), group, {.reduces = reduce, .canonical = true});
}

}  // namespace lathe
