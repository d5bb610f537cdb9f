// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/kda_work.h"

#include "tests/numbers.h"

namespace bench {
namespace {

KdaSize size_of(int64_t batch, int64_t tokens, int64_t heads, int64_t width, int64_t sequences) {
  KdaSize size;
  size.batch = batch, size.tokens = tokens, size.heads = heads;
  size.key_dim = size.value_dim = width;
  size.sequences = sequences;
  return size;
}

}  // namespace

std::string KdaSize::text() const {
  std::string out =
      "B" + std::to_string(batch) + " T" + std::to_string(tokens) + " H" + std::to_string(heads);
  if (group > 1) out += " HV" + std::to_string(value_heads());
  out += " K" + std::to_string(key_dim) + " V" + std::to_string(value_dim);
  if (sequences > 0) out += " N" + std::to_string(sequences);
  if (fused) out += " fused";
  if (final_state) out += " states";
  if (gate != dtype) out += " g32";
  if (segments > 0) out += " segments" + std::to_string(segments);
  return out;
}

const char* KdaSize::dtype_word() const {
  return dtype == LATHE_F32 ? "f32" : dtype == LATHE_F16 ? "f16" : "bf16";
}

double KdaSize::minimum_bytes() const {
  const auto of = [](int64_t count, lathe_dtype type) {
    return static_cast<double>(count) * static_cast<double>(numbers::bytes_of(type));
  };
  const int64_t rows = batch * tokens;
  const double keys = of(rows * heads * key_dim, dtype);
  const double values = of(rows * value_heads() * value_dim, dtype);
  const double gates = of(rows * value_heads() * key_dim, gate),
               betas = of(rows * value_heads(), dtype);
  const double state = of(parts() * value_heads() * key_dim * value_dim, LATHE_F32);
  const double parameters = fused ? of(value_heads() * (1 + key_dim), LATHE_F32) : 0;
  if (!backward) {
    return 2 * keys + 2 * values + gates + betas + parameters + (final_state ? 2 * state : 0);
  }
  return 4 * keys + 3 * values + 2 * gates + 2 * betas + 2 * parameters +
         (final_state ? 3 * state : 0);
}

double KdaSize::state_ops() const {
  const auto pairs = static_cast<double>(batch * tokens * value_heads() * key_dim * value_dim);
  return (backward ? 16 : 6) * pairs;
}

double KdaSize::block_ops() const {
  constexpr double kBlock = 16;
  const auto rows = static_cast<double>(batch * tokens * value_heads());
  const auto widths = static_cast<double>(key_dim + value_dim);
  // Products of 16 by 16 by a width, 2 of each width: scores of q and k and of k, the inverse and
  // the scores times values. A backward has about 6: those again, and gradients of both factors.
  return (backward ? 3 : 1) * 2 * 2 * kBlock * rows * widths;
}

std::vector<KdaSize> published_sizes() {
  return {size_of(1, 8192, 96, 128, 0), size_of(1, 8192, 64, 128, 0), size_of(2, 16384, 16, 128, 0),
          size_of(4, 2048, 16, 128, 0), size_of(4, 4096, 64, 128, 0), size_of(8, 2048, 32, 256, 0),
          size_of(8, 1024, 8, 64, 0),   size_of(1, 2048, 12, 128, 1), size_of(1, 8192, 24, 128, 1),
          size_of(1, 16384, 16, 128, 8)};
}

}  // namespace bench
