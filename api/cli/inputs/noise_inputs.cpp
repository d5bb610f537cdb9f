// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/inputs/noise_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "api/cli/inputs/made_up.h"

namespace lathe::cli {
namespace {

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

double half(double noise) { return 0.5 * noise; }
double small(double noise) { return 0.1 * noise; }
double decay(double noise) { return -0.2 * std::abs(noise); }  // log of a factor below 1
double share(double noise) { return 1 / (1 + std::exp(-noise)); }
double slope(double noise) { return 0.01 * std::abs(noise); }
// Above what scores of such queries and keys add up to, so that no weight passes 1.
double sum_of_scores(double noise) { return 10 + 0.1 * noise; }

using Transform = double (*)(double);
Transform transform_of(const std::string& name, const Specs& specs) {
  // Where a step of size beta corrects a state, rows are about as long as 1 or shorter.
  if ((name == "q" || name == "k") && specs.count("beta") > 0) return small;
  if (name == "g") return decay;
  if (name == "beta") return share;
  if (name == "A_log" || name == "dt_bias") return small;
  if (name.find("slopes") != std::string::npos) return slope;
  if (name.find("lse") != std::string::npos && name[0] != 'd') return sum_of_scores;
  if (name.find("state") != std::string::npos) return small;
  return half;
}

// Noise costs more than a copy: a table of it repeats, with a length that no extent divides.
HostTensor noise_tensor(const TensorSpec& spec, uint64_t seed, Transform transform) {
  constexpr int64_t kTable = 65521;
  HostTensor tensor = empty_tensor(spec);
  const int64_t count = element_count(spec.shape), made = std::min(count, kTable);
  Noise noise(seed);
  for (int64_t i = 0; i < made; ++i) set_element(&tensor, i, transform(noise.next()));
  const size_t bytes = info(spec.dtype).bytes;
  for (int64_t i = made; i < count; i += made) {
    const auto length = static_cast<size_t>(std::min(made, count - i)) * bytes;
    std::memcpy(tensor.data.data() + static_cast<size_t>(i) * bytes, tensor.data.data(), length);
  }
  return tensor;
}

}  // namespace

void require_extents(const Problem& problem) {
  for (const auto* specs : {&problem.inputs, &problem.outputs}) {
    for (const auto& [name, spec] : *specs) {
      if (std::count(spec.shape.begin(), spec.shape.end(), -1) == 0) continue;
      refuse("tensor " + in_quotes(name) + " is " + shape_text(spec.shape) +
             ", but what is measured needs every extent (no -1)");
    }
  }
}

TensorMap noise(const Specs& specs, uint64_t seed) {
  TensorMap out;
  for (const auto& [name, spec] : specs) {
    out.emplace(name, noise_tensor(spec, ++seed, transform_of(name, specs)));
  }
  return out;
}

TensorMap noise_inputs(const Problem& problem, uint64_t seed) {
  TensorMap out = made_up_integers(problem);
  Specs floats = problem.inputs;
  for (const auto& [name, tensor] : out) floats.erase(name);
  out.merge(noise(floats, seed));
  return out;
}

}  // namespace lathe::cli
