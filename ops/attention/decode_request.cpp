// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of flash_attention_decode to integers and flags, with its refusals.
#include <charconv>

#include "codegen/base/invalid.h"
#include "ops/attention/decode_run.h"
#include "ops/attention/snippets.h"

namespace lathe {
namespace {

constexpr int kRowAlignment = 16;  // kernels copy rows in 16-byte pieces
// Positions and windows are added in 32 bits.
constexpr int64_t kMostKeys = int64_t{1} << 30;

Status unsupported(std::string what) { return Status(Code::unsupported, std::move(what)); }

// What is legal and has no kernels.
Status check_covered(const lathe_problem& problem) {
  if (problem.tensors[attention_decode::q].dtype == Dtype::f32) {
    return unsupported("q has dtype f32; flash_attention_decode has kernels for f16 and bf16");
  }
  if (problem.alignment < kRowAlignment) {
    return unsupported(text("alignment is ", problem.alignment, "; flash_attention_decode needs ",
                            kRowAlignment, " bytes (lathe_problem_alignment)"));
  }
  return {};
}

}  // namespace

Status check_pages(int64_t page, int64_t table_width) {
  if (page == 0) return invalid("k_cache has page = 0; allowed are 1 and more");
  if (page == kUnknown || table_width == kUnknown || table_width <= kMostKeys / page) return {};
  return unsupported(text("block_table has M = ", table_width, " and k_cache has page = ", page,
                          "; allowed are M * page up to ", kMostKeys, " keys of a sequence"));
}

Status check_attention_decode(const lathe_problem&, const Extents& promised) {
  LATHE_TRY(check_head_width("q", "D", promised[Letter::D]));
  LATHE_TRY(check_head_width("v_cache", "DV", promised[Letter::DV]));
  LATHE_TRY(check_pages(promised[Letter::page], promised[Letter::M]));
  return check_heads(promised[Letter::H], promised[Letter::HK], "k_cache");
}

Result<DecodeRequest> decode_request(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_covered(problem));
  DecodeRequest out;
  LATHE_TRY(read_snippets(problem, &out.attention));
  LATHE_TRY(read_score_options(problem, promised[Letter::D], &out.attention));
  const std::string splits = problem.option("num_splits");
  if (std::from_chars(splits.data(), splits.data() + splits.size(), out.splits).ec != std::errc()) {
    out.splits = kMaxExtent;  // any number is cut to what there is
  }
  AttentionProblem& asked = out.attention.problem;
  asked.element = problem.tensors[attention_decode::q].dtype;
  asked.head_dim = static_cast<int>(promised[Letter::D]);
  asked.value_dim = static_cast<int>(promised[Letter::DV]);
  asked.local = out.attention.window_left >= 0 || out.attention.window_right >= 0;
  asked.softcap = out.attention.softcap > 0;
  asked.alibi = problem.has(attention_decode::alibi_slopes);
  asked.sinks = problem.has(attention_decode::sinks);
  asked.decode = true;
  asked.append = problem.has(attention_decode::k_new);
  asked.split = out.splits != 1;
  out.attention.alibi_rows = problem.tensors[attention_decode::alibi_slopes].shape.rank == 2;
  out.queries = promised[Letter::Sq];
  const int64_t heads = promised[Letter::H], kv_heads = promised[Letter::HK];
  if (heads != kUnknown && kv_heads > 0) out.attention.ratio = heads / kv_heads;
  return out;
}

}  // namespace lathe
