// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the program of sparse_flash_attention on one rank of several: kernels, checks of a
// call, the state of a shard.
#include "ops/sparse/ranks.h"

#include <cstring>

#include "codegen/base/invalid.h"
#include "collective/plans/pieces.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

constexpr int kKeyAlignment = 16;  // of addresses, strides and rows, as the request has it

}  // namespace

SparseOverRanks::SparseOverRanks(std::unique_ptr<SparseExecutor> its_own,
                                 const SparseGroup& its_ranks)
    : own(std::move(its_own)),
      ranks(its_ranks),
      pack(copy_rows_spec(RowIndex::none, kKeyAlignment)) {
  const Dtype type = problem().element;
  if (joins()) join = sparse_join_spec(type, ranks.narrow ? type : Dtype::f32, problem().exact);
  if (wanted().dsinks && problem().exact) sums = ExactSumKernels::make();
  list(*own);
  list({&pack, &join, &sums.add, &sums.round});
}

MadeShardState SparseOverRanks::prepare(const lathe_shard& shard) const {
  LATHE_ASSIGN(auto made, SparseShardState::make(own->request(), shard, ranks.group->device()));
  return std::unique_ptr<const ShardState>(std::move(made));
}

Status SparseOverRanks::check(const Call& call) const {
  LATHE_ASSIGN(const SparseShardState* state, shard_state_of<SparseShardState>(call));
  LATHE_TRY(check_shard_sequences(call, problem().packed, state->sequences, "cu_seqlens_q"));
  // Threads of pack and join, each with 8 columns.
  const int64_t batch = own->request().tokens ? 1 : call.extents[Dim::B];
  int64_t rows = 0;
  LATHE_ASSIGN(rows, checked_product("k", {batch, state->gather.own_keys, call.extents[Dim::HK]}));
  const int64_t columns = int64_t{problem().head_dim} + problem().rope_dim + problem().value_dim;
  LATHE_ASSIGN(const int64_t blocks, checked_product("k", {rows, columns}));
  const int64_t threads = join ? join->threads : 1;
  if (rows <= kMaxExtent && blocks / 8 / threads < kMaxExtent - 4) return {};
  return unsupported(text("k has ", rows, " rows of all heads on this rank, of ", columns,
                          " columns with values; allowed are ", kMaxExtent, " rows and blocks"));
}

Result<Estimate> SparseRankRun::estimate() const {
  LATHE_ASSIGN(Estimate out, program_.own->estimate_plan(inner_, plan_));
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    out.launches += packs(i);
    // Gathered keys are written before they are read.
    out.cost.bytes += batch_ * gather_.keys * kv_heads_ * program_.width(i) * program_.element();
  }
  estimate_exchange(&out);
  if (program_.sums.add && heads_ > 0) out.launches += 2;
  if (!program_.joins()) return out;
  const SparseBackwardLaunch& backward = plan_.backward;
  const bool finish =
      program_.ranks.narrow ? backward.finish_blocks() > 0 : backward.dsinks_blocks > 0;
  const bool own = batch_ * gather_.own_keys * kv_heads_ > 0;
  out.launches += (own && program_.wants_keys()) || program_.sums_sinks();
  out.launches += finish, out.launches -= backward.finish_blocks() > 0;
  return out;
}

void SparseRankRun::estimate_exchange(Estimate* out) const {
  const int64_t sent = batch_ * gather_.sent(), received = batch_ * gather_.received();
  int64_t keys = 0, gradients = 0;  // bytes of a token
  for (int i = 0; i < kSparseKeyTensors; ++i) {
    keys += kv_heads_ * program_.width(i) * program_.element();
    gradients += kv_heads_ * program_.returned_width(i) * program_.returned_bytes();
  }
  const int64_t sinks = program_.sums_sinks() ? (group_.world() - 1) * heads_ * 4 : 0;
  out->exchanges += sent + received > 0;
  out->exchanges += (gradients > 0 && sent + received > 0) || sinks > 0;
  out->exchange_bytes += static_cast<uint64_t>(keys * sent + gradients * received + sinks);
}

MadeExecutor make_sparse_over_ranks(std::unique_ptr<SparseExecutor> own, const SparseGroup& ranks) {
  return executor_of<RankExecutor<SparseOverRanks, SparseRankRun>>(std::move(own), ranks);
}

Result<SparseGroup> sparse_group(const lathe_problem& problem) {
  SparseGroup out;
  if (!problem.group) return out;
  for (const auto& [flag, name] : {std::pair(kDispatch, "LATHE_DISPATCH"),
                                   std::pair(kExchangeHeads, "LATHE_EXCHANGE_HEADS")}) {
    if (!(problem.group_flags & flag)) continue;
    return unsupported(
        text("group flags have ", name,
             ", but sparse_flash_attention gathers keys on every rank; allowed are "
             "LATHE_ALLGATHER, which changes nothing, LATHE_REDUCE_PARAMETER_GRADS and "
             "LATHE_NARROW_GRADIENTS"));
  }
  out.group = problem.group->group.get();
  out.reduce_sinks = problem.group_flags & kReduceParameterGrads;
  out.narrow = problem.group_flags & kNarrowGradients;
  return out;
}

// A shard becomes the tables that sparse attention reads on it: runs of rows, positions, and where
// the parts of key gradients lie.
namespace {

constexpr int64_t kMostKeys = int64_t{1} << 30;  // positions are added in 32 bits

// Holds arrays one behind the other, as they will lie on the device.
class Image {
 public:
  template <typename T>
  size_t add(const std::vector<T>& values) {
    const size_t at = bytes_.size(), bytes = values.size() * sizeof(T);
    bytes_.resize((at + bytes + 15) / 16 * 16);
    if (bytes > 0) std::memcpy(bytes_.data() + at, values.data(), bytes);
    return at;
  }
  size_t add_offsets(const std::vector<int64_t>& values, Dtype dtype) {
    if (dtype == Dtype::i64) return add(values);
    return add(std::vector<int32_t>(values.begin(), values.end()));
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

Status check_layout(const SparseRequest& request, const Layout& layout) {
  LATHE_TRY(check_shard_form(layout, request.problem.packed, "cu_seqlens_q"));
  if (request.rank_invariant) {
    LATHE_TRY(check_canonical(layout.queries, layout.cu_seqlens, "queries"));
    LATHE_TRY(check_canonical(layout.keys, layout.cu_seqlens_k, "keys"));
  }
  if (layout.key_length <= kMostKeys) return {};
  return unsupported(text("the shard has key_length ", layout.key_length,
                          "; sparse_flash_attention allows 0 to ", kMostKeys));
}

struct RunTables {
  std::vector<int64_t> rows = {0}, starts, ends, origins;
  explicit RunTables(const std::vector<KeyRun>& runs) {
    for (const KeyRun& run : runs) {
      rows.push_back(run.rows_end);
      starts.push_back(run.keys_begin), ends.push_back(run.keys_end);
      origins.push_back(run.origin);
    }
  }
};

}  // namespace

Result<std::unique_ptr<const SparseShardState>> SparseShardState::make(const SparseRequest& request,
                                                                       const lathe_shard& shard,
                                                                       const Device& device) {
  const Layout& layout = shard.layout;
  LATHE_TRY(check_layout(request, layout));
  // Positions of the caller's may be anything: then no key of a sequence can be left out.
  const bool derived = request.causal && !request.positions;
  auto out = std::make_unique<SparseShardState>();
  out->gather = key_gather(layout, shard.rank, derived);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  // Room for the pieces of all tensors, and for dsinks to each rank.
  size_t messages = out->gather.from.size();
  for (const auto* pieces : {&out->gather.from, &out->gather.to}) {
    for (const KeyPieces& each : *pieces) messages += kSparseKeyTensors * each.size();
  }
  out->messages.reserve(messages);
  SparsePlaces& places = out->places;
  places.runs = static_cast<int64_t>(out->gather.runs.size());
  places.whole_keys = layout.key_length;

  Image image;
  const RunTables runs(out->gather.runs);
  const Dtype offsets = request.problem.cu_seqlens;
  const size_t rows_at = image.add_offsets(runs.rows, offsets);
  const size_t starts_at = image.add_offsets(runs.starts, offsets);
  const size_t ends_at = image.add_offsets(runs.ends, offsets);
  const size_t origins_at = image.add_offsets(runs.origins, offsets);
  const size_t positions_at =
      derived ? image.add(row_positions(layout, shard.rank)) : image.bytes().size();
  const bool sums = request.gradients.dk || request.gradients.dv;
  const size_t sources_at = image.bytes().size();
  if (sums) image.add(gradient_sources(out->gather));
  LATHE_ASSIGN(out->table_, DeviceTable::upload(device, image.bytes()));
  const char* const table = out->table_.data();
  places.cu_seqlens_q = table + rows_at;
  places.key_starts = table + starts_at, places.key_ends = table + ends_at;
  places.key_origins = table + origins_at;
  if (derived) places.q_pos = table + positions_at;
  out->sources = table + sources_at;
  return std::unique_ptr<const SparseShardState>(std::move(out));
}

}  // namespace lathe
