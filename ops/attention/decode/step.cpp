// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels of flash_attention_decode, and fills what they share.
#include "ops/attention/decode/step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

constexpr int kRows[] = {16, 32, 64};

int rows_for(int64_t rows) {
  for (const int each : kRows) {
    if (rows <= each) return each;
  }
  return kRows[std::size(kRows) - 1];
}

std::vector<int> tile_rows(const AttentionDecodeRows& rows) {
  const int64_t ratio = std::max<int64_t>(rows.ratio, 1);
  if (rows.queries >= 0 && rows.ratio >= 0) return {rows_for(rows.queries * ratio)};
  const int least = rows_for(ratio), most = kRows[std::size(kRows) - 1];
  return least == most ? std::vector<int>{most} : std::vector<int>{least, most};
}

}  // namespace

// put_mods sets the first ones. Keys are in pages.
template <>
inline constexpr auto kOtherPointers<attention_decode::kTensors, AttentionForwardParams> =
    std::tuple(&AttentionForwardParams::capture, &AttentionForwardParams::visits,
               &AttentionForwardParams::visit_counts, &AttentionForwardParams::k,
               &AttentionForwardParams::v, &AttentionForwardParams::cu_seqlens_k);

Result<std::vector<std::unique_ptr<AttentionDecode>>> make_attention_decodes(
    AttentionDecodeProblem problem, const DeviceFacts& facts) {
  const auto step = attention_decodes();
  std::vector<std::unique_ptr<AttentionDecode>> out;
  std::string first_refusal, refusal;
  bool competes = false;  // a kernel of the first family, with which the shapes of a call decide
  for (const AttentionDecodeStep* how : step) {
    const size_t others = out.size();
    const bool first_family = how->family == std::string_view(step.front()->family);
    for (const int rows : tile_rows(problem.declared)) {
      problem.tile_rows = rows;
      refusal = refusal_of(*how, problem, facts);
      // Hopper's kernels are for several kinds of calls: each says why it is not for this one.
      if (first_family && !refusal.empty() && first_refusal.find(refusal) == std::string::npos) {
        first_refusal += (first_refusal.empty() ? "" : "; ") + refusal;
      }
      if (!refusal.empty()) break;
      const CandidateGroup group = {how->candidates(problem, facts), how->tile};
      KernelSpec spec = group.specs[pick({group}, facts).spec];
      // A device may have room for few rows alone.
      if (out.size() > others && out.back()->tiling().m == spec.constant("m")) continue;
      name_family(step, *how, first_refusal, &spec);
      competes = competes || first_family;
      if (competes) spec.family_reason.clear();
      out.push_back(how->make(std::move(spec), problem, facts));
    }
  }
  if (!refusal.empty()) return unsupported(refusal);
  return out;
}

AttentionPages attention_pages(const Call& call, const AttentionDecodeShape& shape) {
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

AttentionRotary attention_rotary(const Call& call, const AttentionDecodeShape& shape) {
  using namespace attention_decode;
  const Tensor& positions = call.tensors[rope_positions];
  AttentionRotary p = {};
  p.cos = call.tensors[rope_cos].data, p.sin = call.tensors[rope_sin].data;
  p.positions = positions.data;
  p.columns = static_cast<int>(2 * std::max<int64_t>(call.extents[Dim::R2], 0));
  p.rows = static_cast<int>(std::max<int64_t>(call.extents[Dim::positions], 0));
  p.of_rows =
      positions.data != nullptr && shape.ragged && call.extents[Dim::rows] == shape.packed_tokens;
  return p;
}

AttentionScales attention_scales(const Call& call) {
  const Tensor& k = call.tensors[attention_decode::k_scale];
  const Tensor& v = call.tensors[attention_decode::v_scale];
  const auto stride = [](const Tensor& scale) { return scale.extent[0] > 1 ? 1 : 0; };
  return {k.data, v.data, stride(k), stride(v)};
}

AttentionStrides cache_strides(const AttentionProblem& problem, const Tensor& cache) {
  if (problem.narrow == kByteRows) return {cache.stride[0], cache.stride[1], 0};
  return attention_strides(cache, false);
}

void AttentionDecode::fill(const AttentionDecodeCall& of, AttentionDecodeParams* out) const {
  const AttentionDecodeShape& shape = of.shape;
  const AttentionRequest& request = of.request.attention;
  AttentionForwardParams& p = out->forward;
  fill_tensors<attention_decode::kTensors>(of.call, shape.ragged, &p);
  // The caches stand for keys and values.
  const Tensor& k = of.call.tensors[attention_decode::k_cache];
  const Tensor& v = request.problem.latent ? k : of.call.tensors[attention_decode::v_cache];
  p.k = k.data, p.v = v.data;
  put_strides(cache_strides(request.problem, k), &p.k_batch_stride, &p.k_token_stride,
              &p.k_head_stride);
  put_strides(cache_strides(request.problem, v), &p.v_batch_stride, &p.v_token_stride,
              &p.v_head_stride);
  const int64_t rows = shape.ragged ? shape.packed_tokens : shape.queries;
  fill_scores(request, {shape.batch, shape.heads, shape.kv_heads, rows, 0}, of.call, {}, &p);
  // A window reaches keys of other ranks too.
  fill_windows(request, request.problem.spread ? kMaxExtent : shape.most_keys(), rows, &p);
  p.tiles = static_cast<int>(attention_decode_tiles(tiling(), shape));
  out->pages = attention_pages(of.call, shape);
  if (of.call.workspace) {
    out->partial_out = of.call.workspace;
    out->partial_lse = of.call.workspace + of.parts.partial_lse;
    out->combine_list = of.call.workspace + of.parts.combine_list;
    out->used_slots = of.call.workspace + of.parts.used_slots;
  }
  out->rotary = attention_rotary(of.call, shape);
  out->scales = attention_scales(of.call);
  out->leftpad = of.call.tensors[attention_decode::leftpad].data;
  out->total_seqlens = of.call.tensors[attention_decode::total_seqlens].data;
  out->key_stride = static_cast<int>(of.request.key_stride);
  out->key_offset = static_cast<int>(of.request.key_offset);
  out->appended = static_cast<int>(request.problem.append ? shape.queries : 0);
  out->splits = static_cast<int>(of.parts.splits);
  out->share = static_cast<int>(of.parts.share), out->slots = static_cast<int>(of.parts.slots);
}

}  // namespace lathe
