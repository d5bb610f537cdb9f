// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks what a problem of flash_attention_decode asks for, and reads it.
#include "codegen/base/invalid.h"
#include "ops/attention/decode/run.h"

namespace lathe {

Status check_pages(int64_t page, int64_t table_width) {
  if (page == 0) return invalid("k_cache has page = 0; allowed are 1 and more");
  if (page == kUnknown || table_width == kUnknown || table_width <= kMostTokens / page) return {};
  return unsupported(text("block_table has M = ", table_width, " and k_cache has page = ", page,
                          "; allowed are M * page up to ", kMostTokens, " keys of a sequence"));
}

Status check_cache_rows(int64_t found) {
  if (found == kUnknown || found == kByteRow) return {};
  return invalid(
      text("k_cache has ", found, " bytes in a row; allowed with e4m3_656 are ", kByteRow));
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

// Queries are packed or in a batch, and what belongs to their rows is as they are.
Status check_ragged(const Resolved& resolved) {
  using namespace attention_decode;
  const bool ragged = resolved.has(cu_seqlens_q);
  for (const int tensor : {q, k_new, v_new, out, lse}) {
    if (!resolved.has(tensor)) continue;
    const Shape& shape = resolved.problem.tensors[tensor].shape;
    if (is_packed_shape(shape) == ragged) continue;
    return invalid(text(kTensors[tensor].name, " has shape ", shape_text(shape),
                        " and cu_seqlens_q is ", ragged ? "" : "not ", "declared; allowed ",
                        ragged ? "with it are shapes of packed rows, with Tq"
                               : "without it are shapes of a batch, with Sq"));
  }
  return {};
}

Status check_spread(const Resolved& resolved) {
  using namespace attention_decode;
  const auto& options = resolved.options_as<DecodeOptions>();
  if (!resolved.has(total_seqlens)) {
    if (options.key_stride == 1 && options.key_offset == 0) return {};
    return invalid(text("option ", options.key_stride != 1 ? "key_stride" : "key_offset", " is ",
                        options.key_stride != 1 ? options.key_stride : options.key_offset,
                        " and total_seqlens is not declared; allowed without it is ",
                        options.key_stride != 1 ? 1 : 0));
  }
  if (options.key_offset >= options.key_stride) {
    return invalid(text("option key_offset is ", options.key_offset, "; allowed are 0 to ",
                        options.key_stride - 1, ", less than key_stride"));
  }
  if (options.key_stride > kMaxExtent) {
    return invalid(
        text("option key_stride is ", options.key_stride, "; allowed are 1 to ", kMaxExtent));
  }
  if (!resolved.has(k_new)) return {};
  return invalid(
      "k_new is declared with total_seqlens; allowed is one of them: a rank does not know which of "
      "the new keys are its own");
}

int narrow_rows(const Resolved& resolved) {
  using namespace attention_decode;
  const Dtype dtype = resolved.dtype(k_cache);
  if (dtype == Dtype::u8) return kByteRows;
  if (dtype != Dtype::f8_e4m3) return kWideRows;
  return resolved.problem.tensors[k_scale].shape.rank > 1 ? kRowScales : kHeadScales;
}

// A cache has q's dtype, or 8 bits with what these need.
Status check_narrow(const Resolved& resolved) {
  using namespace attention_decode;
  const Dtype element = resolved.dtype(q), cache = resolved.dtype(k_cache);
  const bool bytes = cache == Dtype::u8, codes = cache == Dtype::f8_e4m3;
  if (!bytes && !codes && cache != element) {
    return invalid(text("k_cache has dtype ", word(cache), "; allowed are ", word(element),
                        ", that of q, f8_e4m3 with k_scale and u8 with row_format"));
  }
  if (resolved.has(v_cache) && resolved.dtype(v_cache) != cache) {
    return invalid(text("v_cache has dtype ", word(resolved.dtype(v_cache)), "; allowed is ",
                        word(cache), ", that of k_cache"));
  }
  const bool format = resolved.options_as<DecodeOptions>().row_format != RowFormat::none;
  if (format != bytes) {
    return invalid(text("k_cache has dtype ", word(cache), " and option row_format is ",
                        format ? "e4m3_656" : "none", "; rows of bytes are u8 with e4m3_656"));
  }
  for (const auto& [scale, of] : {std::pair(k_scale, k_cache), {v_scale, v_cache}}) {
    const bool wanted = codes && resolved.has(of);
    if (resolved.has(scale) == wanted) continue;
    return invalid(text(kTensors[scale].name, " is ", wanted ? "not " : "", "declared and ",
                        kTensors[of].name, " has dtype ", word(cache), "; ",
                        wanted ? "f8_e4m3 needs it" : "it belongs to f8_e4m3"));
  }
  if (codes && resolved.has(v_cache) &&
      resolved.problem.tensors[k_scale].shape.rank !=
          resolved.problem.tensors[v_scale].shape.rank) {
    return invalid("k_scale and v_scale are of different kinds; allowed is one for both");
  }
  const bool rows = resolved.problem.tensors[k_cache].shape.rank == 3;
  if (rows != bytes) {
    return invalid(text("k_cache has dtype ", word(cache), " and shape ",
                        shape_text(resolved.problem.tensors[k_cache].shape), "; allowed is ",
                        bytes ? "[P,page,bytes]" : "[P,page,HK,D]"));
  }
  if (bytes) LATHE_TRY(check_cache_rows(resolved[Dim::bytes]));
  const int64_t width = resolved[Dim::D], values = resolved[Dim::DV];
  if (codes && (width % 16 != 0 || values % 16 != 0)) {
    return invalid(text("k_cache has dtype f8_e4m3, D = ", width, " and DV = ", values,
                        "; allowed are multiples of 16"));
  }
  return {};
}

Status check_rotary(const Resolved& resolved) {
  using namespace attention_decode;
  const int64_t half = resolved[Dim::R2], width = resolved[Dim::D];
  if (!resolved.has(rope_cos) || half == kUnknown || width == kUnknown) return {};
  if (half >= 1 && 2 * half <= width) return {};
  return invalid(text("rope_cos has R/2 = ", half, "; allowed are 1 to ", width / 2,
                      ", half of q's D = ", width));
}

}  // namespace

Status check_attention_decode(const Resolved& resolved) {
  LATHE_TRY(check_ragged(resolved));
  LATHE_TRY(check_spread(resolved));
  LATHE_TRY(check_rotary(resolved));
  LATHE_TRY(check_narrow(resolved));
  LATHE_TRY(check_decode_widths(resolved));
  LATHE_TRY(check_pages(resolved[Dim::page], resolved[Dim::M]));
  if (resolved.dtype(attention_decode::k_cache) == Dtype::u8) return {};
  return check_heads(resolved[Dim::H], resolved[Dim::HK], "k_cache");
}

Result<DecodeRequest> decode_request(const Resolved& resolved) {
  using namespace attention_decode;
  DecodeRequest asked;
  LATHE_ASSIGN(asked.attention, score_request(resolved, q, capture_0, alibi_slopes));
  asked.splits = resolved.options_as<DecodeOptions>().num_splits;
  asked.queries = resolved[Dim::Sq];
  const auto& options = resolved.options_as<DecodeOptions>();
  asked.key_stride = options.key_stride, asked.key_offset = options.key_offset;
  AttentionProblem& problem = asked.attention.problem;
  problem.sinks = resolved.has(sinks);
  problem.decode = true;
  problem.append = resolved.has(k_new);
  problem.latent = !resolved.has(v_cache);
  problem.split = asked.splits != 1;
  problem.ragged = resolved.has(cu_seqlens_q);
  if (problem.ragged) problem.cu_seqlens = resolved.dtype(cu_seqlens_q);
  problem.spread = resolved.has(total_seqlens) || resolved.has(leftpad);
  problem.local = problem.local || resolved.has(leftpad);  // keys are masked on the left
  problem.narrow = narrow_rows(resolved);
  problem.rotary = resolved.has(rope_cos);
  if (problem.rotary) problem.angle = resolved.dtype(rope_cos);
  problem.interleaved = options.rope_interleaved;
  return asked;
}

}  // namespace lathe
