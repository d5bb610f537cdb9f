// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// y = silu(causal_conv1d(x, weight)) by lathe.hpp on LATHE_DEVICE (cuda, or sim), for two lengths
// by one plan, checked against a loop.
#include <cmath>
#include <cstdio>
#include <lathe.hpp>

namespace {

constexpr int64_t D = 64, W = 4;

std::vector<float> values(int64_t count, int64_t step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(i * step % 101) / 50 - 1);
  }
  return values;
}

lathe::Result<double> largest_error(const lathe::Context& context, lathe::Operator& conv,
                                    int64_t T) {
  const std::vector<float> x = values(T * D, 37), weight = values(D * W, 53);
  const auto on_x = context.upload(x), on_weight = context.upload(weight);
  const auto y = context.allocate<float>(x.size());
  if (!on_x || !on_weight || !y) return !on_x ? on_x.error() : !y ? y.error() : on_weight.error();
  const auto ran = conv({{"x", on_x->shaped({1, T, D})},
                         {"weight", on_weight->shaped({D, W})},
                         {"y", y->shaped({1, T, D})}});
  if (!ran) return ran.error();
  const auto found = y->download();
  if (!found) return found.error();
  double worst = 0;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t d = 0; d < D; ++d) {
      double z = 0;
      for (int64_t i = std::max<int64_t>(0, W - 1 - t); i < W; ++i) {
        z += static_cast<double>(weight[d * W + i]) * x[(t - W + 1 + i) * D + d];
      }
      worst = std::max(worst, std::abs(z / (1 + std::exp(-z)) - (*found)[t * D + d]));
    }
  }
  return worst;
}

}  // namespace

int main() {
  const auto context = lathe::Context::make();
  if (!context) return std::fprintf(stderr, "%s\n", context.error().text.c_str()), 1;
  lathe::Operator conv(*context, "causal_conv1d");
  conv.set("activation", "silu");
  for (const int64_t T : {100, 37}) {
    const auto error = largest_error(*context, conv, T);
    if (!error) return std::fprintf(stderr, "%s\n", error.error().text.c_str()), 1;
    std::printf("causal_conv1d of %d tokens, %d channels: largest error %.1e\n",
                static_cast<int>(T), static_cast<int>(D), *error);
    if (*error > 1e-5) return 1;
  }
  return 0;
}
