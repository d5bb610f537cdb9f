// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What is asked of an operator: which tensors go in and, by the rules of operators.md, which come
// out. Everything is read off the library's operator table; no operator is known by name here.
#pragma once

#include <utility>

#include "api/cli/extents.h"
#include "api/cli/handles.h"
#include "api/cli/tensors.h"

namespace lathe::cli {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct Problem {
  const lathe_operator_info* op = nullptr;
  Settings settings;
  Specs inputs;                                              // also those that are changed in place
  Specs outputs;                                             // those that are only written
  std::vector<std::pair<std::string, std::string>> aliases;  // dresidual is the bytes of dy
  std::map<std::string, int64_t> extents;                    // B, T, D, ...; -1: varies
};

// Refuses unknown operators, naming those there are.
const lathe_operator_info* find_operator(const std::string& name);
const lathe_operator_tensor* find_tensor(const lathe_operator_info* op, const std::string& name);

// "key=value" texts; each key once.
Settings parse_settings(const std::vector<std::string>& texts);
// The value of an option; its default if it is not set.
std::string setting(const Problem& problem, const std::string& option);

// Whether a run reads a tensor: with some options results of an earlier one are given.
bool is_given(const Problem& problem, const lathe_operator_tensor& tensor);

// Checks names, presence and extents against the table. Outputs among `tensors` are taken as the
// list of what is wanted; without any, it is what operators.md says for these inputs.
Problem make_problem(const lathe_operator_info* op, Settings settings, const Specs& tensors);

// Offsets live on the device, where nobody checks them: first 0, last T, never decreasing.
void check_offsets(const Problem& problem, const TensorMap& inputs);

// NT: chunks of chunk_size tokens. Of packed sequences the most there can be, and with the offsets
// how many there are.
void imply_chunks(Problem* problem);
void fit_chunks(Problem* problem, const TensorMap& inputs);
// So are sinks: -inf is none, NaN is refused.
void check_sinks(const TensorMap& inputs);

// Slots of a pool of states are there too: each below S, none in use by two sequences, and accepted
// tokens that are columns.
void check_slots(const Problem& problem, const TensorMap& inputs);
// Pages live there too: block_table within the cache as far as it is in use, and cache_seqlens
// within block_table.
void check_pages(const Problem& problem, const TensorMap& inputs);

// Whether a tensor is in and out, and the run changes it.
bool is_changed(const Problem& problem, const std::string& name);

// "d" + the name of an input: its gradient.
bool is_input_gradient(const lathe_operator_info* op, const std::string& name);

// The library's problem. Extents that may change from run to run are left open, so that the plan is
// the same one that a manifest with open extents makes.
ProblemHandle declare(const Problem& problem);

}  // namespace lathe::cli
