// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Predicts the time of chunked KDA from counted instructions.
#include <algorithm>
#include <cmath>

#include "codegen/base/integers.h"
#include "ops/kda/chunked_kernels.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

// Instructions of a warp for 16 tokens, counted by `lathe_bench kda --instructions`: to prepare the
// block, which one warp of a thread block does, and to take it in, which all do; each fixed, and
// for 32 columns of K. A gate and norms in the kernel are prepared; float32 is three planes of
// bfloat16.
struct Instructions {
  double fixed, slice;
};
constexpr Instructions kPrepare = {560, 970}, kTake = {300, 53}, kFused = {0, 610};
constexpr Instructions kChunk = {-1500, 4750},
                       kFusedChunk = {0, 1340};  // 64 tokens of kda_backward
constexpr double kPlanes = 3.5;                  // of the products' part, where there are three
// Cycles spent waiting, for 32 columns of K: of 16 tokens, unless another warp of the scheduler
// fills them, and of a chunk.
constexpr double kWaiting = 105, kChunkWaiting = 800, kFusedChunkWaiting = 2800;

constexpr int64_t kCacheBytes = 64;  // of the second cache, a cycle and multiprocessor
constexpr int kSchedulers = 4, kResidentWarps = 8, kReservedShared = 1024;

double of(const Instructions& count, double slices) { return count.fixed + count.slice * slices; }

struct Residence {
  double rounds = 0, warps = 0;  // thread blocks one after another; warps of a scheduler
};
Residence residence(const KernelSpec& spec, int64_t blocks, const DeviceFacts& facts) {
  const int64_t each = ceil_div(blocks, std::max(facts.multiprocessors, 1));
  const int64_t by_shared =
      facts.shared_bytes_per_multiprocessor / (spec.smem_bytes + kReservedShared);
  const int64_t by_warps = kResidentWarps * 32 / spec.threads;
  const int64_t resident = std::clamp<int64_t>(std::min(by_shared, by_warps), 1, each);
  Residence out;
  out.rounds = static_cast<double>(ceil_div(each, resident));
  out.warps = std::max(1.0, static_cast<double>(resident * spec.threads / 32) / kSchedulers);
  return out;
}

// Thread blocks of the summaries that do not return at once: the last segment, or the first one
// going back, hands nothing on, and one at an end of the chain needs no transition.
int64_t working(const KdaProblem& problem, const KernelSpec& summary,
                const KdaChunkedShape& shape) {
  const int64_t columns = summary.threads / 2;
  const int64_t walks = (summary.constant("states") + summary.constant("grads")) *
                        ceil_div(problem.value_dim, columns);
  const int64_t transitions = ceil_div(problem.key_dim, columns);
  const int64_t segments = shape.segments;
  return std::max<int64_t>(1, shape.sequences * shape.value_heads *
                                  (walks * (segments - 1) + transitions * (segments - 2)));
}

double walk_cycles(const KdaProblem& problem, const KernelSpec& spec, int64_t count, int64_t blocks,
                   const DeviceFacts& facts) {
  const double slices = kda_padded_keys(problem) / 32.0;
  const bool fused = problem.gate_kind != 0 || problem.l2norm;
  const double planes = problem.element == Dtype::f32 ? kPlanes : 1;
  const Residence at = residence(spec, count, facts);
  const double prepare = of(kPrepare, slices) + (fused ? of(kFused, slices) : 0);
  const double issued = planes * (prepare / (spec.threads / 32) + of(kTake, slices));
  const double waiting = at.warps < 2 ? kWaiting * slices : 0;
  return at.rounds * static_cast<double>(blocks) * (at.warps * issued + waiting);
}

}  // namespace

uint64_t kda_walk_cycles(const KdaProblem& problem, const KernelSpec& walk, int64_t blocks,
                         int64_t tokens, const DeviceFacts& facts) {
  return static_cast<uint64_t>(
      std::llround(walk_cycles(problem, walk, blocks, ceil_div(tokens, kKdaBlock), facts)));
}

uint64_t kda_chain_cycles(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                          const KdaChunkedShape& shape, const DeviceFacts& facts) {
  if (shape.sequences <= 0 || shape.tokens <= 0) return 0;
  const KdaLaunch launch = kda_launch(problem, kernels, shape);
  const double slices = kda_padded_keys(problem) / 32.0;
  const bool fused = problem.gate_kind != 0 || problem.l2norm;
  const double planes = problem.element == Dtype::f32 ? kPlanes : 1;
  const int64_t length = problem.packed ? ceil_div(shape.tokens, shape.sequences) : shape.tokens;
  const int64_t blocks =
      ceil_div(ceil_div(length, std::max<int64_t>(shape.segments, 1)), kKdaBlock);
  double cycles = 0;
  const auto walk = [&](const KernelSpec& spec, int64_t count) {
    cycles += walk_cycles(problem, spec, count, blocks, facts);
  };
  if (launch.summary() > 0) walk(*kernels.summary, working(problem, *kernels.summary, shape));
  if (launch.merge > 0) {  // a transition from the second cache for each link
    const int64_t transition = int64_t{4} * problem.key_dim * problem.key_dim;
    cycles += static_cast<double>((shape.segments - 2) * ceil_div(transition, kCacheBytes));
  }
  if (launch.forward > 0) walk(*kernels.forward, launch.forward);
  if (launch.scan() > 0) walk(*kernels.scan, launch.scan());
  if (launch.backward > 0) {
    const Residence at = residence(*kernels.backward, launch.backward, facts);
    const double group = static_cast<double>(shape.value_heads / std::max<int64_t>(shape.heads, 1));
    const double issued = of(kChunk, slices) + (fused ? of(kFusedChunk, slices) : 0);
    const double waiting = slices * (kChunkWaiting + (fused ? kFusedChunkWaiting : 0));
    cycles += at.rounds * group * (at.warps * planes * issued + waiting);
  }
  return static_cast<uint64_t>(std::llround(cycles));
}

}  // namespace lathe
