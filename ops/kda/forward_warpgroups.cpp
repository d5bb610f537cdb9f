// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/kda/forward_warpgroups.h"

#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/token_map.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/kda_warpgroups.h"

namespace lathe {
namespace {

constexpr const char *kForward = "kda_forward_warpgroups", *kSummary = "kda_summary_warpgroups";
constexpr int kPanel = 64;              // columns of a copy
constexpr int kPreparingThreads = 256;  // of a block; 128 more walk for each 64 values
constexpr int kWalkerValues = 64;
constexpr int kMostShared = 227 * 1024, kMostSlots = 12;

int walkers_of(const KdaProblem& problem) { return problem.value_dim > kWalkerValues ? 2 : 1; }

// Bytes of a record: rows of ke, qg and kd, rows of v; two squares, the decay, three numbers of
// each token and a flag; three barriers.
int slot_bytes(const KdaProblem& problem) {
  const int width = round_up(problem.key_dim, kPanel);
  const int record = 3 * 16 * 2 * width + walkers_of(problem) * 16 * 2 * kWalkerValues;
  return record + 2 * 512 + 4 * (width + 32) + 3 * 64 + 16 + 3 * 8;
}

constexpr int kTriangles = 8 * 16 * 4 * 24;  // of the preparing warps

std::string refusal_of(const KdaProblem& problem, const DeviceFacts& facts, const char* kernel) {
  if (std::string refusal = facts.family_refusal(); !refusal.empty()) return refusal;
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (!problem.forward) return "there is no forward";
  if (problem.element != Dtype::bf16) return "the elements are not bfloat16";
  if (problem.gate == Dtype::f16) return "the gate is float16";
  if (problem.vector_bytes < 16) return "rows are not multiples of 16 bytes";
  if (problem.key_dim > 128) return "K is above 128";
  return facts.rejection(kernel);
}

// Returns a walk with the constants of the portable one. `from` says the kernel and its parameters.
KernelSpec spec_of(const KdaProblem& problem, const Template& from, const KernelSpec& portable,
                   bool queries) {
  const int slots = std::min(kMostSlots, (kMostShared - kTriangles) / slot_bytes(problem));
  KernelSpec spec = shared_spec(from, queries ? "KdaWarpgroupsSmem" : "KdaSummaryWarpgroupsSmem",
                                slots * slot_bytes(problem) + kTriangles,
                                kPreparingThreads + 128 * walkers_of(problem), portable.constants);
  spec.add({Constant::integer("slots", "kSlots", slots)});
  const auto map = [&](const char* field) {
    spec.tensor_maps.push_back({field, Dtype::bf16, {kPanel, 16, 1, 1}, 128});
  };
  map("k"), map("v");
  if (queries) map("q");
  if (problem.gate != Dtype::f32) map("g");
  spec.family = "sm90";
  spec.may_be_rejected = true;
  return spec;
}

// Encodes the maps that a kernel has, in the order of its recipes.
Status encode_maps(const KernelSlot& kernel, bool packed, const KdaInputs& in, KdaMaps* maps) {
  if (in.tokens == 0 || in.sequences == 0) return {};  // nobody reads them
  const MappedRows k = {in.k,         in.key_dim,
                        in.tokens,    in.heads,
                        in.sequences, {in.k_batch_stride, in.k_token_stride, in.k_head_stride}};
  const MappedRows v = {in.v,         in.value_dim,
                        in.tokens,    in.value_heads,
                        in.sequences, {in.v_batch_stride, in.v_token_stride, in.v_head_stride}};
  const MappedRows q = {in.q,         in.key_dim,
                        in.tokens,    in.heads,
                        in.sequences, {in.q_batch_stride, in.q_token_stride, in.q_head_stride}};
  const MappedRows g = {in.g,         in.key_dim,
                        in.tokens,    in.value_heads,
                        in.sequences, {in.g_batch_stride, in.g_token_stride, in.g_head_stride}};
  for (size_t index = 0; index < kernel->tensor_maps.size(); ++index) {
    const auto encode = [&](const MappedRows& rows, TensorMap* to) {
      return kernel.encode(index, token_map(packed, rows), to);
    };
    switch (kernel->tensor_maps[index].field.front()) {
      case 'k':
        LATHE_TRY(encode(k, &maps->k));
        break;
      case 'v':
        LATHE_TRY(encode(v, &maps->v));
        break;
      case 'q':
        LATHE_TRY(encode(q, &maps->q));
        break;
      default:
        LATHE_TRY(encode(g, &maps->g));
    }
  }
  return {};
}

}  // namespace

std::string kda_forward_warpgroups_refusal(const KdaProblem& problem, const DeviceFacts& facts) {
  if (problem.chunk_states) return "states of chunks are wanted";
  if (problem.saves) return "what the backward reads is kept";
  if (problem.warmup) return "segments start early";
  return refusal_of(problem, facts, kForward);
}

KernelSpec kda_forward_warpgroups_spec(const KdaProblem& problem, const KernelSpec& portable) {
  return spec_of(
      problem,
      LATHE_TEMPLATE("kda/sm90", "kda_forward_warpgroups", KdaForwardWarpgroupsParams, forward),
      portable, true);
}

std::string kda_summary_warpgroups_refusal(const KdaProblem& problem, const KdaSummaryParts& parts,
                                           const DeviceFacts& facts) {
  if (problem.saves) return "what the backward reads is kept";
  if (!parts.states || parts.grads) return "it also walks back";
  return refusal_of(problem, facts, kSummary);
}

KernelSpec kda_summary_warpgroups_spec(const KdaProblem& problem, const KernelSpec& portable) {
  return spec_of(
      problem,
      LATHE_TEMPLATE("kda/sm90", "kda_summary_warpgroups", KdaSummaryWarpgroupsParams, summary),
      portable, false);
}

int64_t kda_walk_values(const KernelSpec& walk) {
  return (walk.tensor_maps.empty() ? walk.threads : walk.threads - kPreparingThreads) / 2;
}

// Preparing: pairs of the rows of q and k, and what makes the square and the rows of keys of them.
// Walking: the state is read by the rows of q and k and added to, and the square makes outputs.
int64_t kda_warpgroups_tensor_ops(int64_t width, int64_t values, bool outputs) {
  const int64_t square = 2 * kKdaBlock * kKdaBlock, rows = 2 * kKdaBlock * width;
  const int64_t prepared = (outputs ? 3 : 2) * square * width + (outputs ? 2 * 16 * square : 0);
  return prepared + values * ((outputs ? 3 : 2) * rows + (outputs ? square : 0));
}

Status launch_kda_forward(const KernelSlot& kernel, bool packed, int64_t blocks,
                          const KdaForwardParams& forward, CUstream_st* stream) {
  if (kernel->tensor_maps.empty()) return kernel.launch(blocks, &forward, stream);
  KdaForwardWarpgroupsParams p = {};
  p.forward = forward;
  LATHE_TRY(encode_maps(kernel, packed, forward.in, &p.maps));
  return kernel.launch(blocks, &p, stream);
}

Status launch_kda_summary(const KernelSlot& kernel, bool packed, int64_t blocks,
                          const KdaSummaryParams& summary, CUstream_st* stream) {
  if (kernel->tensor_maps.empty()) return kernel.launch(blocks, &summary, stream);
  KdaSummaryWarpgroupsParams p = {};
  p.summary = summary;
  LATHE_TRY(encode_maps(kernel, packed, summary.in, &p.maps));
  return kernel.launch(blocks, &p, stream);
}

}  // namespace lathe
