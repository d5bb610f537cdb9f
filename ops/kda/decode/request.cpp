// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a problem of kda_decode to integers and flags, and refuses what the tables cannot
// exclude.
#include "ops/kda/decode/request.h"

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "templates/params/kda.h"

namespace lathe {

using namespace kda_decode;

namespace {

constexpr int64_t kLeastTaps = 2, kMostTaps = 8, kMostColumns = 64;

bool has_tokens(const Resolved& resolved, int tensor) {
  return has_dim(resolved.problem.tensors[tensor].shape, Dim::T);
}

// Tensors of tokens have a dim for them all or none.
Status check_ranks(const Resolved& resolved) {
  const bool tokens = has_tokens(resolved, qkv);
  for (const int tensor : {g, beta, output_gate, o}) {
    if (!resolved.has(tensor) || has_tokens(resolved, tensor) == tokens) continue;
    const Shape& shape = resolved.problem.tensors[tensor].shape;
    return invalid(text(kTensors[tensor].name, " has rank ", shape.rank, ", ", shape_text(shape),
                        ", and qkv has rank ", tokens ? 3 : 2,
                        "; allowed is a dim T in both or in neither"));
  }
  return {};
}

Status check_rings(const Resolved& resolved) {
  if (!resolved.has(ring_k)) {
    if (resolved.options_as<KdaDecodeOptions>().append) return {};
    return invalid(
        "option append is 0 and ring_k is not declared; allowed is 1: there are no records to "
        "count");
  }
  if (resolved.has(source_indices)) {
    return invalid(
        "source_indices is declared with ring_k; allowed is one of them: a slot's records follow "
        "its own state");
  }
  if (!resolved.options_as<KdaDecodeOptions>().update_state) {
    return invalid(
        "option update_state is 0 and ring_k is declared; allowed is 1, or option append 0, which "
        "leaves the counts");
  }
  return {};
}

// Refuses a type that is neither float32 nor that of qkv.
Status check_dtype(const Resolved& resolved, int tensor) {
  if (!resolved.has(tensor)) return {};
  const Dtype found = resolved.dtype(tensor), own = resolved.dtype(qkv);
  if (found == Dtype::f32 || found == own) return {};
  return invalid(text(kTensors[tensor].name, " has dtype ", word(found), "; allowed are f32 and ",
                      word(own), ", that of qkv"));
}

Status check_conv(const Resolved& resolved) {
  LATHE_TRY(check_width("conv_weight", "W", resolved[Dim::W], 1, kLeastTaps, kMostTaps));
  return check_width("conv_pool", "LS", resolved[Dim::LS], 1, resolved[Dim::W] - 1, kMostColumns);
}

}  // namespace

Result<int64_t> kda_decode_heads(const Extents& extents) {
  const int64_t channels = extents[Dim::D], values = extents[Dim::HV];
  const int64_t keys = extents[Dim::K], width = extents[Dim::V];
  if (channels == kUnknown || values == kUnknown || keys == kUnknown || width == kUnknown) {
    return kUnknown;
  }
  const int64_t rest = channels - values * width, heads = rest / (2 * keys);
  const bool whole = rest >= 0 && heads * 2 * keys == rest;
  if (whole && (heads == 0 ? values == 0 : values % heads == 0)) return heads;
  return invalid(text("qkv has D = ", channels, "; allowed is 2 * H * K + HV * V with K = ", keys,
                      ", HV = ", values, ", V = ", width, " and an H that divides HV"));
}

void derive_kda_decode(const lathe_problem&, Extents* extents) {
  const Result<int64_t> heads = kda_decode_heads(*extents);
  if (heads.ok() && (*extents)[Dim::H] == kUnknown) (*extents)[Dim::H] = *heads;
}

Status check_kda_decode_extents(const Extents& extents) {
  LATHE_ASSIGN(const int64_t heads, kda_decode_heads(extents));
  const int64_t declared = extents[Dim::H];
  if (heads != kUnknown && declared != kUnknown && heads != declared) {
    return invalid(text("ring_k has H = ", declared, "; qkv has channels of H = ", heads));
  }
  const int64_t bias = extents[Dim::HVK], values = extents[Dim::HV], keys = extents[Dim::K];
  if (bias != kUnknown && values != kUnknown && bias != values * keys) {
    return invalid(text("dt_bias has extent ", bias, "; allowed is HV * K = ", values, " * ", keys,
                        " = ", values * keys));
  }
  const int64_t tokens = extents[Dim::T], length = extents[Dim::L];
  if (tokens == kUnknown) return {};
  if (length != kUnknown && tokens > length) {
    return invalid(text("qkv has T = ", tokens, " and ring_k has L = ", length,
                        "; allowed are T up to L, a record for each token"));
  }
  if (tokens <= kKdaDecodeMostTokens) return {};
  return unsupported(text("qkv has T = ", tokens, "; allowed are 0 to ", kKdaDecodeMostTokens,
                          "; causal_conv1d and kda take more"));
}

Status check_kda_decode(const Resolved& resolved) {
  LATHE_TRY(check_kda_widths("g", "o", resolved));
  LATHE_TRY(check_conv(resolved));
  LATHE_TRY(check_ranks(resolved));
  LATHE_TRY(check_kda_decode_extents(resolved.extents));
  LATHE_TRY(check_kda_transforms(resolved));
  LATHE_TRY(check_rings(resolved));
  LATHE_TRY(check_dtype(resolved, ring_u));
  return check_dtype(resolved, norm_weight);
}

Result<KdaDecodeRequest> kda_decode_request(const Resolved& resolved) {
  const auto& options = resolved.options_as<KdaDecodeOptions>();
  KdaDecodeRequest out;
  out.numbers = read_kda_transforms(resolved);
  out.numbers.update_state = options.update_state;
  out.numbers.append = options.append;
  out.numbers.null_slot = static_cast<int>(options.null_slot);
  out.norm_eps = options.norm_eps;
  KdaDecodeProblem& asked = out.problem;
  asked.kda = out.numbers.problem;
  asked.kda.alignment = resolved.problem.alignment;
  asked.kda.index = resolved.dtype(state_indices);
  asked.kda.pooled = resolved.dtype(state_pool);
  asked.kda.states = resolved.has(ring_k) ? kKdaStatesRings : kKdaStatesPool;
  if (resolved.has(ring_k)) asked.kda.ring = resolved.dtype(ring_u);
  asked.conv_weight = resolved.dtype(conv_weight);
  asked.conv_width = static_cast<int>(resolved[Dim::W]);
  asked.conv_columns = static_cast<int>(resolved[Dim::LS]);
  asked.conv_bias = resolved.has(conv_bias);
  asked.conv_silu = options.activation == KdaDecodeOptions::Activation::silu;
  asked.tokens = has_tokens(resolved, qkv) ? kKdaDecodeMostTokens : 1;
  asked.norm = resolved.has(norm_weight);
  if (asked.norm) asked.norm_weight = resolved.dtype(norm_weight);
  asked.output_gate = resolved.has(output_gate);
  if (asked.output_gate) asked.output_gate_type = resolved.dtype(output_gate);
  asked.output_gate_silu = options.gate_activation == KdaDecodeOptions::Gate::silu;
  return out;
}

Status check_kda_decode_values(const Values& values) {
  constexpr PoolTensors kPool = {
      .state_pool = state_pool, .state_indices = state_indices, .source_indices = source_indices};
  LATHE_TRY(check_pool_values(values, kPool));
  return check_kda_rings(values, kPool, ring_count);
}

}  // namespace lathe
