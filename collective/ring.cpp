// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Schedules of ring and gathered attention: integers only.
#include "collective/ring.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe {
namespace {

// Pairs (i, j) of 0 <= i < rows, 0 <= j < keys with j - i <= limit.
int64_t pairs_up_to(int64_t rows, int64_t keys, int64_t limit) {
  // Row i has min(keys, i + limit + 1) of them, where that is positive.
  const int64_t first = std::clamp<int64_t>(-limit, 0, rows);  // the first row with any
  const int64_t whole = std::clamp<int64_t>(keys - limit - 1, first, rows);  // with all
  const int64_t least = first + limit + 1, most = whole + limit;
  return (whole - first) * (least + most) / 2 + (rows - whole) * keys;
}

RingStep step_of(int rank, int step, int world, bool causal, bool head_tail) {
  RingStep out;
  out.rank = rank, out.step = step;
  out.owner = (rank - step + world) % world;
  const int next = (rank + 1) % world, last = (rank - 1 + world) % world;
  if (step < world - 1) out.send_to = next, out.recv_from = last;
  if (world > 1) {
    out.dkv_send_to = next, out.dkv_recv_from = last;
    out.dkv_recv_owner = (rank - 1 - step + 2 * world) % world;
  }
  out.q = out.kv = Span::all;
  out.mask = causal && step == 0 ? StepMask::causal : StepMask::full;
  if (!causal || step == 0) return out;
  if (head_tail) {
    (out.owner < rank ? out.kv : out.q) = out.owner < rank ? Span::low : Span::high;
  } else if (out.owner > rank) {
    out.q = out.kv = Span::none;
    out.mask = StepMask::skip;
  }
  return out;
}

}  // namespace

std::vector<RingStep> ring_schedule(int world, bool causal, bool head_tail) {
  std::vector<RingStep> steps;
  for (int rank = 0; rank < world; ++rank) {
    for (int step = 0; step < world; ++step) {
      steps.push_back(step_of(rank, step, world, causal, head_tail));
    }
  }
  return steps;
}

PairRule pair_rule(Interval q, Interval kv, int64_t offset, int64_t left, int64_t right) {
  PairRule out;
  out.shift = q.begin + offset - kv.begin;
  const int64_t rows = q.size(), keys = kv.size();
  if (rows <= 0 || keys <= 0) return out;
  const int64_t least = 1 - rows - out.shift, most = keys - 1 - out.shift;  // of j - i - shift
  if ((right >= 0 && least > right) || (left >= 0 && most < -left)) return out;
  const bool full = (right < 0 || most <= right) && (left < 0 || least >= -left);
  out.kind = full ? PairKind::full : PairKind::partial;
  const int64_t behind = right < 0 ? rows * keys : pairs_up_to(rows, keys, out.shift + right);
  const int64_t before = left < 0 ? 0 : pairs_up_to(rows, keys, out.shift - left - 1);
  out.visible = behind - before;
  return out;
}

PartialResult merge_partials(const std::vector<PartialResult>& parts) {
  constexpr double kEmpty = -std::numeric_limits<double>::infinity();
  PartialResult sum = {0, kEmpty};
  for (const PartialResult& part : parts) {
    const double most = std::max(sum.lse, part.lse);
    if (most == kEmpty) continue;
    const double a = std::exp(sum.lse - most), b = std::exp(part.lse - most), z = a + b;
    sum.out = (a == 0 ? 0 : a / z * sum.out) + (b == 0 ? 0 : b / z * part.out);
    sum.lse = most + std::log(z);
  }
  return sum;
}

Result<std::vector<GatherSlice>> gather_slices(const std::vector<int64_t>& cu_seqlens, int world,
                                               bool causal) {
  LATHE_TRY(check_world(world));
  LATHE_TRY(check_cu_seqlens(cu_seqlens, -1));
  LATHE_ASSIGN(const auto contexts,
               part_contexts(cu_seqlens, even_partition(cu_seqlens.back(), world)));
  std::vector<GatherSlice> slices;
  for (const PartContext& context : contexts) {
    GatherSlice slice;
    slice.seq_ids = context.seq_ids;
    slice.cu_seqlens_q = context.cu_seqlens;
    slice.cu_seqlens_k = {0};
    for (const int n : context.seq_ids) {
      const int64_t end =
          causal ? std::min(cu_seqlens[n + 1], context.interval.end) : cu_seqlens[n + 1];
      slice.cu_seqlens_k.push_back(slice.cu_seqlens_k.back() + end - cu_seqlens[n]);
    }
    if (!context.seq_ids.empty()) {
      slice.keys.begin = cu_seqlens[context.seq_ids.front()];
      slice.keys.end = slice.keys.begin + slice.cu_seqlens_k.back();
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace lathe
