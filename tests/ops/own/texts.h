// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Texts of kernels for tests, and operators that are made of them.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/harness/owners.h"

namespace own_texts {

using Kernel = std::unique_ptr<lathe_operator, apitest::Destroy<lathe_operator_destroy>>;

inline Kernel parse(const std::string& text, const char* file = "k.cuh") {
  lathe_operator* made = nullptr;
  if (lathe_operator_parse(&made, text.data(), text.size(), file) != LATHE_OK) {
    throw std::runtime_error(lathe_last_error());
  }
  return Kernel(made);
}
inline std::string name_of(const Kernel& kernel) {
  return lathe_operator_describe(kernel.get())->name;
}

// A kernel that adds a number to each element of x [T,D].
inline std::string shifted(const std::string& more = "", const std::string& number = "1.0f") {
  return "// A kernel.\n/* lathe\nsummary = \"y = x + 1\"\n[tensors]\n"
         "x = { in = [\"f32\", \"bf16\"], shape = \"T D\" }\ny = { out = \"x\", shape = \"T D\" "
         "}\n" +
         more +
         "[launch]\ngrid = \"ceil_div(T * D, 64)\"\nblock = 64\n*/\n"
         "template <class Config> __device__ void kernel(const Params& p) {\n"
         "  const long long i = 64LL * blockIdx.x + threadIdx.x;\n"
         "  if (i >= p.T * p.D) return;\n"
         "  p.y[i] = lathe::from_float<typename Config::x_t>(lathe::to_float(p.x[i]) + " +
         number + ");\n}\n";
}

}  // namespace own_texts
