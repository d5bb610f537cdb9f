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

}  // namespace

Result<KdaWalkTable> KdaWalkTable::make(const Device& device, const PieceWalks& walks) {
  static_assert(sizeof(PieceWalk) == sizeof(KdaPieceWalk) &&
                sizeof(PieceStep) == sizeof(KdaPieceStep));
  KdaWalkTable out;
  out.levels = walks.levels;
  if (out.levels.empty()) out.levels = {0};
  LATHE_ASSIGN(out.walks, DeviceTable::upload(device, walks.walks));
  LATHE_ASSIGN(out.steps, DeviceTable::upload(device, walks.steps));
  return out;
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
  const Layout& layout = shard.layout;
  LATHE_TRY(check_shard_form(layout, asked.problem.packed, "cu_seqlens"));
  LATHE_ASSIGN(const PieceLayout pieces,
               mode.canonical ? canonical_pieces(layout) : piece_layout(layout));
  if (asked.problem.chunk_states) LATHE_TRY(check_chunks(pieces, asked.chunk_size));
  auto out = std::make_unique<KdaPiecesState>();
  out->plan = (mode.canonical ? canonical_states_plan : piece_states_plan)(pieces, shard.rank,
                                                                           states(), grads());
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  const PieceStatesPlan& plan = out->plan;
  out->hop.reserve(plan.sends.size() + plan.receives.size());
  const Device& device = group->device();
  LATHE_ASSIGN(out->offsets, DeviceTable::upload(device, pieces.offsets(shard.rank)));
  LATHE_ASSIGN(out->first_pieces, DeviceTable::upload(device, plan.first_pieces));
  LATHE_ASSIGN(out->first_sequences, DeviceTable::upload(device, plan.first_sequences));
  LATHE_ASSIGN(out->last_pieces, DeviceTable::upload(device, plan.last_pieces));
  LATHE_ASSIGN(out->last_sequences, DeviceTable::upload(device, plan.last_sequences));
  LATHE_ASSIGN(out->given_states, KdaWalkTable::make(device, plan.given_states));
  LATHE_ASSIGN(out->given_grads, KdaWalkTable::make(device, plan.given_grads));
  LATHE_ASSIGN(out->joined_forward, KdaWalkTable::make(device, plan.joined_forward));
  LATHE_ASSIGN(out->joined_back, KdaWalkTable::make(device, plan.joined_back));
  LATHE_ASSIGN(out->forward, KdaWalkTable::make(device, plan.forward));
  LATHE_ASSIGN(out->back, KdaWalkTable::make(device, plan.back));
  return std::unique_ptr<const ShardState>(std::move(out));
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
