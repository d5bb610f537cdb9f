// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operator table: names, tensors and options of every operator. Validation, the command line's
// help and the documentation come from it; nothing else knows the surface.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/lathe.h"
#include "codegen/base/dtype.h"
#include "codegen/base/status.h"

namespace lathe {

// The letters of shapes. Extents that disagree about a letter are refused.
// `fixed` is that of a number, as in "NP,7": its extent is 0, and 7 what a dimension adds to it.
enum class Letter : uint8_t {
  B,
  T,
  N,
  D,
  W,
  H,
  HK,
  DV,
  Sq,
  Sk,
  Tq,
  Tk,
  P,
  page,
  M,
  K,
  V,
  HV,
  HVK,
  S,
  spec,
  NT,
  slots,
  C0,
  C1,
  C2,
  C3,
  NP,
  R,
  topk,
  G,
  fixed
};
inline constexpr const char* kLetterNames[] = {
    "B",     "T",  "N",    "D",  "W",  "H",  "HK", "DV",   "Sq", "Sk",   "Tq",
    "Tk",    "P",  "page", "M",  "K",  "V",  "HV", "HV*K", "S",  "spec", "NT",
    "slots", "C0", "C1",   "C2", "C3", "NP", "R",  "topk", "G",  ""};
inline constexpr int kLetters = 32;
static_assert(std::size(kLetterNames) == kLetters);
inline const char* name_of(Letter letter) { return kLetterNames[static_cast<int>(letter)]; }

inline constexpr int kMaxRank = 5;
inline constexpr int kMaxTensors = 24;
inline constexpr int64_t kUnknown = -1;            // an extent that varies from run to run
inline constexpr int64_t kMaxExtent = 2147483647;  // kernels count in 32 bits

// An extent for each letter, kUnknown where nothing is known.
struct Extents {
  std::array<int64_t, kLetters> value;
  Extents() {
    value.fill(kUnknown);
    value[static_cast<int>(Letter::fixed)] = 0;
  }
  int64_t& operator[](Letter letter) { return value[static_cast<int>(letter)]; }
  int64_t operator[](Letter letter) const { return value[static_cast<int>(letter)]; }
};

// A shape of the table, parsed: "B,T,D", "N+1". A tensor that may have several, "B,Sq,H,D|Tq,H,D",
// has one of each rank; a shape with Tq or Tk is that of packed sequences. Of two shapes of one
// rank, "N,HV,K,V|N,HV,V,K", the second holds where the option state_v_first is set; with the
// option axis, the one of that number.
struct Dimension {
  Letter letter;
  int plus;
};
struct Shape {
  int rank = 0;
  std::array<Dimension, kMaxRank> dims{};
};
Shape parse_shape(std::string_view shape);  // a single one
// The shape of this rank, of several the one of that number, or the last; of rank 0 if there is
// none.
Shape shape_of_rank(std::string_view shapes, int rank, int number = 0);
std::string shape_text(const Shape& shape);  // "[B,T,D]"
bool has_letter(const Shape& shape, Letter letter);

// What the table says beyond the C struct.
struct TensorRules {
  bool strided = false;    // an activation: batch and token strides are free, wide accesses
  const char* needs = "";  // "dx,bias": tensors without which this one means nothing
  // Of the address, in bytes: 0: what wide accesses of rows take if it is strided, otherwise the
  // dtype's; 1: the dtype's. Never more than the problem promises.
  int alignment = 0;
};

class Executor;
struct DeviceFacts;

// What an operator's batch and its offsets say about the number of sequences.
enum class Sequences {
  one_row,  // offsets pack them into a row, B is 1; without offsets each row is one: N is B
  either,   // offsets or a batch axis: what is known of one holds for the other
  apart     // both, each on its own; the operator's check knows
};

struct Operator {
  lathe_operator_info info;
  const TensorRules* rules;  // [info.tensor_count]
  const char* produces;      // "y,dx": at least one of these must be declared
  // What the table cannot say. After the checks that it can.
  Status (*check)(const lathe_problem&, const Extents& promised);
  // Chooses kernels; compiles nothing. After check.
  Result<std::unique_ptr<Executor>> (*make)(const lathe_problem&, const Extents& promised,
                                            const DeviceFacts&);
  Sequences sequences = Sequences::one_row;
  bool chain = false;  // over ranks states go along the tokens: parts must be contiguous
};

std::span<const Operator> operators();
const Operator* find_operator(std::string_view name);
// Index into info.tensors or info.options; -1 if there is none of the name.
int find_tensor(const Operator& op, std::string_view name);
int find_option(const Operator& op, std::string_view name);

// "x, weight, bias": for messages.
std::string operator_names();
std::string tensor_names(const Operator& op);
std::string option_names(const Operator& op);

std::vector<std::string_view> split(std::string_view list, char at);
bool listed(std::string_view list, char at, std::string_view word);

// Indices of the tables' tensors, for the code that fills kernel parameters.
namespace conv {
enum Tensor : int {
  x,
  weight,
  bias,
  residual,
  initial_state,
  cu_seqlens,
  dy,
  dfinal_state,
  y,
  final_state,
  dx,
  dweight,
  dbias,
  dresidual,
  dinitial_state,
  count
};
}
namespace conv_update {
enum Tensor : int { x, weight, bias, residual, state, y, count };
}
namespace attention {
enum Tensor : int {
  q,
  k,
  v,
  alibi_slopes,
  sinks,
  cu_seqlens_q,
  cu_seqlens_k,
  dout,
  dlse,
  capture_0,
  capture_1,
  capture_2,
  capture_3,
  out,
  lse,
  dq,
  dk,
  dv,
  dsinks,
  count
};
}
namespace attention_block {
enum Tensor : int {
  q,
  k,
  v,
  pairs,
  pair_batch,
  q_pos,
  k_pos,
  alibi_slopes,
  capture_0,
  capture_1,
  capture_2,
  capture_3,
  out,
  lse,
  count
};
}
namespace attention_block_bwd {
enum Tensor : int {
  q,
  k,
  v,
  pairs,
  pair_batch,
  q_pos,
  k_pos,
  alibi_slopes,
  capture_0,
  capture_1,
  capture_2,
  capture_3,
  dout,
  lse,
  delta,
  dq,
  dk,
  dv,
  count
};
}
namespace attention_delta {
enum Tensor : int { out, dout, lse, dlse, sinks, delta, dsinks, count };
}
namespace lse_merge {
enum Tensor : int { block_out, block_lse, sinks, out, lse, rounded, count };
}
namespace attention_decode {
enum Tensor : int {
  q,
  k_cache,
  v_cache,
  block_table,
  cache_seqlens,
  k_new,
  v_new,
  alibi_slopes,
  sinks,
  capture_0,
  capture_1,
  capture_2,
  capture_3,
  out,
  lse,
  count
};
}
namespace kda {
enum Tensor : int {
  q,
  k,
  v,
  g,
  beta,
  A_log,
  dt_bias,
  initial_state,
  cu_seqlens,
  d_o,  // "do"
  dht,
  saved_values,
  saved_states,
  o,
  final_state,
  chunk_states,
  dq,
  dk,
  dv,
  dg,
  dbeta,
  dA_log,
  ddt_bias,
  dinitial_state,
  count
};
}
namespace sparse_attention {
enum Tensor : int {
  q,
  k,
  v,
  q_rope,
  k_rope,
  indices,
  cu_seqlens_q,
  cu_seqlens_k,
  q_pos,
  sinks,
  dout,
  out,
  softmax_max,
  softmax_sum,
  lse,
  dq,
  dk,
  dv,
  dq_rope,
  dk_rope,
  dsinks,
  count
};
}
namespace shard_rows {  // shard and unshard
enum Tensor : int { x, indices, y, buffer, count };
}
namespace kda_recurrent {
enum Tensor : int {
  q,
  k,
  v,
  g,
  beta,
  A_log,
  dt_bias,
  initial_state,
  cu_seqlens,
  state_pool,
  state_indices,
  num_accepted_tokens,
  o,
  final_state,
  count
};
}

}  // namespace lathe
