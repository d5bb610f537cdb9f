// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the program of causal_conv1d over pieces: its kernels, checks and the state of a
// shard.
#include "ops/conv/ranks_pieces.h"

#include "ops/row_kernels.h"

namespace lathe {
namespace {

// Lays the tables out, the same way for all layouts of a capacity.
TableImage image_of(const HistoryTables& tables, ConvPiecesState::Places* places) {
  static_assert(sizeof(LineSum) == sizeof(ConvLineSum) && sizeof(LineRef) == sizeof(ConvLineRef));
  static_assert(LineRef::none == kNoConvLine);
  TableImage out;
  places->offsets = out.add(tables.offsets);
  for (const auto& [lists, place] : {std::pair(&tables.packed, &places->packed),
                                     {&tables.joined, &places->joined},
                                     {&tables.final_grads, &places->final_grads},
                                     {&tables.finals, &places->finals},
                                     {&tables.returned, &places->returned},
                                     {&tables.tokens, &places->tokens},
                                     {&tables.states, &places->states}}) {
    place->sums = out.add(lists->lines), place->sources = out.add(lists->sources);
    place->lines = static_cast<int>(lists->lines.size());
  }
  return out;
}

}  // namespace

MadeShardState ConvPiecesState::make(const Device& device, const lathe_shard& shard,
                                     const HistoryWants& wants) {
  const Layout& layout = shard.layout;
  LATHE_ASSIGN(HistoryTables tables, history_tables(layout, shard.rank, wants));
  auto out = std::make_unique<ConvPiecesState>();
  out->wants = wants, out->rank = shard.rank;
  out->pieces = tables.pieces, out->fixed = bool(layout.capacity);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  const TableImage image = image_of(tables, &out->at);
  LATHE_ASSIGN(out->table, DeviceTable::upload(device, image.bytes()));
  out->history = std::move(tables.history), out->gradients = std::move(tables.gradients);
  out->hop.reserve(layout.world());
  return std::unique_ptr<const ShardState>(std::move(out));
}

Result<TableImage> ConvPiecesState::image(const Layout& layout) const {
  LATHE_ASSIGN(const HistoryTables tables, history_tables(layout, rank, wants));
  Places same;
  return image_of(tables, &same);
}

ConvOverPieces::ConvOverPieces(const ConvProblem& its_asked, const ConvExecutor& its_own,
                               RankStep its_step, Group* its_group, ConvPiecesMode its_mode)
    : asked(its_asked),
      own(its_own),
      step(std::move(its_step)),
      group(its_group),
      mode(its_mode),
      lines(conv_lines_spec(asked.x)),
      repeat(repeat_offsets_spec()) {
  list(*step);
  if (mode.canonical && asked.weight_grad) sums = ExactSumKernels::make();
  list({&lines, &repeat, &sums.add, &sums.round});
}

Status ConvOverPieces::check(const Call& call) const {
  LATHE_ASSIGN(const ConvPiecesState* state, shard_state_of<ConvPiecesState>(call));
  return check_shard_sequences(call, asked.packed, state->sequences, "cu_seqlens");
}

HistoryWants ConvOverPieces::wants() const {
  return {.width = asked.width,
          .backward = asked.backward,
          .initial_state = asked.initial_state,
          .final_state = asked.final_state,
          .dinitial_state = asked.dinitial_state,
          .dfinal_state = asked.dfinal_state,
          .canonical = mode.canonical};
}

MadeShardState ConvOverPieces::prepare(const lathe_shard& shard) const {
  LATHE_TRY(check_shard_form(shard.layout, asked.packed, "cu_seqlens"));
  return ConvPiecesState::make(group->device(), shard, wants());
}

Status ConvOverPieces::check_capacity() const { return check_pieces_capacity(mode.canonical); }

}  // namespace lathe
