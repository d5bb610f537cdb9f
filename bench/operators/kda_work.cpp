// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/kda_work.h"

#include "bench/table.h"
#include "tests/numbers.h"

namespace bench {
namespace {

struct Row {
  int64_t batch, tokens, heads, width, sequences;
  Published figure;
};
// Names of repositories and of what is in them; milliseconds.
const Row kPublished[] = {
    {1, 8192, 96, 128, 0, {"FLA", "-", 3.12, 13.9, "fla-org/flash-linear-attention PR 908"}},
    {1, 8192, 96, 128, 0, {"FlashKDA", "H20", 2.622, 0, "MoonshotAI/FlashKDA BENCHMARK_H20.md"}},
    {1, 8192, 96, 128, 0, {"FLA", "H20", 4.839, 0, "MoonshotAI/FlashKDA BENCHMARK_H20.md"}},
    {1, 8192, 96, 128, 0, {"FlashKDA", "GB200", 1.009, 0, "MoonshotAI/FlashKDA"}},
    {1, 8192, 64, 128, 0, {"cuLA", "H200", 1.758, 0, "inclusionAI/cuLA"}},
    {1, 8192, 64, 128, 0, {"FLA", "H200", 1.819, 0, "inclusionAI/cuLA"}},
    {1, 8192, 64, 128, 0, {"FlashKDA", "H20", 1.622, 0, "MoonshotAI/FlashKDA BENCHMARK_H20.md"}},
    {2, 16384, 16, 128, 0, {"FLA", "-", 2.19, 9.39, "fla-org/flash-linear-attention PR 908"}},
    {4, 2048, 16, 128, 0, {"FLA", "-", 0.885, 2.58, "fla-org/flash-linear-attention PR 908"}},
    {4, 4096, 64, 128, 0, {"FLA", "-", 3.98, 18.0, "fla-org/flash-linear-attention PR 908"}},
    {8, 2048, 32, 256, 0, {"FLA", "-", 4.52, 20.3, "fla-org/flash-linear-attention PR 908"}},
    {8, 1024, 8, 64, 0, {"FLA", "-", 0.900, 2.56, "fla-org/flash-linear-attention PR 908"}},
    {1, 2048, 12, 128, 1, {"cudnn-frontend", "H100", 0.0216, 0, "NVIDIA/cudnn-frontend"}},
    {1, 8192, 24, 128, 1, {"FlashKDA", "H100", 1.003, 0, "NVIDIA/cudnn-frontend 1017"}},
    {1, 16384, 16, 128, 8, {"FlashKDA", "H100", 0.503, 0, "NVIDIA/cudnn-frontend 1017"}},
};

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
  std::vector<KdaSize> sizes;
  for (const Row& row : kPublished) {
    const KdaSize size = size_of(row.batch, row.tokens, row.heads, row.width, row.sequences);
    if (sizes.empty() || sizes.back().text() != size.text()) sizes.push_back(size);
  }
  return sizes;
}

std::vector<Published> published(const KdaSize& size) {
  std::vector<Published> found;
  for (const Row& row : kPublished) {
    const bool same = row.batch == size.batch && row.tokens == size.tokens &&
                      row.heads == size.heads && size.group == 1 && row.width == size.key_dim &&
                      row.width == size.value_dim && row.sequences == size.sequences;
    if (same) found.push_back(row.figure);
  }
  return found;
}

std::string nearest_published(const KdaSize& size, const std::string& gpu) {
  const auto lower = [](std::string word) {
    for (char& c : word) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return word;
  };
  const Published* best = nullptr;
  const std::vector<Published> all = published(size);
  for (const Published& each : all) {
    if (size.backward && each.both_ms == 0) continue;
    const bool own = lower(each.gpu) == gpu;
    if (best == nullptr || (own && lower(best->gpu) != gpu)) best = &each;
  }
  if (best == nullptr) return "-";
  const std::string device = best->gpu[0] == '-' ? "GPU not named" : best->gpu;
  return number(size.backward ? best->both_ms : best->forward_ms, size.backward ? 2 : 3) + " ms" +
         (size.backward ? " with the forward" : "") + " " + best->who + " (" + device + ")";
}

}  // namespace bench
