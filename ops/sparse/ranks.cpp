// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of sparse_flash_attention on one rank of several: kernels, checks of a call,
// workspace.
#include "ops/sparse/ranks.h"

#include <algorithm>
#include <cstring>

#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

constexpr int kKeyAlignment = 16;  // of addresses, strides and rows, as the request has it

}  // namespace

SparseOverRanks::SparseOverRanks(std::unique_ptr<SparseExecutor> own, const SparseGroup& ranks)
    : own_(std::move(own)), ranks_(ranks), pack_(copy_rows_spec(RowIndex::none, kKeyAlignment)) {
  const Dtype element = problem().element;
  if (joins()) join_ = sparse_join_spec(element, ranks_.narrow ? element : Dtype::f32);
  list(*own_);
  list({&pack_, &join_});
}

MadeShardState SparseOverRanks::prepare(const lathe_shard& shard) const {
  LATHE_ASSIGN(auto made, SparseShardState::make(own_->request(), shard, ranks_.group->device()));
  return std::unique_ptr<const ShardState>(std::move(made));
}

bool SparseOverRanks::is_dense(const Tensor& tensor) const {
  TokenRows rows = rows_of(tensor, own_->request().tokens);
  rows.batch = 1;
  return rows.is_dense();
}

Status SparseOverRanks::check_call(const Call& call, const SparseRankPlan& run) const {
  LATHE_TRY(check_shard_sequences(call, problem().packed, run.state.sequences, "cu_seqlens_q"));
  // Threads of pack and join, each with 8 columns.
  int64_t rows = 0;
  LATHE_ASSIGN(rows, checked_product("k", {run.batch, run.gather().own_keys, run.kv_heads}));
  const int64_t columns = int64_t{problem().head_dim} + problem().rope_dim + problem().value_dim;
  LATHE_ASSIGN(const int64_t blocks, checked_product("k", {rows, columns}));
  if (rows <= kMaxExtent && blocks / 8 / join_threads() < kMaxExtent - 4) return {};
  return unsupported(text("k has ", rows, " rows of all heads on this rank, of ", columns,
                          " columns with values; allowed are ", kMaxExtent, " rows and blocks"));
}

Result<SparseRankPlan> SparseOverRanks::plan(const Call& call) const {
  LATHE_ASSIGN(const SparseShardState* state, shard_state_of<SparseShardState>(call));
  const bool tokens = own_->request().tokens;
  SparseRankPlan run{*state};
  run.batch = tokens ? 1 : call.extents[Dim::B];
  run.kv_heads = call.extents[Dim::HK], run.heads = call.extents[Dim::H];
  LATHE_TRY(check_call(call, run));
  run.call = call;
  run.call.extents[tokens ? Dim::Tk : Dim::Sk] = run.gather().keys;
  LATHE_ASSIGN(run.launch, own_->plan(run.call));
  LATHE_ASSIGN(run.offsets, lay_out(call, run));
  return run;
}

Result<SparseRankOffsets> SparseOverRanks::lay_out(const Call& call,
                                                   const SparseRankPlan& run) const {
  const int64_t keys = run.gather().keys, returned = run.gather().returned.back();
  SparseRankOffsets offsets;
  WorkspaceLayout all, gathered, given;
  for (int i = 0; i < kKeyTensors; ++i) {
    const int64_t columns = has_keys(i) ? width(i) : 0;
    offsets.keys[i] = gathered.add({run.batch, keys, run.kv_heads, columns, element()});
    const bool gaps = columns > 0 && !is_dense(call.tensors[kInputs[i]]);
    offsets.dense[i] = gathered.add(
        {run.batch, gaps ? run.gather().own_keys : 0, run.kv_heads, columns, element()});
    offsets.returned[i] =
        given.add({run.batch, returned, run.kv_heads, returned_width(i), returned_bytes()});
    const int64_t narrow = ranks_.narrow ? returned_width(i) : 0;
    offsets.narrow[i] = all.add({run.batch, keys, run.kv_heads, narrow, element()});
  }
  const int64_t world = sums_sinks() ? ranks_.group->world() : 0;
  offsets.sinks = all.add({world, run.heads, 4});
  offsets.own = all.add({run.launch.total()});
  const int64_t shared = all.add({std::max(gathered.total(), given.total())});
  for (const WorkspaceLayout* layout : {&all, &gathered, &given}) LATHE_TRY(layout->status());
  for (int64_t* at : {offsets.keys, offsets.dense, offsets.returned}) {
    for (int i = 0; i < kKeyTensors; ++i) at[i] += shared;
  }
  offsets.total = all.total();
  return offsets;
}

void SparseOverRanks::estimate_exchange(const SparseRankPlan& run, Estimate* out) const {
  const int64_t sent = run.batch * run.gather().sent();
  const int64_t received = run.batch * run.gather().received();
  int64_t keys = 0, gradients = 0;  // bytes of a token
  for (int i = 0; i < kKeyTensors; ++i) {
    if (has_keys(i)) keys += run.kv_heads * width(i) * element();
    gradients += run.kv_heads * returned_width(i) * returned_bytes();
  }
  const int64_t sinks = sums_sinks() ? (ranks_.group->world() - 1) * run.heads * 4 : 0;
  out->exchanges += sent + received > 0;
  out->exchanges += (gradients > 0 && sent + received > 0) || sinks > 0;
  out->exchange_bytes += static_cast<uint64_t>(keys * sent + gradients * received + sinks);
}

Result<Estimate> SparseOverRanks::estimate_plan(const Call& call, const SparseRankPlan& run) const {
  LATHE_ASSIGN(Estimate out, own_->estimate_plan(run.call, run.launch));
  for (int i = 0; i < kKeyTensors; ++i) {
    out.launches += packs(call, run, i);
    // Gathered keys are written before they are read.
    const int64_t columns = has_keys(i) ? width(i) : 0;
    out.cost.bytes += run.batch * run.gather().keys * run.kv_heads * columns * element();
  }
  estimate_exchange(run, &out);
  if (!joins()) return out;
  const SparseBackwardLaunch& backward = run.launch.backward;
  const bool finish = ranks_.narrow ? backward.finish_blocks() > 0 : backward.dsinks_blocks > 0;
  const bool own = run.batch * run.gather().own_keys * run.kv_heads > 0;
  out.launches += (own && wants_keys()) || sums_sinks();
  out.launches += finish, out.launches -= backward.finish_blocks() > 0;
  return out;
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
