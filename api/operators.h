// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operator table: names, tensors and options of every operator. Validation, the command line's
// help and the documentation come from it; nothing else knows the surface.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/lathe.h"
#include "codegen/base/dtype.h"
#include "codegen/base/status.h"

namespace lathe {

// The letters of shapes. Extents that disagree about a letter are refused.
enum class Letter : uint8_t { B, T, N, D, W };
inline constexpr int kLetters = 5;
inline constexpr char kLetterNames[] = "BTNDW";

inline constexpr int kMaxRank = 3;
inline constexpr int kMaxTensors = 16;
inline constexpr int64_t kUnknown = -1;            // an extent that varies from run to run
inline constexpr int64_t kMaxExtent = 2147483647;  // kernels count in 32 bits

// An extent for each letter, kUnknown where nothing is known.
struct Extents {
  std::array<int64_t, kLetters> value{kUnknown, kUnknown, kUnknown, kUnknown, kUnknown};
  int64_t& operator[](Letter letter) { return value[static_cast<int>(letter)]; }
  int64_t operator[](Letter letter) const { return value[static_cast<int>(letter)]; }
};

// A shape of the table, parsed: "B,T,D", "N+1".
struct Dimension {
  Letter letter;
  int plus;
};
struct Shape {
  int rank = 0;
  std::array<Dimension, kMaxRank> dims{};
};
Shape parse_shape(std::string_view shape);

// What the table says beyond the C struct.
struct TensorRules {
  bool strided = false;    // an activation: batch and token strides are free, wide accesses
  const char* needs = "";  // "dx,bias": tensors without which this one means nothing
};

enum class Family { conv, conv_update };

struct Operator {
  lathe_operator_info info;
  const TensorRules* rules;  // [info.tensor_count]
  Family family;
  const char* produces;  // "y,dx": at least one of these must be declared
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

}  // namespace lathe
