// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes how many segments a forward by clusters has, and what it costs beside its walk.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/kda/segments.h"
#include "templates/params/kda_chunked.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/kda_warpgroups.h"

namespace lathe {
namespace {

// A cluster lies within a group of multiprocessors, of which a device gives this many to each.
constexpr int64_t kGroup = 16;
// The times of both walks of a token, of what passes before and between them, and of a link of the
// chain, in the time that a walk of one segment takes for a token (by the clock).
constexpr double kBothWalks = 2.3, kBetweenWalks = 150, kClusterLink = 15;

// Returns the blocks of 16 tokens of a segment that is not the first one: KdaClusterCut.
int64_t cluster_blocks(int64_t tokens, int64_t segments) {
  const int64_t shares = kKdaOtherShare * (segments - 1) + kKdaFirstShare;
  return ceil_div(kKdaOtherShare * ceil_div(tokens, kKdaBlock), shares);
}

double cluster_time(const KdaClusterProblem& question, int64_t segments) {
  const int64_t length = cluster_blocks(question.tokens, segments) * kKdaBlock;
  const int64_t at_once =
      std::max<int64_t>(segments == 1 ? question.multiprocessors
                                      : question.multiprocessors / kGroup * (kGroup / segments),
                        1);
  const auto turns = static_cast<double>(ceil_div(question.heads, at_once));
  if (segments == 1) return turns * static_cast<double>(question.tokens);
  return turns * (kBothWalks * static_cast<double>(length) + kBetweenWalks +
                  kClusterLink * static_cast<double>(segments));
}

}  // namespace

int kda_cluster_segments(const KdaClusterProblem& question) {
  int segments = 1;
  for (int n = 3; n <= kKdaMostInCluster; ++n) {
    if (cluster_time(question, n) < kKdaWorthwhile * cluster_time(question, 1) &&
        cluster_time(question, n) < cluster_time(question, segments)) {
      segments = n;
    }
  }
  return segments;
}

Cost kda_cluster_cost(const KdaProblem& problem, const KdaForward& cluster,
                      const KdaSegmentShape& shape, int64_t rows) {
  Cost cost;
  const int64_t k = shape.key_dim, v = shape.value_dim, element = bytes_of(problem.element);
  const int64_t row = (k + v) * element + k * bytes_of(problem.gate) + bytes_of(problem.beta);
  const uint64_t heads = unsigned_product({shape.sequences, shape.value_heads});
  // All but the first segment and the last one are walked once more, for E and M.
  const int64_t tokens = rows / std::max<int64_t>(shape.sequences, 1);
  const int64_t all = ceil_div(tokens, kKdaBlock), each = cluster_blocks(tokens, shape.segments);
  const int64_t first_blocks = std::max(each, all - (shape.segments - 1) * each);
  const int64_t used = 1 + ceil_div(std::max<int64_t>(all - first_blocks, 0), each);
  const auto between = static_cast<uint64_t>(std::max<int64_t>(used - 2, 0));
  cost.bytes += heads * between * unsigned_product({each, kKdaBlock, row});
  cost.tensor_ops += heads * between * unsigned_product({each, cluster.tensor_ops_before(problem)});
  // E, M and the states behind links are written and read, through L2. A link is a product of all
  // rows and columns, be they there or not; and E's last rows of keys are read once more.
  const int64_t width = kda_padded_keys(problem);
  const uint64_t state = unsigned_product({2, cluster.columns(), width});
  cost.bytes += heads * (unsigned_product({4, k, v}) * static_cast<uint64_t>(used - 1) +
                         unsigned_product({4, k, v}) * between +
                         unsigned_product({4, kKdaClusterMap}) * between);
  cost.tensor_ops += heads * state * between * static_cast<uint64_t>(width + kKdaBlock);
  return cost;
}

}  // namespace lathe
