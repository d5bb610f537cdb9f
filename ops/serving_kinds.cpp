// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/serving_kinds.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "ops/schema.h"
#include "ops/serving.h"

namespace lathe {
namespace {

constexpr const char *kPool = "state_pool,state_indices",
                     *kPackedPool = "cu_seqlens,state_pool,state_indices",
                     *kPrefixes =
                         "source_indices,has_initial_state,cu_checkpoints,"
                         "checkpoint_tokens,checkpoint_slots",
                     *kUpdates = "update_state=1|0";

constexpr ServedCall kConvPrefill = {.op = "causal_conv1d",
                                     .with = "cu_seqlens",
                                     .maybe = "initial_state",
                                     .options = "output_final_state=0|1",
                                     .unset = "null_slot",
                                     .split_channels = true};
constexpr ServedCall kConvPoolPrefill = {
    .op = "causal_conv1d", .with = kPackedPool, .maybe = kPrefixes, .split_channels = true};
constexpr ServedCall kConvDecode = {.op = "causal_conv1d_update",
                                    .with = "state_indices",
                                    .maybe = "cu_seqlens,source_indices,num_accepted_tokens",
                                    .options = kUpdates,
                                    .decodes = true,
                                    .split_channels = true};
constexpr ServedCall kConvCalls[] = {kConvPrefill, kConvPoolPrefill, kConvDecode};
constexpr ServedCall kKdaCalls[] = {
    {.op = "kda", .with = kPackedPool, .maybe = kPrefixes},
    {.op = "kda_recurrent",
     .with = kPool,
     .maybe = "cu_seqlens,source_indices,has_initial_state,num_accepted_tokens",
     .options = kUpdates,
     .decodes = true},
    {.op = "kda_decode", .maybe = "source_indices", .options = kUpdates, .decodes = true},
    kConvPrefill,
    kConvPoolPrefill,
    kConvDecode};
constexpr ServedCall kAttentionCalls[] = {
    {.op = "flash_attention", .with = "cu_seqlens_q,cu_seqlens_k"},
    {.op = "flash_attention_decode",
     .with = "v_cache",
     .maybe = "cu_seqlens_q,k_new,v_new",
     .decodes = true}};
constexpr ServedCall kLatentCalls[] = {{.op = "flash_attention_decode",
                                        .maybe = "cu_seqlens_q,k_new",
                                        .extents = "HK=1,D=576",
                                        .decodes = true}};
constexpr ServedCall kSparseCalls[] = {{.op = "sparse_flash_attention", .maybe = "topk_length"}};

struct ServedKind {
  const char* name;
  std::span<const ServedCall> calls;
};
constexpr ServedKind kKinds[] = {{"kda", kKdaCalls},
                                 {"conv", kConvCalls},
                                 {"attention", kAttentionCalls},
                                 {"latent_attention", kLatentCalls},
                                 {"sparse_attention", kSparseCalls}};

}  // namespace

std::string served_kinds() { return comma_list(kKinds, &ServedKind::name); }

Result<std::span<const ServedCall>> calls_of(const std::string& kind, ServedCall* own) {
  const auto known = std::ranges::find(kKinds, kind, &ServedKind::name);
  if (known != std::end(kKinds)) return known->calls;
  // Kernels of callers' own come with their texts: a line of a problem warms them.
  const auto named = [&](const Operator& op) { return kind == op.name; };
  const auto op = std::ranges::find_if(operators(), named);
  if (op == operators().end()) {
    return invalid(text("layer is ", in_quotes(kind), "; allowed are ", served_kinds(),
                        " and an operator's name: ", operator_names()));
  }
  own->op = op->name;
  return std::span<const ServedCall>(own, 1);
}

}  // namespace lathe
