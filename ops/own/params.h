// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The parameters of a caller's kernels: the struct's declaration for the device, and where the host
// puts its fields. Tensor maps come first, then pointers, 64-bit numbers and 32-bit ones, so there
// are no holes.
#pragma once

#include <string>
#include <vector>

#include "ops/own/operator.h"

namespace lathe::own {

// The driver takes at most 4 KiB.
inline constexpr int kMostParamsBytes = 4096;
inline constexpr int kMapBytes = 128, kMapAlignment = 64;

struct ParamsLayout {
  struct Field {
    int offset = 0, index = 0, dim = 0;
  };
  std::vector<Field> maps;        // index: of the tensor, dim: which of the spec's recipes
  std::vector<Field> tensors;     // pointers; index: of the tensor
  std::vector<Field> workspaces;  // pointers; index: of the array
  std::vector<Field> strides;     // index: of the tensor, dim: which of its dimensions
  std::vector<Field> dims;        // index: of own0, own1, ...
  std::vector<char> values;       // the whole struct, with the options' values in it
  std::string declaration;        // "struct Params { ... };"
  std::string last_field;
  int last_offset = 0;
};

ParamsLayout lay_params(const lathe_problem& problem);

}  // namespace lathe::own
