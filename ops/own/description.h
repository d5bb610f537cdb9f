// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the description in front of a caller's kernel says, read and checked: tensors, options,
// constants, launches, workspace and refusals. docs/own_kernels.md has its form.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/base/dtype.h"
#include "codegen/base/status.h"
#include "ops/own/expression.h"
#include "ops/schema.h"

namespace lathe::own {

inline constexpr size_t kMostOptions = 32;
inline constexpr size_t kMostConstants = 32;
inline constexpr size_t kMostValues = 16;       // of a constant's list
inline constexpr size_t kMostCandidates = 256;  // combinations of all lists
inline constexpr size_t kMostWorkspaces = 16;
inline constexpr size_t kMostKernels = 8;
inline constexpr size_t kMostRules = 32;
inline constexpr size_t kMostNameBytes = 48;
inline constexpr size_t kMostSentenceBytes = 1000;

// A position in the text, counted from 1.
struct Position {
  int line = 1, column = 1;
};

struct TensorText {
  std::string name, shape, what;  // shape: "T,D"
  std::string dtypes;             // "f16|bf16", or "=x"
  std::string needs;              // "a,b": it means nothing without each of these
  Role role = Role::input;
  bool optional = false, strided = false;
  int aligned = 0;
  // The box of its tensor map has these extents, the fastest dimension first; empty: no map.
  std::vector<Expression> box;
  Expression swizzle;  // empty: 0
  bool has_map = false;
};

struct OptionText {
  std::string name, fallback, allowed, what;
  OptionType type = OptionType::integer;
  bool compiled = false;  // a constant of the Config, not a field of Params
};

struct DimText {
  std::string name;
  bool compiled = false;  // a constant of the Config: its extent changes the code
  Expression extent;      // of a dim that follows from others; empty: tensors say it
};

struct ConstantText {
  std::string name;
  int dim = -1;                 // the dim whose extent it is
  std::vector<int64_t> values;  // several: they are tuned
  Expression value;             // in place of values
};

struct WorkspaceText {
  std::string name;
  Dtype dtype = Dtype::f32;
  Expression count;  // of elements
};

struct KernelText {
  std::string function = "kernel";
  std::vector<Expression> grid, block;  // one to three each
  Expression shared, cluster, min_blocks;
};

struct CostText {
  Expression bytes, flops, tensor_ops;  // empty: what tensors hold, 0, 0
};

// What is refused, and why.
struct RuleText {
  Expression when;
  std::string why;
};

// Says where values of expressions lie: dims, options, constants, facts of the device, bytes(x) and
// given(x) of each tensor.
struct SymbolLayout {
  int dims = 0, options = 0, constants = 0, sm = 0, sm_a = 0, multiprocessors = 0, bytes = 0,
      given = 0;
  int count = 0;
};

struct Description {
  std::string name, summary, reference;  // name, reference: empty if the text gives none
  std::vector<TensorText> tensors;
  std::vector<OptionText> options;
  std::vector<DimText> dims;
  std::vector<ConstantText> constants;
  std::vector<WorkspaceText> workspaces;
  std::vector<KernelText> kernels;
  std::vector<RuleText> rules;
  CostText cost;
  SymbolLayout symbols;
};

// Reads the description of a text. INVALID_ARGUMENT with file, line and column, the thing that is
// wrong, what was found and what is allowed.
Result<std::shared_ptr<const Description>> read_description(const std::string& text,
                                                            const std::string& file);

}  // namespace lathe::own
