// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/kda/sm90.h"

#include <algorithm>

#include "codegen/base/integers.h"
#include "codegen/base/text.h"
#include "ops/kda/walk.h"
#include "ops/token_map.h"

namespace lathe {
namespace {

constexpr int kPanel = 64;         // columns of a copy
constexpr int kWalkerValues = 64;  // of a warpgroup that walks
constexpr int kMostShared = 227 * 1024, kMostSlots = 16;

bool is_wide(int64_t keys) { return keys > kKdaNarrow; }

// The preparing warps of a block. With wide rows of keys there is room for fewer records.
int preparing_warps(int64_t keys) { return is_wide(keys) ? 4 : 8; }

int walkers_of(const KdaProblem& problem) {
  return problem.value_dim > kWalkerValues || is_wide(problem.key_dim) ? 2 : 1;
}

// Bytes of a record: rows of ke, of qg for outputs or a walk back, and of kd, rows of v; two
// squares, or three, the decay, three numbers of each token and a flag; three barriers.
int slot_bytes(const KdaProblem& problem, const KdaWarpgroupsWalk& walk) {
  const int width = round_up(problem.key_dim, kPanel);
  const int squares = walk.outputs && walk.saves ? 3 : 2;
  const int tiles = walk.outputs || walk.back ? 3 : 2;
  const int record = tiles * 16 * 2 * width + walkers_of(problem) * 16 * 2 * kWalkerValues;
  return record + squares * 512 + 4 * (width + 32) + 3 * 64 + 16 + 3 * 8;
}

constexpr int kTriangle = 16 * 4 * 24;  // of a preparing warp

// Returns rows of [.., tokens, heads, width] of the inputs.
MappedRows rows_of(const KdaInputs& in, const void* data, int width, int heads, long long batch,
                   long long token, long long head) {
  return {data, width, in.tokens, heads, in.sequences, {batch, token, head}};
}

}  // namespace

std::string kda_warpgroups_refusal(const KdaProblem& problem, const DeviceFacts& facts,
                                   const char* kernel) {
  if (facts.arch == "sm_90a" && !problem.forward) return "there is no forward";
  return kda_rows_refusal(problem, facts, kernel, kKdaWide);
}

std::string kda_rows_refusal(const KdaProblem& problem, const DeviceFacts& facts,
                             const char* kernel, int most_keys) {
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (problem.element != Dtype::bf16) return "the elements are not bfloat16";
  if (problem.vector_bytes < 16) return "rows are not multiples of 16 bytes";
  if (problem.key_dim > most_keys) return text("K is above ", most_keys);
  return facts.rejection(kernel);
}

KernelSpec kda_warpgroups_spec(const Template& from, const KdaProblem& problem,
                               const KernelSpec& portable, const KdaWarpgroupsWalk& walk) {
  const int each = slot_bytes(problem, walk), warps = preparing_warps(problem.key_dim);
  const int other = warps * kTriangle + walk.beside;
  const int slots = std::min(kMostSlots, (kMostShared - other) / each);
  KernelSpec spec = shared_spec(from, walk.smem, round_up(slots * each, 16) + other,
                                32 * warps + 128 * walkers_of(problem), portable.constants);
  spec.add({Constant::integer("slots", "kSlots", slots)});
  const auto map = [&](const char* field) {
    spec.tensor_maps.push_back({field, Dtype::bf16, {kPanel, 16, 1, 1}, 128});
  };
  map("k");
  if (walk.forward) map("v");
  if (walk.outputs || walk.back) map("q");
  if (walk.back) map("d_o");
  if (problem.gate != Dtype::f32) map("g");
  return spec;
}

int64_t kda_warpgroups_columns(const KernelSpec& spec) {
  return (spec.threads - 32 * preparing_warps(spec.constant("width"))) / 2;
}

// Preparing: pairs of the rows of q and k, and what makes the square and the rows of keys of them.
// Walking: the state is read by the rows of q and k and added to, a wide one by both parts of what
// is added, and the square makes outputs.
int64_t kda_warpgroups_ops(const KdaProblem& problem, int64_t columns, bool outputs) {
  const int64_t width = kda_padded_keys(problem);
  const int64_t square = 2 * kKdaBlock * kKdaBlock, rows = 2 * kKdaBlock * width;
  const int64_t prepared = (outputs ? 3 : 2) * square * width + (outputs ? 2 * 16 * square : 0);
  const int64_t products = (outputs ? 3 : 2) + (is_wide(problem.key_dim) ? 1 : 0);
  return prepared + columns * (products * rows + (outputs ? square : 0));
}

// Rows of queries are multiplied by a square too.
int64_t kda_warpgroups_back_ops(const KdaProblem& problem, int64_t columns, int64_t squares) {
  const int64_t square = 2 * kKdaBlock * kKdaBlock;
  return kda_warpgroups_ops(problem, columns, true) + square * kda_padded_keys(problem) +
         (squares - 1) * square * columns;
}

MappedRows kda_output_grads(const KdaInputs& in, const void* d_o, const AttentionStrides& strides) {
  return {d_o, in.value_dim, in.tokens, in.value_heads, in.sequences, strides};
}

Status encode_kda_maps(const KernelSlot& kernel, bool packed, const KdaInputs& in,
                       const KdaMapped& mapped, KdaMaps* maps) {
  if (in.tokens == 0 || in.sequences == 0) return {};  // nobody reads them
  size_t index = 0;
  const auto encode = [&](const MappedRows& rows, TensorMap* to) {
    return kernel.encode(index++, token_map(packed, rows), to);
  };
  LATHE_TRY(encode(rows_of(in, in.k, in.key_dim, in.heads, in.k_batch_stride, in.k_token_stride,
                           in.k_head_stride),
                   &maps->k));
  if (mapped.values) {
    LATHE_TRY(encode(rows_of(in, in.v, in.value_dim, in.value_heads, in.v_batch_stride,
                             in.v_token_stride, in.v_head_stride),
                     &maps->v));
  }
  if (mapped.queries) {
    LATHE_TRY(encode(rows_of(in, in.q, in.key_dim, in.heads, in.q_batch_stride, in.q_token_stride,
                             in.q_head_stride),
                     &maps->q));
  }
  if (mapped.gradients.data != nullptr) LATHE_TRY(encode(mapped.gradients, &maps->d_o));
  if (index == kernel->tensor_maps.size()) return {};  // gates of 32 bits are read without a map
  return encode(rows_of(in, in.g, in.key_dim, in.value_heads, in.g_batch_stride, in.g_token_stride,
                        in.g_head_stride),
                &maps->g);
}

}  // namespace lathe
