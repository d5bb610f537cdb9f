// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures Triton's cache and compiler on the kernels of flash-linear-attention, for `lathe_bench
// cache --peers`.
#pragma once

#include <string>
#include <vector>

namespace bench {

// Holds the times of one new interpreter, in microseconds.
struct TritonStart {
  std::string versions;         // "triton 3.9.0, fla 0.6.0"
  double import_us = 0;         // of torch, triton and the package
  std::vector<double> kernels;  // the forward; then the two of a backward, if they were wanted
};

// A cold forward of "attention", "attention_grouped" or "kda" in a new interpreter, without
// imports.
struct TritonForward {
  std::string versions;
  int kernels = 0;
  double microseconds = 0;
  double processor_microseconds = 0;  // ptxas included
};
// One process with an empty cache in `cache`; throws if a kernel was found in it.
TritonForward triton_forward(const std::string& folder, const std::string& cache,
                             const std::string& what);

// One process with its cache in `cache`; throws if a kernel was found and `cold` is set, or was not
// and it is not.
TritonStart triton_start(const std::string& folder, const std::string& cache, bool both, bool cold);

}  // namespace bench
