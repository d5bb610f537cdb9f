// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of flash_attention_decode to integers and flags, with its refusals.
#include "codegen/base/invalid.h"
#include "ops/attention/decode_run.h"
#include "ops/attention/mods.h"

namespace lathe {
namespace {

// Positions and windows are added in 32 bits.
constexpr int64_t kMostKeys = int64_t{1} << 30;

}  // namespace

Status check_pages(int64_t page, int64_t table_width) {
  if (page == 0) return invalid("k_cache has page = 0; allowed are 1 and more");
  if (page == kUnknown || table_width == kUnknown || table_width <= kMostKeys / page) return {};
  return unsupported(text("block_table has M = ", table_width, " and k_cache has page = ", page,
                          "; allowed are M * page up to ", kMostKeys, " keys of a sequence"));
}

Status check_attention_decode(const Resolved& resolved) {
  LATHE_TRY(check_head_width("q", "D", resolved[Dim::D]));
  LATHE_TRY(check_head_width("v_cache", "DV", resolved[Dim::DV]));
  LATHE_TRY(check_pages(resolved[Dim::page], resolved[Dim::M]));
  return check_heads(resolved[Dim::H], resolved[Dim::HK], "k_cache");
}

Result<DecodeRequest> decode_request(const Resolved& resolved) {
  using namespace attention_decode;
  if (resolved.dtype(q) == Dtype::f32) {
    return unsupported("q has dtype f32; flash_attention_decode has kernels for f16 and bf16");
  }
  DecodeRequest asked;
  LATHE_ASSIGN(asked.attention, score_request(resolved, q, capture_0, alibi_slopes));
  asked.splits = resolved.options_as<DecodeOptions>().num_splits;
  asked.queries = resolved[Dim::Sq];
  AttentionProblem& problem = asked.attention.problem;
  problem.sinks = resolved.has(sinks);
  problem.decode = true;
  problem.append = resolved.has(k_new);
  problem.split = asked.splits != 1;
  return asked;
}

}  // namespace lathe
