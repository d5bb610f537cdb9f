// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A kernel of one's own by lathe.hpp on LATHE_DEVICE (cuda, or sim): y = x * scale of the row, for
// two lengths, checked against a loop.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <lathe.hpp>

namespace {

constexpr int64_t D = 40;

constexpr const char* kText = R"text(/* lathe
name = "scale_rows"
[tensors]
x = { in = "f32", shape = "T D" }
scale = { in = "f32", shape = "T" }
y = { out = "f32", shape = "T D" }
[launch]
grid = "T"
block = 64
*/
template <class Config>
__device__ void kernel(const Params& p) {
  const long long row = blockIdx.x * p.D;
  for (int d = threadIdx.x; d < p.D; d += 64) p.y[row + d] = p.x[row + d] * p.scale[blockIdx.x];
}
)text";

lathe::Result<double> largest_error(const lathe::Context& context, lathe::Operator& scale_rows,
                                    int64_t T) {
  std::vector<float> x, scale;
  for (int64_t i = 0; i < T * D; ++i) x.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  for (int64_t i = 0; i < T; ++i) scale.push_back(static_cast<float>(i % 7) - 3);
  const auto on_x = context.upload(x), on_scale = context.upload(scale);
  const auto y = context.allocate<float>(x.size());
  if (!on_x || !on_scale || !y) return !on_x ? on_x.error() : !y ? y.error() : on_scale.error();
  const auto ran = scale_rows(
      {{"x", on_x->shaped({T, D})}, {"scale", on_scale->shaped({T})}, {"y", y->shaped({T, D})}});
  if (!ran) return ran.error();
  const auto found = y->download();
  if (!found) return found.error();
  double worst = 0;
  for (int64_t i = 0; i < T * D; ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(x[i]) * scale[i / D] - (*found)[i]));
  }
  return worst;
}

}  // namespace

int main() {
  const auto context = lathe::Context::make();
  if (!context) return std::fprintf(stderr, "%s\n", context.error().text.c_str()), 1;
  const auto kernel = lathe::Kernel::parse(kText, "scale_rows.cuh");
  if (!kernel) return std::fprintf(stderr, "%s\n", kernel.error().text.c_str()), 1;
  lathe::Operator scale_rows = kernel->in(*context);
  for (const int64_t T : {100, 3}) {
    const auto error = largest_error(*context, scale_rows, T);
    if (!error) return std::fprintf(stderr, "%s\n", error.error().text.c_str()), 1;
    std::printf("scale_rows of %d rows, %d columns: largest error %.1e\n", static_cast<int>(T),
                static_cast<int>(D), *error);
    if (*error > 1e-6) return 1;
  }
  return 0;
}
