// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How the demo's problems are made: seeded inputs, tensor by tensor.
#pragma once

#include <cmath>
#include <random>

#include "api/cli/demo/demo_cases.h"

namespace lathe::cli {

// Inputs of KDA from noise: a decay below 0, and a step between 0 and 1.
inline double decay(double noise) { return -0.2 * std::abs(noise); }
inline double step(double noise) { return 1 / (1 + std::exp(-noise)); }

// Normal enough, and the same on every machine, which <random>'s distributions do not promise.
class Noise {
 public:
  explicit Noise(uint64_t seed) : engine_(seed) {}
  double next() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine_() >> 11) * 0x1p-53;
    return sum;
  }

 private:
  std::mt19937_64 engine_;
};

class Builder {
 public:
  using Transform = double (*)(double);

  explicit Builder(uint64_t seed) : noise_(seed) {}

  Builder& add(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape,
               Transform transform = nullptr) {
    HostTensor tensor = empty_tensor({dtype, std::move(shape)});
    for (int64_t i = 0; i < element_count(tensor.spec.shape); ++i) {
      const double noise = noise_.next();
      set_element(&tensor, i, transform == nullptr ? noise : transform(noise));
    }
    inputs_[name] = std::move(tensor);
    return *this;
  }

  Builder& integers(const char* name, const std::vector<int64_t>& values,
                    std::vector<int64_t> shape = {}) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    HostTensor tensor = empty_tensor({LATHE_I32, std::move(shape)});
    for (size_t i = 0; i < values.size(); ++i) {
      set_element(&tensor, static_cast<int64_t>(i), static_cast<double>(values[i]));
    }
    inputs_[name] = std::move(tensor);
    return *this;
  }

  const TensorMap& inputs() const { return inputs_; }

  DemoCase make(const char* op, std::string title, Settings settings, int ranks = 0,
                bool known = false) const {
    Specs specs;
    for (const auto& [name, tensor] : inputs_) specs[name] = tensor.spec;
    Problem problem = make_problem(find_operator(op), std::move(settings), specs);
    return {std::move(title), std::move(problem), inputs_, ranks, known};
  }

 private:
  Noise noise_;
  TensorMap inputs_;
};

}  // namespace lathe::cli
