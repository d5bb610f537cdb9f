// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a problem of sparse_flash_attention to integers and flags, with its refusals.
#include <cfloat>
#include <charconv>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "ops/heads.h"
#include "ops/sparse/run.h"

namespace lathe {
namespace {

namespace of = sparse_attention;

constexpr int kRowAlignment = 16;  // kernels copy rows in 16-byte pieces
constexpr int64_t kWidthStep = 8, kMostWidth = 576, kMostValueWidth = 512;
constexpr int64_t kMostTokens = int64_t{1} << 30;  // positions are added in 32 bits
constexpr int64_t kMostListed = int64_t{1} << 30;  // so are places in a list

bool has_tokens(const Shape& shape) {
  return has_letter(shape, Letter::Tq) || has_letter(shape, Letter::Tk);
}
bool has_batch(const Shape& shape) {
  return has_letter(shape, Letter::Sq) || has_letter(shape, Letter::Sk);
}

// The rank of q decides: every tensor with rows or keys has the batch axis, or none has. Offsets
// cut packed rows only.
Status check_layout(const lathe_problem& problem) {
  const Shape& queries = problem.tensors[of::q].shape;
  const bool tokens = has_tokens(queries);
  for (int i = 0; i < of::count; ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given || !(tokens ? has_batch : has_tokens)(declared.shape)) continue;
    const lathe_operator_tensor& tensor = problem.op->info.tensors[i];
    for (std::string_view each : split(tensor.shape, '|')) {
      const Shape allowed = parse_shape(each);
      if (allowed.rank == declared.shape.rank) continue;
      return invalid(text(tensor.name, " has rank ", declared.shape.rank, ", ",
                          shape_text(declared.shape), "; allowed is ", shape_text(allowed),
                          ", since q is ", shape_text(queries)));
    }
  }
  if (tokens || !problem.has(of::cu_seqlens_q)) return {};
  return invalid(text("cu_seqlens_q is declared and q has rank ", queries.rank, ", ",
                      shape_text(queries), "; offsets need packed rows, [Tq,H,D]"));
}

Status check_width(const char* tensor, const char* letter, int64_t width, int64_t most) {
  if (width != kUnknown && width >= kWidthStep && width <= most && width % kWidthStep == 0) {
    return {};
  }
  const bool open = width == kUnknown;
  return invalid(text(tensor, " has ", letter, " = ", width,
                      open ? "; it changes the code and must be given, a multiple of "
                           : "; allowed are multiples of ",
                      kWidthStep, " up to ", most));
}

Status check_widths(const lathe_problem& problem, const Extents& promised) {
  const int64_t width = promised[Letter::D], rope = promised[Letter::R];
  const int64_t values = promised[Letter::DV];
  LATHE_TRY(check_width("q", "D", width, kMostWidth));
  if (problem.has(of::q_rope)) {
    LATHE_TRY(check_width("q_rope", "R", rope, kMostWidth));
    if (width + rope > kMostWidth) {
      return invalid(text("q has D = ", width, " and q_rope has R = ", rope,
                          "; allowed are D + R up to ", kMostWidth));
    }
  }
  const bool inside = !problem.has(of::v);
  LATHE_TRY(check_width(inside ? "out" : "v", "DV", values, kMostValueWidth));
  if (!inside || values <= width) return {};
  return invalid(text("out has DV = ", values, " and k has D = ", width,
                      "; without v, values are columns of k: allowed are DV up to D"));
}

Status check_options(const lathe_problem& problem) {
  if (problem.option("scale") == "unset") {
    return invalid(
        "option scale is not set; sparse_flash_attention requires it, any finite number above 0: "
        "D^-0.5 would be wrong with rotary columns");
  }
  if (problem.option("index_space") == "absolute" && problem.option("block_size") != "1") {
    return invalid(text("option block_size is ", problem.option("block_size"),
                        " and index_space is absolute; allowed is 1, since blocks are aligned to "
                        "their sequence"));
  }
  return {};
}

// out is of q's dtype, or a float32 part that others are merged with: a forward alone.
Status check_out(const lathe_problem& problem) {
  const Dtype own = problem.tensors[of::q].dtype, found = problem.tensors[of::out].dtype;
  const bool backward = problem.has(of::dout);
  if (!problem.has(of::out) || found == own || (found == Dtype::f32 && !backward)) return {};
  return invalid(text("out has dtype ", word(found), "; allowed is ", word(own), ", that of q",
                      backward ? ", which gradients need" : ", or f32"));
}

Status check_backward(const lathe_problem& problem) {
  if (!problem.has(of::dout)) return {};
  for (int tensor = of::dq; tensor <= of::dsinks; ++tensor) {
    if (problem.has(tensor)) return {};
  }
  return invalid(
      "dout is declared, but no gradient is: declare at least one of dq, dk, dv, dq_rope, dk_rope, "
      "dsinks");
}

// An integer option, which its table has checked.
int64_t integer(const lathe_problem& problem, const char* name) {
  const std::string value = problem.option(name);
  int64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

int shift_of(int64_t power) {
  int shift = 0;
  while ((int64_t{1} << shift) < power) ++shift;
  return shift;
}

Status read_scale(const lathe_problem& problem, float* out) {
  const std::string value = problem.option("scale");
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  *out = number > FLT_MAX ? 0 : static_cast<float>(number);
  if (*out > 0) return {};
  return invalid(
      text("option scale is ", in_quotes(value), ", which float32 does not hold; allowed are >0"));
}

}  // namespace

Status check_sparse_extents(const Extents& extents, int block_shift) {
  const int64_t heads = extents[Letter::H], kv_heads = extents[Letter::HK];
  const int64_t group = extents[Letter::G];
  LATHE_TRY(check_heads(heads, kv_heads));
  if (heads != kUnknown && kv_heads > 0 && group != kUnknown && group != heads / kv_heads) {
    return invalid(text("softmax_max has G = ", group, "; allowed is H / HK = ", heads, " / ",
                        kv_heads, " = ", heads / kv_heads));
  }
  for (const auto& [name, letter] : {std::pair("q", Letter::Sq), std::pair("q", Letter::Tq),
                                     std::pair("k", Letter::Sk), std::pair("k", Letter::Tk)}) {
    if (extents[letter] <= kMostTokens) continue;
    return Status(Code::unsupported, text(name, " has ", name_of(letter), " = ", extents[letter],
                                          "; allowed are 0 to ", kMostTokens));
  }
  const int64_t entries = extents[Letter::topk];
  if (entries == 0) return invalid("indices has topk = 0; allowed are 1 and more");
  if (entries == kUnknown || entries <= kMostListed >> block_shift) return {};
  return Status(Code::unsupported,
                text("indices has topk = ", entries, " and block_size is ", 1 << block_shift,
                     "; allowed are products up to ", kMostListed));
}

Status check_sparse(const lathe_problem& problem, const Extents& promised) {
  LATHE_TRY(check_layout(problem));
  LATHE_TRY(check_options(problem));
  LATHE_TRY(check_widths(problem, promised));
  LATHE_TRY(check_out(problem));
  LATHE_TRY(check_backward(problem));
  return check_sparse_extents(promised, shift_of(integer(problem, "block_size")));
}

Result<SparseRequest> sparse_request(const lathe_problem& problem, const Extents& promised) {
  if (problem.alignment < kRowAlignment) {
    return Status(Code::unsupported,
                  text("alignment is ", problem.alignment, "; sparse_flash_attention needs ",
                       kRowAlignment, " bytes (lathe_problem_alignment)"));
  }
  SparseRequest out;
  LATHE_TRY(read_scale(problem, &out.scale));
  out.tokens = has_tokens(problem.tensors[of::q].shape);
  out.causal = problem.option("sparse_mode") == "3";
  out.positions = out.causal && problem.has(of::q_pos);
  out.absolute = problem.option("index_space") == "absolute";
  out.block_shift = shift_of(integer(problem, "block_size"));
  out.splits = integer(problem, "num_splits");
  SparseProblem& asked = out.problem;
  asked.element = problem.tensors[of::q].dtype;
  asked.packed = problem.has(of::cu_seqlens_q);
  if (asked.packed) asked.cu_seqlens = problem.tensors[of::cu_seqlens_q].dtype;
  asked.head_dim = static_cast<int>(promised[Letter::D]);
  asked.rope_dim = problem.has(of::q_rope) ? static_cast<int>(promised[Letter::R]) : 0;
  asked.value_dim = static_cast<int>(promised[Letter::DV]);
  const int64_t heads = promised[Letter::H], kv_heads = promised[Letter::HK];
  if (heads != kUnknown && kv_heads > 0) asked.group = static_cast<int>(heads / kv_heads);
  asked.sinks = problem.has(of::sinks);
  asked.values_in_keys = !problem.has(of::v);
  asked.forward = problem.has(of::out) && problem.writes(of::out);
  asked.float_out = asked.forward && problem.tensors[of::out].dtype == Dtype::f32;
  asked.deterministic = problem.option("deterministic") == "1";
  // A row's sums have another order where its list is cut, which hangs on how many rows there are.
  if (asked.deterministic && out.splits == 0) out.splits = 1;
  asked.split = out.splits != 1;
  out.gradients = {problem.has(of::dq) || problem.has(of::dq_rope),
                   problem.has(of::dk) || problem.has(of::dk_rope), problem.has(of::dv),
                   problem.has(of::dsinks)};
  asked.backward = out.gradients.dq || out.gradients.dk || out.gradients.dv;
  asked.dsinks = out.gradients.dsinks;
  return out;
}

}  // namespace lathe
