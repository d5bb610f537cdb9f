// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/block/block_mods.h"

namespace apitest {
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
const Values kMoves = {0.5, -0.25, 0, 1, 0.75, -1, 0.125, 0.25};
constexpr double kMove = 0.375;
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

void put_mod_texts(const TileRow& row, Call* call) {
  if (row.has("score")) {
    call->texts["score_mod"] = kScoreMod;
    call->put("capture_1", LATHE_F32, {static_cast<int64_t>(kMoves.size())}, kMoves);
    call->set("scalar_2", kMove);
  }
  if (row.has("mask")) {
    call->texts["mask_mod"] = std::string(kMaskMod) + (row.has("tiles") ? kMaskTile : "");
  }
}

void put_mods(const TileRow& row, const std::shared_ptr<BlockStep>& step, int64_t b,
              ref::AttentionBlock* a) {
  a->ahead = [step](int64_t i, int64_t j) { return step->ahead(i, j); };
  if (row.has("score")) {
    a->score_mod = [step, b](double score, int64_t i, int64_t j, int64_t h) {
      const auto [q, k, batch] = step->place(i, j, b);
      const double stretch = 1 + 0.125 * static_cast<double>((q + 3 * k + h + batch) & 3);
      const double move = kMoves[static_cast<size_t>((k + q) & 7)] + kMove;
      return std::pair(score * stretch + move, stretch);
    };
  }
  if (row.has("mask")) {
    a->mask_mod = [step, b](int64_t i, int64_t j, int64_t h) {
      const auto [q, k, batch] = step->place(i, j, b);
      const int64_t kind = (q / 40 + 2 * (k / 48) + h + batch) % 4;
      return kind == 1 || kind == 2 || (kind == 0 && (q * 31 + k * 7) % 5 != 0);
    };
  }
}

}  // namespace apitest
