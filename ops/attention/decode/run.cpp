// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of flash_attention_decode: parameters, and the launches of append, attention
// and combine in this order.
#include "ops/attention/decode/run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"

namespace lathe {
// These are of the workspace.
template <>
inline constexpr auto kOtherPointers<attention_decode::kTensors, AttentionCombineParams> =
    std::tuple(&AttentionCombineParams::partial_out, &AttentionCombineParams::partial_lse,
               &AttentionCombineParams::combine_list, &AttentionCombineParams::used_slots);

namespace {

// Holds what follows from the shapes of a call.
struct DecodePlan {
  AttentionDecodeShape shape;
  const AttentionDecode* decode = nullptr;
  AttentionDecodeParts parts;

  bool empty() const { return shape.rows() == 0; }
  int64_t total() const { return parts.total; }
};

// All plans of the process share one table, because making a table takes longer than the rest of a
// plan.
std::shared_ptr<const AttentionSplitTable> split_table(int multiprocessors) {
  using Tables = std::map<int, std::shared_ptr<const AttentionSplitTable>>;
  static std::mutex mutex;
  static Tables& tables = *new Tables;  // guarded by mutex; never destroyed: plans may be later
  const std::lock_guard<std::mutex> guard(mutex);
  auto& table = tables[multiprocessors];
  if (!table) table = std::make_shared<const AttentionSplitTable>(multiprocessors);
  return table;
}

class DecodeExecutor final : public PlannedExecutor<DecodeExecutor, DecodePlan> {
 public:
  DecodeExecutor(const DecodeRequest& request, const DeviceFacts& facts,
                 std::vector<std::unique_ptr<AttentionDecode>> decodes)
      : request_(request),
        decodes_(std::move(decodes)),
        splits_(split_table(facts.multiprocessors)),
        shared_bytes_(facts.shared_bytes_per_multiprocessor) {
    if (problem().append) append_ = attention_append_spec(problem());
    if (problem().split) combine_ = attention_combine_spec(problem());
    list({&append_});
    for (const auto& decode : decodes_) list(decode->slots());
    list({&combine_});
  }

  Result<DecodePlan> plan(const Call& call) const {
    const Extents& extents = call.extents;
    DecodePlan out;
    AttentionDecodeShape& shape = out.shape;
    shape.batch = extents[Dim::B], shape.queries = extents[Dim::Sq];
    shape.ragged = problem().ragged;
    if (shape.ragged) {
      shape.packed_tokens = extents[Dim::Tq];
      shape.queries = ceil_div(shape.packed_tokens, std::max<int64_t>(shape.batch, 1));
    }
    shape.heads = extents[Dim::H];
    shape.kv_heads = problem().narrow == kByteRows ? 1 : extents[Dim::HK];
    shape.pages = extents[Dim::P], shape.page = extents[Dim::page];
    shape.table_width = extents[Dim::M];
    LATHE_TRY(check_heads(shape.heads, shape.kv_heads, "k_cache"));
    LATHE_TRY(check_pages(shape.page, shape.table_width));
    const int64_t most = std::min(kMostTokens, kMaxExtent / std::max<int64_t>(shape.batch, 1));
    if (shape.queries > most) {
      return unsupported(text("q has Sq = ", shape.queries, " and B = ", shape.batch,
                              "; allowed are Sq of 0 to ", most));
    }
    LATHE_TRY(check_rotary_rows(extents, shape));
    LATHE_TRY(check_scales(extents, shape));
    LATHE_TRY(checked_product("q", {shape.heads, shape.tokens()}));
    if (out.empty()) return out;
    out.decode = &decode_of(shape);
    LATHE_TRY(check_tiles(out));
    LATHE_ASSIGN(out.parts, out.decode->parts(problem(), shape, *splits_,
                                              side_by_side(out.decode->tiling()), request_.splits));
    if (std::max(out.parts.blocks, out.parts.joined_rows / 4) > kMaxExtent) {
      return too_many_blocks(out);
    }
    return out;
  }

  Status launch(const Call& call, const DecodePlan& launch) const {
    const AttentionDecodeShape& shape = launch.shape;
    // New keys are stored even where there is no query head to read them.
    if (append_ && shape.batch * shape.tokens() * shape.kv_heads > 0) {
      const AttentionAppendParams p = append_params(call, launch);
      LATHE_TRY(append_.launch(attention_append_blocks(shape), &p, call.stream));
    }
    if (launch.empty()) return {};
    LATHE_TRY(launch.decode->launch({request_, shape, launch.parts, call}));
    if (launch.parts.joined_rows == 0) return {};
    const AttentionCombineParams combine = combine_params(call, launch);
    const int64_t rows = launch.parts.joined_rows;
    const int64_t blocks = shape.ragged ? attention_combine_blocks(rows, splits_->multiprocessors())
                                        : attention_combine_blocks(rows);
    return combine_.launch(blocks, &combine, call.stream);
  }

  // Takes every sequence to be as long as its pages allow, because lengths are on the device.
  Result<Estimate> estimate_plan(const Call&, const DecodePlan& launch) const {
    Estimate out;
    if (launch.empty()) return out;
    const AttentionMask mask = {launch.shape.queries, launch.shape.most_keys(),
                                request_.attention.window_left, request_.attention.window_right};
    const AttentionCost cost = attention_decode_cost(problem(), *launch.decode->kernel,
                                                     launch.shape, mask, launch.parts.partial_rows);
    out.launches = launch.decode->launches() + (problem().append ? 1 : 0) +
                   (launch.parts.joined_rows > 0 ? 1 : 0);
    out.cost = {cost.minimum_bytes, cost.bytes, cost.flops, cost.tile_flops};
    return out;
  }

 private:
  const AttentionDecode& decode_of(const AttentionDecodeShape& shape) const {
    for (const auto& decode : decodes_) {
      if (decode->takes(shape)) return *decode;
    }
    return *decodes_.back();
  }

  // Returns the blocks of threads that the device runs at a time. Two on a multiprocessor, as one
  // computes while the other waits; more would only cut keys into smaller parts.
  int64_t side_by_side(const AttentionTiling& kernel) const {
    const bool two = 2 * (kernel.smem_bytes + kReservedShared) <= shared_bytes_;
    return (two ? 2 : 1) * splits_->multiprocessors();
  }

  // Checks what parts are computed of, so that nothing overflows. All blocks of a launch are in x.
  Status check_tiles(const DecodePlan& launch) const {
    const AttentionDecodeShape& shape = launch.shape;
    AttentionDecodeShape one = shape;  // a single sequence
    if (!shape.ragged) one.batch = 1;
    const AttentionTiling& kernel = launch.decode->tiling();
    const int64_t most = shape.ragged ? kMaxExtent : kMaxExtent / shape.batch;
    if (one.kv_heads <= kMaxExtent / attention_decode_tiles(kernel, one) &&
        attention_decode_blocks(kernel, one, 1) <= most && one.rows() / 4 < most) {
      return {};
    }
    return too_many_blocks(launch);
  }
  Status too_many_blocks(const DecodePlan& launch) const {
    const AttentionDecodeShape& shape = launch.shape;
    return unsupported(text("q of ", shape.batch, " sequences, ", shape.queries, " tokens and ",
                            shape.heads, " heads, with keys in ", launch.parts.splits,
                            " parts, needs more than ", kMaxExtent, " blocks; split the batch"));
  }

  // rope_positions has an entry for each sequence or for each row.
  static Status check_rotary_rows(const Extents& extents, const AttentionDecodeShape& shape) {
    const int64_t found = extents[Dim::rows];
    if (found == kUnknown || found == shape.batch) return {};
    if (shape.ragged && found == shape.packed_tokens) return {};
    return invalid(text("rope_positions has ", found, " entries; allowed are B = ", shape.batch,
                        shape.ragged ? text(" and Tq = ", shape.packed_tokens) : std::string()));
  }

  Status check_scales(const Extents& extents, const AttentionDecodeShape& shape) const {
    if (problem().narrow == kByteRows) return check_cache_rows(extents[Dim::bytes]);
    if (problem().narrow == kHeadScales) {
      LATHE_TRY(check_scale("k_scale", extents[Dim::k_scales], "HK", shape.kv_heads));
      LATHE_TRY(check_scale("v_scale", extents[Dim::v_scales], "HK", shape.kv_heads));
    }
    if (problem().narrow == kRowScales && shape.pages > kMaxExtent / shape.page) {
      return unsupported(text("k_cache has P = ", shape.pages, " and page = ", shape.page,
                              "; with scales for each row, P * page is allowed up to ",
                              kMaxExtent));
    }
    return {};
  }

  const AttentionProblem& problem() const { return request_.attention.problem; }

  AttentionAppendParams append_params(const Call& call, const DecodePlan& launch) const {
    const auto& t = call.tensors;
    // Elements of one; codes are made one by one.
    const int64_t words =
        problem().narrow != kWideRows ? 1 : problem().alignment / bytes_of(problem().element);
    const auto fill = [&](const AttentionStrides& strides, long long* first, long long* second,
                          long long* head) {
      *first = strides.batch / words, *second = strides.token / words;
      *head = strides.head / words;
    };
    const bool packed = launch.shape.ragged;
    AttentionAppendParams p = {};
    p.k_new = t[attention_decode::k_new].data;
    p.v_new = t[attention_decode::v_new].data;
    p.k_cache = t[attention_decode::k_cache].data;
    p.v_cache = t[attention_decode::v_cache].data;
    p.cu_seqlens_q = t[attention_decode::cu_seqlens_q].data;
    p.pages = attention_pages(call, launch.shape);
    p.rotary = attention_rotary(call, launch.shape);
    p.scales = attention_scales(call);
    fill(attention_strides(t[attention_decode::k_new], packed), &p.k_batch_stride,
         &p.k_token_stride, &p.k_head_stride);
    fill(attention_strides(t[attention_decode::v_new], packed), &p.v_batch_stride,
         &p.v_token_stride, &p.v_head_stride);
    fill(cache_strides(problem(), t[attention_decode::k_cache]), &p.k_page_stride, &p.k_row_stride,
         &p.k_cache_head_stride);
    fill(cache_strides(problem(), t[attention_decode::v_cache]), &p.v_page_stride, &p.v_row_stride,
         &p.v_cache_head_stride);
    p.seq_q = static_cast<int>(packed ? launch.shape.packed_tokens : launch.shape.queries);
    p.kv_heads = static_cast<int>(launch.shape.kv_heads);
    p.sequences = static_cast<int>(launch.shape.batch), p.words = static_cast<int>(words);
    p.k_words = static_cast<int>(problem().head_dim / words);
    p.v_words = problem().latent ? 0 : static_cast<int>(problem().value_dim / words);
    return p;
  }

  AttentionCombineParams combine_params(const Call& call, const DecodePlan& launch) const {
    AttentionCombineParams p = {};
    fill_tensors<attention_decode::kTensors>(call, launch.shape.ragged, &p);
    p.partial_out = call.workspace;
    p.partial_lse = call.workspace + launch.parts.partial_lse;
    p.rows = launch.shape.rows();
    p.heads = static_cast<int>(launch.shape.heads);
    p.seq_q =
        static_cast<int>(launch.shape.ragged ? launch.shape.packed_tokens : launch.shape.queries);
    p.sequences = static_cast<int>(launch.shape.batch);
    p.value_dim = problem().value_dim;
    p.splits = static_cast<int>(launch.parts.splits);
    p.combine_list = call.workspace + launch.parts.combine_list;
    p.used_slots = call.workspace + launch.parts.used_slots;
    p.kv_heads = static_cast<int>(launch.shape.kv_heads);
    p.tile_rows = static_cast<int>(launch.parts.slot_rows);
    return p;
  }

  DecodeRequest request_;
  KernelSlot append_, combine_;
  std::vector<std::unique_ptr<AttentionDecode>> decodes_;
  std::shared_ptr<const AttentionSplitTable> splits_;
  int64_t shared_bytes_;
};

}  // namespace

MadeExecutor make_attention_decode(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(const DecodeRequest request, decode_request(resolved));
  LATHE_ASSIGN(auto decodes, make_attention_decodes(
                                 {request.attention.problem,
                                  {request.queries, request.attention.ratio, resolved[Dim::page]}},
                                 facts));
  return executor_of<DecodeExecutor>(request, facts, std::move(decodes));
}

}  // namespace lathe
