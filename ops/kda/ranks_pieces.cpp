// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the program of kda over pieces: its kernels, checks and the state of a shard.
#include "ops/kda/ranks_pieces.h"

#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

// Chunks are counted from the starts of sequences: a piece that begins within one would leave
// states that are none of the whole's.
Status check_chunks(const PieceLayout& layout, int64_t chunk) {
  for (const std::vector<SequencePiece>& pieces : layout.ranks) {
    for (const SequencePiece& piece : pieces) {
      if (piece.before % chunk == 0) continue;
      return invalid(text("chunk_states is declared with chunk_size ", chunk,
                          ", and a piece of rank ", piece.rank, " begins ", piece.before,
                          " tokens into sequence ", piece.sequence,
                          "; allowed are multiples of chunk_size (the shard)"));
    }
  }
  return {};
}

// Returns the request of the packed call that has the rank's pieces for its sequences. Every piece
// may begin with a state, and end with a gradient.
KdaRequest request_of_pieces(const KdaRequest& asked) {
  KdaRequest out = asked;
  KdaProblem& pieces = out.problem;
  pieces.ranks = false;
  pieces.packed = true, pieces.cu_seqlens = Dtype::i32;
  // A caller's saved states have no room for the pieces: a backward by itself walks forward again.
  out.saved_outside = pieces.given_saved = false;
  pieces.saves = asked.problem.forward && asked.problem.backward;
  pieces.dht = asked.problem.backward || asked.problem.dinitial_state;
  pieces.initial_state = out.initial_state = asked.problem.forward || pieces.recomputes();
  out.declared.sequences = out.declared.tokens = kUnknown;
  return out;
}

KdaWalkTable add_walks(const PieceWalks& walks, TableImage* to) {
  static_assert(sizeof(PieceWalk) == sizeof(KdaPieceWalk) &&
                sizeof(PieceStep) == sizeof(KdaPieceStep));
  KdaWalkTable out;
  if (!walks.levels.empty()) out.levels = walks.levels;
  out.walks = to->add(walks.walks), out.steps = to->add(walks.steps);
  return out;
}

// Holds what follows from a layout. All layouts of a capacity have their tables in the same places.
struct KdaPiecesTables {
  PieceStatesPlan plan;
  TableImage image;
  KdaPiecesState::Places at;
};

Result<KdaPiecesTables> tables_of(const Layout& layout, int rank,
                                  const KdaPiecesState::Wants& wants) {
  LATHE_ASSIGN(const PieceLayout pieces,
               wants.canonical ? canonical_pieces(layout) : piece_layout(layout));
  if (wants.chunk > 0) LATHE_TRY(check_chunks(pieces, wants.chunk));
  const int most = static_cast<int>(layout.capacity.pieces);
  Result<KdaPiecesTables> out(std::in_place);
  out->plan = wants.canonical ? canonical_states_plan(pieces, rank, wants.states, wants.grads)
              : most > 0      ? fixed_states_plan(pieces, rank, wants.states, wants.grads, most)
                              : piece_states_plan(pieces, rank, wants.states, wants.grads);
  const PieceStatesPlan& plan = out->plan;
  std::vector<int32_t> offsets = pieces.offsets(rank);
  offsets.resize(plan.pieces.size() + 1, offsets.back());
  KdaPiecesState::Places& at = out->at;
  at.offsets = out->image.add(offsets);
  at.first_pieces = out->image.add(plan.first_pieces);
  at.first_sequences = out->image.add(plan.first_sequences);
  at.last_pieces = out->image.add(plan.last_pieces);
  at.last_sequences = out->image.add(plan.last_sequences);
  at.given_states = add_walks(plan.given_states, &out->image);
  at.given_grads = add_walks(plan.given_grads, &out->image);
  at.joined_forward = add_walks(plan.joined_forward, &out->image);
  at.joined_back = add_walks(plan.joined_back, &out->image);
  at.forward = add_walks(plan.forward, &out->image);
  at.back = add_walks(plan.back, &out->image);
  return out;
}

}  // namespace

MadeShardState KdaPiecesState::make(const Device& device, const lathe_shard& shard,
                                    const Wants& wants) {
  LATHE_ASSIGN(KdaPiecesTables tables, tables_of(shard.layout, shard.rank, wants));
  auto out = std::make_unique<KdaPiecesState>();
  LATHE_ASSIGN(out->table, DeviceTable::upload(device, tables.image.bytes()));
  out->wants = wants, out->rank = shard.rank;
  out->plan = std::move(tables.plan), out->at = std::move(tables.at);
  out->sequences = static_cast<int64_t>(shard.layout.cu_seqlens.size()) - 1;
  out->fixed = bool(shard.layout.capacity);
  out->hop.reserve(out->plan.sends.size() + out->plan.receives.size());
  return std::unique_ptr<const ShardState>(std::move(out));
}

Result<TableImage> KdaPiecesState::image(const Layout& layout) const {
  LATHE_ASSIGN(KdaPiecesTables tables, tables_of(layout, rank, wants));
  return std::move(tables.image);
}

KdaOverPieces::KdaOverPieces(const KdaRequest& its_asked, const KdaExecutor& its_walks,
                             RankStep its_step, std::unique_ptr<KdaSummary> its_summary,
                             Group* its_group, KdaPiecesMode its_mode)
    : asked(its_asked),
      walks(its_walks),
      step(std::move(its_step)),
      group(its_group),
      mode(its_mode),
      summary(std::move(its_summary)),
      repeat(repeat_offsets_spec()),
      rows(RowKernels::make()) {
  list(*step);
  if (summary) {
    chains = kda_pieces_spec(walks.problem());
    list({&summary->kernel});
  }
  const KdaProblem& problem = walks.problem();
  if (mode.canonical && (problem.dA_log || problem.ddt_bias)) sums = ExactSumKernels::make();
  list({&chains, &repeat, &rows.wide, &sums.add, &sums.round});
}

Status KdaOverPieces::check(const Call& call) const {
  LATHE_ASSIGN(const KdaPiecesState* state, shard_state_of<KdaPiecesState>(call));
  return check_shard_sequences(call, asked.problem.packed, state->sequences, "cu_seqlens");
}

MadeShardState KdaOverPieces::prepare(const lathe_shard& shard) const {
  LATHE_TRY(check_shard_form(shard.layout, asked.problem.packed, "cu_seqlens"));
  return KdaPiecesState::make(group->device(), shard,
                              {.states = states(),
                               .grads = grads(),
                               .canonical = mode.canonical,
                               .chunk = asked.problem.chunk_states ? asked.chunk_size : 0});
}

Status KdaOverPieces::check_capacity() const {
  if (asked.problem.chunk_states) {
    return unsupported(
        "chunk_states is declared, whose rows follow from the lengths; allowed with "
        "capacity_tokens is a call without it");
  }
  return check_pieces_capacity(mode.canonical);
}

namespace {

MadeExecutor make_program(const KdaRequest& asked, const DeviceFacts& facts, Group* group,
                          const KdaPiecesMode& mode) {
  KdaRequest pieces = request_of_pieces(asked);
  if (mode.canonical) {
    pieces.problem.segmented = pieces.problem.warmup = false;
    pieces.problem.sums_outside = true;
  }
  LATHE_ASSIGN(KdaChunkedKernels kernels, kda_chunked_kernels(pieces.problem, facts));
  std::unique_ptr<KdaSummary> summary;
  if (kernels.forward || kernels.scan) {
    const KdaSummaryParts parts = {pieces.problem.initial_state, pieces.problem.dht};
    LATHE_ASSIGN(summary, kda_summary_of(kernels, pieces.problem, parts, facts));
  }
  auto executor = std::make_unique<KdaExecutor>(pieces, facts, std::move(kernels));
  const KdaExecutor& walks = *executor;
  LATHE_ASSIGN(RankStep step,
               RankStep::make("kda", std::unique_ptr<Executor>(std::move(executor))));
  return executor_of<RankExecutor<KdaOverPieces, KdaPiecesRun>>(asked, walks, std::move(step),
                                                                std::move(summary), group, mode);
}

}  // namespace

MadeExecutor make_kda_over_pieces(const KdaRequest& asked, const DeviceFacts& facts, Group* group,
                                  bool reduces) {
  return make_program(asked, facts, group, {.reduces = reduces});
}

// A measured tile would change how a piece's states are made.
MadeExecutor make_kda_rank_invariant(const KdaRequest& asked, const DeviceFacts& facts,
                                     Group* group, bool reduces) {
  return make_program(asked, without_choices(facts), group,
                      {.reduces = reduces, .canonical = true});
}

}  // namespace lathe
