// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The snippets of the block step's tests, and the same functions for the reference.
#include "tests/templates/attention_block_case.h"

namespace block_case {
namespace {

// A score is stretched and moved by functions of positions, head and batch.
const char* const kScoreMod = R"(
__device__ float stretch(int batch, int head, int q, int k) {
  return 1.0f + 0.125f * ((q + 3 * k + head + batch) & 3);
}
__device__ float score_mod(float score, int batch, int head, int q, int k, const Captures& c) {
  return score * stretch(batch, head, q, k) + c.get<1>((k + q) & 7) + c.scalar(2);
}
__device__ float score_mod_bwd(float dscore, float score, int batch, int head, int q, int k) {
  return dscore * stretch(batch, head, q, k);
}
)";
constexpr float kMoves[] = {0.5f, -0.25f, 0, 1, 0.75f, -1, 0.125f, 0.25f};
constexpr float kMove = 0.375f;
// Cells of 40 rows and 48 keys are whole, mixed or empty.
const char* const kMaskMod = R"(
__device__ int cell_kind(int batch, int head, int q, int k) {
  return (q / 40 + 2 * (k / 48) + head + batch) % 4;
}
__device__ bool mask_mod(int batch, int head, int q, int k) {
  const int kind = cell_kind(batch, head, q, k);
  return kind == 1 || kind == 2 || (kind == 0 && (q * 31 + k * 7) % 5 != 0);
}
)";
const char* const kMaskTile = R"(
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {
  if (q0 / 40 != (q1 - 1) / 40 || k0 / 48 != (k1 - 1) / 48) return 1;
  const int kind = cell_kind(batch, head, q0, k0);
  return kind == 1 || kind == 2 ? 2 : kind == 0 ? 1 : 0;
}
)";

}  // namespace

std::vector<float> captured_moves() { return {std::begin(kMoves), std::end(kMoves)}; }
float captured_move() { return kMove; }

void add_snippets(const Setup& s, lathe::AttentionProblem* problem) {
  if (s.has("score")) {
    problem->snippets.push_back({"score_mod", "score", kScoreMod});
    problem->captures[1] = lathe::Dtype::f32;
  }
  if (s.has("mask")) {
    const std::string tiles = s.has("tiles") ? kMaskTile : "";
    problem->snippets.push_back({"mask_mod", "mask", kMaskMod + tiles});
  }
}

Step::Place Step::place(int64_t i, int64_t j) const {
  if (!q_positions.empty()) {
    return {q_positions[static_cast<size_t>(i)], k_positions[static_cast<size_t>(j)], 0};
  }
  for (const Pair& pair : pairs) {
    if (i < pair.qa || i >= pair.qb || j < pair.ka || j >= pair.kb) continue;
    return {static_cast<int>(pair.q0 + i - pair.qa), static_cast<int>(pair.k0 + j - pair.ka),
            batches ? static_cast<int>(pair.batch) : 0};
  }
  return {0, 0, 0};
}

void put_snippets(const Setup& s, const Step& step, ref::AttentionBlock* a) {
  if (s.has("score")) {
    a->score_mod = [&step](double score, int64_t i, int64_t j, int64_t h) {
      const auto [q, k, batch] = step.place(i, j);
      const double stretch = 1 + 0.125 * ((q + 3 * k + static_cast<int>(h) + batch) & 3);
      return std::pair(score * stretch + kMoves[(k + q) & 7] + kMove, stretch);
    };
  }
  if (s.has("mask")) {
    a->mask_mod = [&step](int64_t i, int64_t j, int64_t h) {
      const auto [q, k, batch] = step.place(i, j);
      const int kind = (q / 40 + 2 * (k / 48) + static_cast<int>(h) + batch) % 4;
      return kind == 1 || kind == 2 || (kind == 0 && (q * 31 + k * 7) % 5 != 0);
    };
  }
}

}  // namespace block_case
