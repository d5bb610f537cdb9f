// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the gradients of chunks by warpgroups, for sm_90a.
#include "ops/kda/sm90.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/kda/gradients/step.h"
#include "ops/kda/walk.h"
#include "ops/token_map.h"

namespace lathe {
namespace {

constexpr int kChunk = kKdaChunk, kMostValues = 128;

// Returns how many blocks a multiprocessor has room for.
int resident_blocks(const KernelSpec& spec, const DeviceFacts& facts) {
  constexpr int kReserved = 1024, kRegisters = 128;  // bytes of a block; of a thread, at most
  const int by_shared = facts.shared_bytes_per_multiprocessor / (spec.smem_bytes + kReserved);
  const int by_registers = facts.registers_per_multiprocessor / (kRegisters * spec.threads);
  return std::max(1, std::min(by_shared, by_registers));
}

int padded_values(const KdaProblem& problem) { return round_up(problem.value_dim, 64); }

class Warpgroups final : public KdaGradients {
 public:
  Warpgroups(KernelSpec spec, const KdaProblem& problem, const DeviceFacts& facts)
      : KdaGradients(std::move(spec)),
        packed_(problem.packed),
        gate_words_(static_cast<int>(bytes_of(problem.gate)) / 2),
        ahead_(facts.multiprocessors * resident_blocks(*kernel, facts)) {}

  // do h, y h and vn dh; do vn and y vn, whole squares of the chunk; and along K the six squares
  // below the diagonal and the four on it, of two scores, for rows and for columns.
  int64_t tensor_ops(const KdaProblem& problem) const override {
    const int64_t width = kda_padded_keys(problem), values = padded_values(problem);
    return 3 * 2 * kChunk * width * values + 2 * 2 * kChunk * kChunk * values +
           4 * 10 * 2 * 16 * 16 * width;
  }
  int64_t blocks_at_once() const override { return ahead_; }
  bool by_beta() const override { return true; }
  Status launch(const KdaBackwardParams& backward, int64_t blocks,
                CUstream_st* stream) const override {
    KdaBackwardWarpgroupsParams p = {};
    p.backward = backward;
    p.ahead = ahead_;
    LATHE_TRY(encode(backward, &p.maps));
    return kernel.launch(blocks, &p, stream);
  }

 private:
  Status encode(const KdaBackwardParams& p, KdaChunkMaps* maps) const;

  bool packed_;
  int gate_words_;  // of 16 bits
  int ahead_;       // blocks of threads that the device has at a time
};

// In the order of the recipes.
Status Warpgroups::encode(const KdaBackwardParams& p, KdaChunkMaps* maps) const {
  const KdaInputs& in = p.in;
  if (in.tokens == 0 || in.sequences == 0) return {};  // nobody reads them
  size_t index = 0;
  const auto rows = [&](const void* data, int width, int heads, const AttentionStrides& strides,
                        TensorMap* to) {
    const MappedRows mapped = {data, width, in.tokens, heads, in.sequences, strides};
    return kernel.encode(index++, token_map(packed_, mapped), to);
  };
  const int64_t row = int64_t{in.value_heads} * in.value_dim;
  const AttentionStrides kept = {row * in.tokens, row, in.value_dim};
  LATHE_TRY(rows(in.q, in.key_dim, in.heads,
                 {in.q_batch_stride, in.q_token_stride, in.q_head_stride}, &maps->q));
  LATHE_TRY(rows(in.k, in.key_dim, in.heads,
                 {in.k_batch_stride, in.k_token_stride, in.k_head_stride}, &maps->k));
  const int words = gate_words_;
  LATHE_TRY(rows(in.g, words * in.key_dim, in.value_heads,
                 {words * in.g_batch_stride, words * in.g_token_stride, words * in.g_head_stride},
                 &maps->g));
  LATHE_TRY(rows(in.v, in.value_dim, in.value_heads,
                 {in.v_batch_stride, in.v_token_stride, in.v_head_stride}, &maps->v));
  LATHE_TRY(rows(p.d_o, in.value_dim, in.value_heads,
                 {p.do_batch_stride, p.do_token_stride, p.do_head_stride}, &maps->d_o));
  LATHE_TRY(
      rows(p.value_grads, in.value_dim, in.value_heads,
           {p.value_grads_batch_stride, p.value_grads_token_stride, p.value_grads_head_stride},
           &maps->value_grads));
  LATHE_TRY(rows(p.saved_values, in.value_dim, in.value_heads, kept, &maps->saved_values));
  const auto states = [&](const void* data, TensorMap* to) {
    const int64_t each = int64_t{in.key_dim} * in.value_dim;
    const MappedTensor mapped = {data,
                                 {in.key_dim, in.value_dim, in.value_heads, p.slots},
                                 {1, in.key_dim, each, each * in.value_heads},
                                 {}};
    return kernel.encode(index++, mapped, to);
  };
  LATHE_TRY(states(p.saved_states, &maps->saved_states));
  return states(p.state_grads, &maps->state_grads);
}

constexpr Template kTemplate =
    LATHE_TEMPLATE("kda/sm90", "kda_backward_warpgroups", KdaBackwardWarpgroupsParams, ahead);

std::string refusal(const KdaProblem& problem, const DeviceFacts& facts) {
  if (problem.grouped) return "value heads share keys, or may";
  if (problem.value_dim > kMostValues) return "V is above 128";
  // The walk back has to leave rows by beta, and it is not Hopper's if the walk forward is not.
  for (const char* walk : {"kda_backward_scan_warpgroups", "kda_forward_warpgroups"}) {
    const std::string none = facts.rejection(walk);
    if (!none.empty()) return text("a walk is not Hopper's: for ", walk, " ", none);
  }
  return kda_rows_refusal(problem, facts, kTemplate.kernel);
}

// Tiles of do and y and of dh, which give way to three tiles as those of q, k and g are and to 16
// numbers of each thread; tiles of vn and of h; those three; two squares of scores; numbers of
// columns of K, of rows and of warps; four barriers.
int smem(const KdaProblem& problem) {
  const int width = kda_padded_keys(problem), values = padded_values(problem);
  const int parts = width / 32, warps = 4 * parts;
  const int keys = 3 * kChunk * 2 * width;
  const int rows_of_values = kChunk * 2 * values, state = values * 2 * width;
  const int tiles = keys + rows_of_values + state +
                    std::max(2 * rows_of_values + state, keys + 16 * 4 * 4 * width);
  const int columns = (4 * 4 + 1 + warps) * 4 * width, rows = (6 + 5 * parts) * 4 * kChunk;
  return tiles + 2 * kChunk * kChunk * 2 + columns + rows + 2 * 4 * warps + 4 * 8;
}

std::vector<KernelSpec> candidates(const KdaProblem& problem, const DeviceFacts&) {
  KernelSpec spec = shared_spec(kTemplate, "KdaChunkWarpgroupsSmem", smem(problem),
                                4 * kda_padded_keys(problem), kda_constants(problem));
  const int values = padded_values(problem);
  spec.add({Constant::integer("values", "kValueWidth", values)});
  const auto map = [&](const char* field, int rows) {
    spec.tensor_maps.push_back({field, Dtype::bf16, {64, rows, 1, 1}, 128});
  };
  for (const char* field : {"q", "k", "g", "v", "d_o", "value_grads", "saved_values"}) {
    map(field, kChunk);
  }
  map("saved_states", values), map("state_grads", values);
  return {spec};
}

std::unique_ptr<KdaGradients> make(KernelSpec spec, const KdaProblem& problem,
                                   const DeviceFacts& facts) {
  return std::make_unique<Warpgroups>(std::move(spec), problem, facts);
}

}  // namespace

const KdaGradientsStep kKdaGradientsSm90 = {"sm90", refusal, candidates, {}, make};

}  // namespace lathe
