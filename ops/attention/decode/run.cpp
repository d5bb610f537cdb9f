// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of flash_attention_decode: parameters, and the launches of append, attention
// and combine in this order.
#include "ops/attention/run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "codegen/base/invalid.h"
#include "ops/attention/params.h"
#include "ops/attention/sm90/decode.h"

namespace lathe {
namespace {

// Holds what follows from the shapes of a call.
struct DecodePlan {
  AttentionDecodeShape shape;
  const KernelSlot* kernel = nullptr;
  int64_t splits = 1;
  int64_t partial_lse = 0, workspace = 0;  // bytes

  bool empty() const { return shape.rows() == 0; }
  int64_t total() const { return workspace; }
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
  DecodeExecutor(const DecodeRequest& request, const AttentionDecodeKernels& kernels,
                 const DeviceFacts& facts)
      : request_(request), kernels_(kernels), splits_(split_table(facts.multiprocessors)) {
    list({&kernels_.append});
    for (KernelSlot& kernel : kernels_.decode) list({&kernel});
    list({&kernels_.warpgroups, &kernels_.combine});
  }

  Result<DecodePlan> plan(const Call& call) const {
    const Extents& extents = call.extents;
    DecodePlan out;
    AttentionDecodeShape& shape = out.shape;
    shape.batch = extents[Dim::B], shape.queries = extents[Dim::Sq];
    shape.heads = extents[Dim::H], shape.kv_heads = extents[Dim::HK];
    shape.pages = extents[Dim::P], shape.page = extents[Dim::page];
    shape.table_width = extents[Dim::M];
    LATHE_TRY(check_heads(shape.heads, shape.kv_heads, "k_cache"));
    LATHE_TRY(check_pages(shape.page, shape.table_width));
    const int64_t most = std::min(kMostTokens, kMaxExtent / std::max<int64_t>(shape.batch, 1));
    if (shape.queries > most) {
      return unsupported(text("q has Sq = ", shape.queries, " and B = ", shape.batch,
                              "; allowed are Sq of 0 to ", most));
    }
    LATHE_ASSIGN(const int64_t rows,
                 checked_product("q", {shape.batch, shape.heads, shape.queries}));
    if (out.empty()) return out;
    out.kernel = &attention_decode_pick(kernels_, shape);
    out.splits =
        attention_decode_splits(problem(), out.kernel->numbers(), shape, *splits_, request_.splits);
    LATHE_TRY(check_blocks(out));
    if (out.splits == 1) return out;
    LATHE_TRY(checked_product("the workspace", {out.splits, rows, problem().value_dim + 1, 4}));
    out.partial_lse = attention_decode_partial_out_bytes(problem(), shape, out.splits);
    out.workspace =
        static_cast<int64_t>(attention_decode_workspace_bytes(problem(), shape, out.splits));
    return out;
  }

  Status launch(const Call& call, const DecodePlan& launch) const {
    const AttentionDecodeShape& shape = launch.shape;
    // New keys are stored even where there is no query head to read them.
    if (kernels_.append && shape.batch * shape.queries * shape.kv_heads > 0) {
      const AttentionAppendParams p = append_params(call, launch);
      LATHE_TRY(kernels_.append.launch(attention_append_blocks(shape), &p, call.stream));
    }
    if (launch.empty()) return {};
    const AttentionDecodeParams p = decode_params(call, launch);
    const KernelSlot& kernel = *launch.kernel;
    const int64_t blocks = attention_decode_blocks(kernel.numbers(), shape, launch.splits);
    LATHE_TRY(&kernel == &kernels_.warpgroups
                  ? launch_attention_decode_warpgroups(kernel, p, blocks, call.stream)
                  : kernel.launch(blocks, &p, call.stream));
    if (launch.splits == 1) return {};
    const AttentionCombineParams combine = combine_params(call, launch);
    return kernels_.combine.launch(attention_combine_blocks(*kernels_.combine, shape), &combine,
                                   call.stream);
  }

  // Takes every sequence to be as long as its pages allow, because lengths are on the device.
  Result<Estimate> estimate_plan(const Call&, const DecodePlan& launch) const {
    Estimate out;
    if (launch.empty()) return out;
    const AttentionMask mask = {launch.shape.queries, launch.shape.most_keys(),
                                request_.attention.window_left, request_.attention.window_right};
    const AttentionCost cost =
        attention_decode_cost(problem(), **launch.kernel, launch.shape, mask, launch.splits);
    out.launches = 1 + (problem().append ? 1 : 0) + (launch.splits > 1 ? 1 : 0);
    out.cost = {cost.minimum_bytes, cost.bytes, cost.flops, cost.tile_flops};
    return out;
  }

 private:
  // All blocks of a launch are in x.
  Status check_blocks(const DecodePlan& launch) const {
    const AttentionDecodeShape& shape = launch.shape;
    AttentionDecodeShape one = shape;  // a single sequence, so that nothing overflows
    one.batch = 1;
    const KernelNumbers& kernel = launch.kernel->numbers();
    const int64_t most = kMaxExtent / shape.batch;
    if (one.kv_heads <= kMaxExtent / attention_decode_tiles(kernel, one) &&
        attention_decode_blocks(kernel, one, launch.splits) <= most && one.rows() / 4 < most) {
      return {};
    }
    return unsupported(text("q of ", shape.batch, " sequences, ", shape.queries, " tokens and ",
                            shape.heads, " heads, with keys in ", launch.splits,
                            " parts, needs more than ", kMaxExtent, " blocks; split the batch"));
  }

  const AttentionProblem& problem() const { return request_.attention.problem; }

  AttentionPages pages(const Call& call, const AttentionDecodeShape& shape) const {
    const FastDivision division = fast_division(shape.page);
    AttentionPages p = {};
    p.block_table = call.tensors[attention_decode::block_table].data;
    p.cache_seqlens = call.tensors[attention_decode::cache_seqlens].data;
    p.magic = division.magic, p.shift = division.shift;
    p.page = static_cast<int>(shape.page), p.pages = static_cast<int>(shape.pages);
    p.table_width = static_cast<int>(shape.table_width);
    p.most_keys = static_cast<int>(shape.most_keys());
    return p;
  }

  AttentionAppendParams append_params(const Call& call, const DecodePlan& launch) const {
    const auto& t = call.tensors;
    const int64_t words = problem().alignment / bytes_of(problem().element);  // elements of one
    const auto fill = [&](const Tensor& tensor, long long* first, long long* second,
                          long long* head) {
      *first = tensor.stride[0] / words, *second = tensor.stride[1] / words;
      *head = tensor.stride[2] / words;
    };
    AttentionAppendParams p = {};
    p.k_new = t[attention_decode::k_new].data;
    p.v_new = t[attention_decode::v_new].data;
    p.k_cache = t[attention_decode::k_cache].data;
    p.v_cache = t[attention_decode::v_cache].data;
    p.pages = pages(call, launch.shape);
    fill(t[attention_decode::k_new], &p.k_batch_stride, &p.k_token_stride, &p.k_head_stride);
    fill(t[attention_decode::v_new], &p.v_batch_stride, &p.v_token_stride, &p.v_head_stride);
    fill(t[attention_decode::k_cache], &p.k_page_stride, &p.k_row_stride, &p.k_cache_head_stride);
    fill(t[attention_decode::v_cache], &p.v_page_stride, &p.v_row_stride, &p.v_cache_head_stride);
    p.seq_q = static_cast<int>(launch.shape.queries);
    p.kv_heads = static_cast<int>(launch.shape.kv_heads);
    p.k_words = static_cast<int>(problem().head_dim / words);
    p.v_words = problem().latent ? 0 : static_cast<int>(problem().value_dim / words);
    return p;
  }

  AttentionDecodeParams decode_params(const Call& call, const DecodePlan& launch) const {
    const AttentionDecodeShape& shape = launch.shape;
    const AttentionRequest& request = request_.attention;
    AttentionDecodeParams out = {};
    AttentionForwardParams& p = out.forward;
    fill_tensors<attention_decode::kTensors>(call, false, &p);
    // The caches stand for keys and values.
    const Tensor& k = call.tensors[attention_decode::k_cache];
    const Tensor& v = problem().latent ? k : call.tensors[attention_decode::v_cache];
    p.k = k.data, p.v = v.data;
    put_strides(attention_strides(k, false), &p.k_batch_stride, &p.k_token_stride,
                &p.k_head_stride);
    put_strides(attention_strides(v, false), &p.v_batch_stride, &p.v_token_stride,
                &p.v_head_stride);
    fill_scores(request, {shape.batch, shape.heads, shape.kv_heads, shape.queries, 0}, call, {},
                &p);
    fill_windows(request, shape.most_keys(), shape.queries, &p);
    p.tiles = static_cast<int>(attention_decode_tiles(launch.kernel->numbers(), shape));
    out.pages = pages(call, shape);
    out.partial_out = call.workspace;
    out.partial_lse = call.workspace ? call.workspace + launch.partial_lse : nullptr;
    out.appended = static_cast<int>(problem().append ? shape.queries : 0);
    out.splits = static_cast<int>(launch.splits);
    return out;
  }

  AttentionCombineParams combine_params(const Call& call, const DecodePlan& launch) const {
    AttentionCombineParams p = {};
    fill_tensors<attention_decode::kTensors>(call, false, &p);
    p.partial_out = call.workspace;
    p.partial_lse = call.workspace + launch.partial_lse;
    p.rows = launch.shape.rows();
    p.heads = static_cast<int>(launch.shape.heads);
    p.seq_q = static_cast<int>(launch.shape.queries);
    p.value_dim = problem().value_dim;
    p.splits = static_cast<int>(launch.splits);
    return p;
  }

  DecodeRequest request_;
  AttentionDecodeKernels kernels_;
  std::shared_ptr<const AttentionSplitTable> splits_;
};

}  // namespace

MadeExecutor make_attention_decode(const Resolved& resolved, const DeviceFacts& facts) {
  LATHE_ASSIGN(const DecodeRequest request, decode_request(resolved));
  LATHE_ASSIGN(
      const AttentionDecodeKernels kernels,
      attention_decode_kernels(request.attention.problem, facts,
                               {request.queries, request.attention.ratio, resolved[Dim::page]}));
  return executor_of<DecodeExecutor>(request, kernels, facts);
}

Status check_pages(int64_t page, int64_t table_width) {
  if (page == 0) return invalid("k_cache has page = 0; allowed are 1 and more");
  if (page == kUnknown || table_width == kUnknown || table_width <= kMostTokens / page) return {};
  return unsupported(text("block_table has M = ", table_width, " and k_cache has page = ", page,
                          "; allowed are M * page up to ", kMostTokens, " keys of a sequence"));
}

namespace {

// Without a cache of values these are columns of the keys, of the one width that latent attention
// has.
Status check_latent(const Resolved& resolved) {
  using namespace attention_decode;
  const int64_t width = resolved[Dim::D], values = resolved[Dim::DV];
  if (width != kLatentWidth) {
    return invalid(text("v_cache is not declared and q has D = ", width, "; allowed is D = ",
                        kLatentWidth, ", whose values are columns of k_cache"));
  }
  if (values != kLatentValueWidth) {
    return invalid(text("out has DV = ", values, "; without v_cache, allowed is ",
                        kLatentValueWidth, ", the first columns of k_cache"));
  }
  if (const int64_t heads = resolved[Dim::HK]; heads != kUnknown && heads != 1) {
    return invalid(text("k_cache has HK = ", heads, "; without v_cache, allowed is 1"));
  }
  return {};
}

Status check_decode_widths(const Resolved& resolved) {
  using namespace attention_decode;
  if (!resolved.has(v_cache)) return check_latent(resolved);
  if (resolved.has(k_new) && !resolved.has(v_new)) {
    return invalid("k_new is declared without v_new, which it needs");
  }
  LATHE_TRY(check_head_width("q", "D", resolved[Dim::D]));
  return check_head_width("v_cache", "DV", resolved[Dim::DV]);
}

}  // namespace

Status check_attention_decode(const Resolved& resolved) {
  LATHE_TRY(check_decode_widths(resolved));
  LATHE_TRY(check_pages(resolved[Dim::page], resolved[Dim::M]));
  return check_heads(resolved[Dim::H], resolved[Dim::HK], "k_cache");
}

Result<DecodeRequest> decode_request(const Resolved& resolved) {
  using namespace attention_decode;
  DecodeRequest asked;
  LATHE_ASSIGN(asked.attention, score_request(resolved, q, capture_0, alibi_slopes));
  asked.splits = resolved.options_as<DecodeOptions>().num_splits;
  asked.queries = resolved[Dim::Sq];
  AttentionProblem& problem = asked.attention.problem;
  problem.sinks = resolved.has(sinks);
  problem.decode = true;
  problem.append = resolved.has(k_new);
  problem.latent = !resolved.has(v_cache);
  problem.split = asked.splits != 1;
  return asked;
}

}  // namespace lathe
