// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the problems whose start `lathe_bench cache` times.
#pragma once

#include <string>
#include <vector>

#include "tests/harness/session.h"

namespace bench {

struct StartProblem {
  struct Tensor {
    const char* name;
    lathe_dtype dtype;
    std::vector<int64_t> shape;  // -1: varies from call to call
  };
  struct Option {
    const char *name, *value;
  };
  const char* op;
  std::vector<Tensor> tensors;
  std::vector<Option> options;

  apitest::Problem declare() const;
};

// Makes the problems of a word. "all": every operator of one rank, forward and backward, in several
// types. "one": a kernel, conv1d's forward. "conv": conv1d, forward and backward. "attention",
// "attention_grouped", "kda": a forward of each. Throws on another word.
std::vector<StartProblem> start_problems(const std::string& which);

}  // namespace bench
