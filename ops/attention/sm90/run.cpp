// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches the forward by warpgroups: its tensor maps follow from the tensors of the call.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/attention/sm90/kernels.h"
#include "ops/attention/sm90/maps.h"
#include "ops/attention/sm90/order.h"

namespace lathe {
namespace {

// Keys and values of a section of heads fit in L2 beside other data.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

// A launch has to know this of a kernel. Constants are found by name, so each is asked for once.
struct Form {
  bool packed, groups, local;
  int64_t rows;  // of a tile
};
Form form_of(const KernelSpec& spec) {
  return {spec.constant("packed") != 0, spec.constant("pack_gqa") != 0, spec.constant("local") != 0,
          spec.constant("m")};
}

AttentionTileOrder order_of(const Form& form, const AttentionForwardParams& f, int64_t tiles,
                            int64_t most) {
  AttentionTileOrder out = {};
  const int64_t columns = form.groups ? f.kv_heads : f.heads;
  out.blocks = tiles;
  if (form.packed) {
    const int64_t tokens = form.rows / (form.groups ? f.heads / f.kv_heads : 1);  // of a tile
    out.blocks = columns * (f.seq_q / tokens + std::max(f.sequences, 1));
  }
  const int64_t grid = std::min<int64_t>(out.blocks, most);
  out.section = 1, out.section_turns = 1;
  out.turns = static_cast<unsigned>(ceil_div(out.blocks, grid));
  if (form.packed || !form.local) return out;
  const int64_t key_bytes = int64_t{2} * f.seq_k * (f.head_dim + f.value_dim);
  const int64_t heads = columns * f.sequences, sharing = columns / f.kv_heads;
  const int64_t section =
      std::clamp<int64_t>(kSectionBytes / std::max<int64_t>(key_bytes, 1) * sharing, 1, heads);
  out.section = static_cast<int>(section);
  out.section_turns = static_cast<unsigned>(ceil_div(section * f.tiles, grid));
  const int64_t whole = (heads - 1) / section;
  out.turns = static_cast<unsigned>(whole * out.section_turns +
                                    ceil_div((heads - whole * section) * f.tiles, grid));
  return out;
}

}  // namespace

AttentionTileOrder attention_tile_order(const KernelSpec& spec, const AttentionForwardParams& f,
                                        int64_t tiles, int64_t most) {
  return order_of(form_of(spec), f, tiles, most);
}

Status launch_attention_warpgroups(const KernelSlot& kernel, const AttentionForwardParams& forward,
                                   int64_t blocks, int64_t multiprocessors, CUstream_st* stream) {
  AttentionWarpgroupsParams p;  // a kilobyte, of which every word is written once
  p.forward = forward;
  const AttentionForwardParams& f = p.forward;
  const Form form = form_of(*kernel);
  const auto map = [&](const void* data, int64_t columns, int64_t tokens, int64_t heads,
                       const AttentionStrides& strides) {
    return attention_map(form.packed, data, {columns, tokens, heads, f.sequences}, strides);
  };
  const AttentionStrides q_strides = {f.q_batch_stride, f.q_token_stride, f.q_head_stride};
  const MappedTensor q =
      form.groups
          ? attention_group_map(form.packed, f.q, {f.head_dim, f.seq_q, f.heads, f.sequences},
                                q_strides, f.heads / f.kv_heads, static_cast<int>(form.rows))
          : map(f.q, f.head_dim, f.seq_q, f.heads, q_strides);
  LATHE_TRY(kernel.encode(0, q, &p.q));
  if (f.seq_k > 0) {
    LATHE_TRY(kernel.encode(1,
                            map(f.k, f.head_dim, f.seq_k, f.kv_heads,
                                {f.k_batch_stride, f.k_token_stride, f.k_head_stride}),
                            &p.k));
    LATHE_TRY(kernel.encode(2,
                            map(f.v, f.value_dim, f.seq_k, f.kv_heads,
                                {f.v_batch_stride, f.v_token_stride, f.v_head_stride}),
                            &p.v));
  } else {
    p.k = p.v = p.q;  // nobody reads these
  }
  p.order = order_of(form, f, blocks, multiprocessors);
  return kernel.launch(std::min<int64_t>(p.order.blocks, multiprocessors), &p, stream);
}

}  // namespace lathe
