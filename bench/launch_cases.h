// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls of the operators of attention and KDA for `lathe_bench launch`, where nothing runs: tensors
// have sizes and addresses, and no values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/session.h"

namespace bench {

class LaunchCase {
 public:
  struct Tensor {
    const char* name;
    lathe_dtype dtype;
    std::vector<int64_t> declared, shape;  // -1 in `declared`: varies
  };
  struct Option {
    const char *name, *value;
  };
  LaunchCase(lathe_context* context, const char* op, std::vector<Tensor> tensors,
             const std::vector<Option>& options);
  void run() const;
  uint64_t launches() const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<apitest::Memory>> memory_;
  std::vector<DLTensor> views_;
  apitest::Plan plan_;
  std::vector<const DLTensor*> order_;
  std::unique_ptr<apitest::Memory> workspace_;
};

struct NamedCase {
  std::string name;
  std::unique_ptr<LaunchCase> call;
};
// Those of flash_attention, which has kernels of two families.
std::vector<NamedCase> attention_cases(lathe_context* context);
std::vector<NamedCase> launch_cases(lathe_context* context);

}  // namespace bench
