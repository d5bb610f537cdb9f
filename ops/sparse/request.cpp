// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Converts a problem of sparse_flash_attention to integers and flags, and refuses unsupported ones.
#include "codegen/base/invalid.h"
#include "ops/sparse/run.h"

namespace lathe {
namespace {

namespace of = sparse_attention;

constexpr int64_t kWidthStep = 8, kMostWidth = 576, kMostValueWidth = 512;
constexpr int64_t kMostTokens = int64_t{1} << 30;  // positions are added in 32 bits
constexpr int64_t kMostListed = int64_t{1} << 30;  // so are places in a list

// The rank of q decides: every tensor with rows or keys has the batch axis, or none has. Offsets
// cut packed rows only.
Status check_layout(const Resolved& resolved) {
  const Shape& queries = resolved.problem.tensors[of::q].shape;
  const bool packed = is_packed_shape(queries);
  LATHE_TRY(check_form(resolved.problem, packed, text("since q is ", shape_text(queries))));
  if (packed || !resolved.has(of::cu_seqlens_q)) return {};
  return invalid(text("cu_seqlens_q is declared and q has rank ", queries.rank, ", ",
                      shape_text(queries), "; offsets need packed rows, [Tq,H,D]"));
}

Status check_columns(const char* tensor, const char* dim, int64_t width, int64_t most) {
  return check_width(tensor, dim, width, kWidthStep, kWidthStep, most);
}

Status check_widths(const Resolved& resolved) {
  const int64_t width = resolved[Dim::D], rope = resolved[Dim::R];
  const int64_t values = resolved[Dim::DV];
  LATHE_TRY(check_columns("q", "D", width, kMostWidth));
  if (resolved.has(of::q_rope)) {
    LATHE_TRY(check_columns("q_rope", "R", rope, kMostWidth));
    if (width + rope > kMostWidth) {
      return invalid(text("q has D = ", width, " and q_rope has R = ", rope,
                          "; allowed are D + R up to ", kMostWidth));
    }
  }
  const bool inside = !resolved.has(of::v);
  LATHE_TRY(check_columns(inside ? "out" : "v", "DV", values, kMostValueWidth));
  if (!inside || values <= width) return {};
  return invalid(text("out has DV = ", values, " and k has D = ", width,
                      "; without v, values are columns of k: allowed are DV up to D"));
}

// Keys have q's dtype, or are rows of bytes with what these have inside.
Status check_keys(const Resolved& resolved) {
  const auto& options = resolved.options_as<SparseOptions>();
  const Dtype element = resolved.dtype(of::q), found = resolved.dtype(of::k);
  const bool bytes = found == Dtype::u8, format = options.row_format != RowFormat::none;
  if (!bytes && found != element) {
    return invalid(text("k has dtype ", word(found), "; allowed are ", word(element),
                        ", that of q, and u8 with row_format"));
  }
  if (format != bytes) {
    return invalid(text("k has dtype ", word(found), " and option row_format is ",
                        format ? "e4m3_656" : "none", "; rows of bytes are u8 with e4m3_656"));
  }
  for (const int tensor : {of::k, of::k_extra}) {
    if (!resolved.has(tensor)) continue;
    const Shape& shape = resolved.problem.tensors[tensor].shape;
    if ((shape.rank == 2) == bytes) continue;
    return invalid(text(of::kTensors[tensor].name, " has dtype ", word(found), " and shape ",
                        shape_text(shape), "; rows of bytes have two dims, others heads"));
  }
  if (!bytes) return {};
  if (const int64_t width = resolved[Dim::D]; width != kByteRowColumns) {
    return invalid(text("q has D = ", width, "; rows of bytes have ", kByteRowColumns, " columns"));
  }
  if (const int64_t heads = resolved[Dim::HK]; heads != kUnknown && heads != 1) {
    return invalid(text("indices has HK = ", heads, "; rows of bytes have 1"));
  }
  return check_byte_rows(resolved[Dim::bytes]);
}

// A second cache and rows of bytes are read by the forward of one rank, whose values are columns.
Status check_extra(const Resolved& resolved) {
  const bool bytes = resolved.dtype(of::k) == Dtype::u8, extra = resolved.has(of::k_extra);
  const bool apart = !resolved.options_as<SparseOptions>().sinks_in_statistics;
  const std::string what = extra   ? "k_extra is declared"
                           : bytes ? "k has dtype u8"
                                   : "sinks_in_statistics is 0";
  if (!bytes && !extra && !apart) return {};
  if (resolved.has(of::dout)) {
    return invalid(text("dout is declared and ", what, "; allowed is a forward alone"));
  }
  if (!bytes && !extra) return {};
  for (const int tensor : {of::v, of::q_rope, of::k_rope}) {
    if (!resolved.has(tensor)) continue;
    return invalid(text(of::kTensors[tensor].name, " is declared and ", what,
                        "; allowed is one of them: values are columns of the keys"));
  }
  if (resolved.problem.group != nullptr) {
    return unsupported(text("the problem has a group and ", what, "; allowed is one rank"));
  }
  if (extra && !resolved.options_as<SparseOptions>().absolute()) {
    return invalid(
        "k_extra is declared and index_space is sequence; allowed is absolute: entries name its "
        "rows");
  }
  return {};
}

Status check_options(const SparseOptions& options) {
  if (!options.scale) {
    return invalid(
        "option scale is not set; sparse_flash_attention requires it, any finite number above 0: "
        "D^-0.5 would be wrong with rotary columns");
  }
  if (options.absolute() && options.block_size != 1) {
    return invalid(text("option block_size is ", options.block_size,
                        " and index_space is absolute; allowed is 1, since blocks are aligned to "
                        "their sequence"));
  }
  return {};
}

// out has q's dtype, or is a float32 partial that others are merged with: a forward alone.
Status check_out(const Resolved& resolved) {
  const Dtype own = resolved.dtype(of::q), found = resolved.dtype(of::out);
  const bool backward = resolved.has(of::dout);
  if (!resolved.has(of::out) || found == own || (found == Dtype::f32 && !backward)) return {};
  return invalid(text("out has dtype ", word(found), "; allowed is ", word(own), ", that of q",
                      backward ? ", which gradients need" : ", or f32"));
}

Status check_backward(const Resolved& resolved) {
  if (!resolved.has(of::dout)) return {};
  for (int tensor = of::dq; tensor <= of::dsinks; ++tensor) {
    if (resolved.has(tensor)) return {};
  }
  return invalid(
      "dout is declared, but no gradient is: declare at least one of dq, dk, dv, dq_rope, dk_rope, "
      "dsinks");
}

int shift_of(int64_t power) {
  int shift = 0;
  while ((int64_t{1} << shift) < power) ++shift;
  return shift;
}

}  // namespace

Status check_sparse_extents(const Extents& extents, int block_shift) {
  const int64_t heads = extents[Dim::H], kv_heads = extents[Dim::HK];
  const int64_t group = extents[Dim::G];
  LATHE_TRY(check_heads(heads, kv_heads));
  if (heads != kUnknown && kv_heads > 0 && group != kUnknown && group != heads / kv_heads) {
    return invalid(text("softmax_max has G = ", group, "; allowed is H / HK = ", heads, " / ",
                        kv_heads, " = ", heads / kv_heads));
  }
  for (const auto& [name, dim] : {std::pair("q", Dim::Sq), std::pair("q", Dim::Tq),
                                  std::pair("k", Dim::Sk), std::pair("k", Dim::Tk)}) {
    if (extents[dim] <= kMostTokens) continue;
    return unsupported(
        text(name, " has ", name_of(dim), " = ", extents[dim], "; allowed are 0 to ", kMostTokens));
  }
  const int64_t entries = extents[Dim::topk];
  if (entries == 0) return invalid("indices has topk = 0; allowed are 1 and more");
  if (entries == kUnknown || entries <= kMostListed >> block_shift) return {};
  return unsupported(text("indices has topk = ", entries, " and block_size is ", 1 << block_shift,
                          "; allowed are products up to ", kMostListed));
}

Status check_byte_rows(int64_t found) {
  if (found == kUnknown || found == kByteRow) return {};
  return invalid(text("k has ", found, " bytes in a row; allowed with e4m3_656 are ", kByteRow));
}

Status check_sparse(const Resolved& resolved) {
  const auto& options = resolved.options_as<SparseOptions>();
  LATHE_TRY(check_layout(resolved));
  LATHE_TRY(check_keys(resolved));
  LATHE_TRY(check_extra(resolved));
  LATHE_TRY(check_options(options));
  LATHE_TRY(check_widths(resolved));
  LATHE_TRY(check_out(resolved));
  LATHE_TRY(check_backward(resolved));
  return check_sparse_extents(resolved.extents, shift_of(options.block_size));
}

Result<SparseRequest> sparse_request(const Resolved& resolved) {
  const auto& options = resolved.options_as<SparseOptions>();
  SparseRequest out;
  out.scale = *options.scale;
  out.tokens = is_packed_shape(resolved.problem.tensors[of::q].shape);
  out.causal = options.sparse_mode == 3;
  out.positions = out.causal && resolved.has(of::q_pos);
  out.absolute = options.absolute();
  out.sinks_apart = !options.sinks_in_statistics;
  out.block_shift = shift_of(options.block_size);
  out.splits = options.num_splits;
  SparseProblem& asked = out.problem;
  asked.element = resolved.dtype(of::q);
  asked.packed = resolved.has(of::cu_seqlens_q);
  if (asked.packed) asked.cu_seqlens = resolved.dtype(of::cu_seqlens_q);
  asked.head_dim = static_cast<int>(resolved[Dim::D]);
  asked.rope_dim = resolved.has(of::q_rope) ? static_cast<int>(resolved[Dim::R]) : 0;
  asked.value_dim = static_cast<int>(resolved[Dim::DV]);
  const int64_t heads = resolved[Dim::H], kv_heads = resolved[Dim::HK];
  if (heads != kUnknown && kv_heads > 0) asked.group = static_cast<int>(heads / kv_heads);
  asked.sinks = resolved.has(of::sinks);
  asked.values_in_keys = !resolved.has(of::v);
  asked.extra = resolved.has(of::k_extra);
  asked.byte_rows = resolved.dtype(of::k) == Dtype::u8;
  asked.forward = resolved.has(of::out) && resolved.problem.writes(of::out);
  asked.float_out = asked.forward && resolved.dtype(of::out) == Dtype::f32;
  asked.deterministic = options.deterministic;
  // A row's sums have another order where its list is cut, which hangs on how many rows there are.
  if (asked.deterministic && out.splits == 0) out.splits = 1;
  asked.split = out.splits != 1;
  out.gradients = {resolved.has(of::dq) || resolved.has(of::dq_rope),
                   resolved.has(of::dk) || resolved.has(of::dk_rope), resolved.has(of::dv),
                   resolved.has(of::dsinks)};
  asked.backward = out.gradients.dq || out.gradients.dk || out.gradients.dv;
  asked.dsinks = out.gradients.dsinks;
  return out;
}

}  // namespace lathe
