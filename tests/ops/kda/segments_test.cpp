// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover segments of chunked KDA: the choice against worked values, specs, grids and
// costs.
#include "ops/kda/segments.h"

#include <doctest/doctest.h>

#include "ops/kda/forward/step.h"
#include "templates/params/kda_chunked.h"

using namespace lathe;

namespace {

// A backward of packed sequences.
KdaProblem problem_of_walks() {
  KdaProblem problem;
  problem.packed = true, problem.cu_seqlens = Dtype::i64;
  problem.value_dim = 200, problem.backward = true;
  return problem;
}

// Returns the portable summary of eight warps.
std::unique_ptr<KdaSummary> summary_of(const KdaSummaryParts& parts,
                                       const KdaProblem& problem = problem_of_walks()) {
  const KdaSummaryProblem summary = {problem, parts, {}};
  return kKdaSummaryPortable.make(kda_summary_spec(summary), summary, {});
}

std::string text_of(const KdaSummaryParts& parts) { return summary_of(parts)->kernel->text(); }

KdaSegmentShape shape_of(int64_t segments) { return {2, 3, segments, 128, 200}; }

// One forward on 132 multiprocessors with a block each, K = V = 128 in one tile.
KdaSegmentProblem forward_of(int64_t heads, int64_t tokens) {
  return {heads, 1, 1, tokens, 132, true, false};
}

}  // namespace

TEST_CASE("kda: a summary and a chain have the constants of a walk, and none of what it keeps") {
  CHECK(text_of({true, true, true, false}) ==
        "kda_summary element=bf16 g=f32 beta=bf16 cu=i64 width=128 vector=16 gate=0 A_log=0 "
        "dt_bias=0 sigmoid=0 l2norm=0 packed=1 v_first=0 states=1 initial=1 grads=1 dht=0 "
        "threads=256 smem=163840");
  // Options of parts that are not asked for change nothing.
  CHECK(text_of({false, false, true, true}) == text_of({}));
  const KernelSpec merge = kda_merge_spec(problem_of_walks(), {true, false, false, false}, true);
  CHECK(merge.text() ==
        "kda_merge cu=i64 width=128 whole=1 parts=1 rows=64 packed=1 states=1 grads=0 ranks=0 "
        "threads=256 smem=32768");
  CHECK(kda_merge_spec(problem_of_walks(), {true, false, false, false}, false).text() ==
        "kda_merge cu=i64 width=128 whole=1 parts=2 rows=16 packed=1 states=1 grads=0 ranks=0 "
        "threads=256 smem=32768");
  CHECK(merge.source == "kda/kda_merge.cuh");
  CHECK(merge.params_bytes == sizeof(KdaMergeParams));
}

TEST_CASE("kda: no summary of one segment, no chain of two") {
  const auto both = summary_of({true, true, false, false});
  const auto back = summary_of({false, true, false, false});
  const KernelSpec merge = kda_merge_spec(problem_of_walks(), {true, true, false, false}, true);
  CHECK(kda_summary_blocks(*both, shape_of(1), false).all() == 0);
  CHECK(kda_merge_blocks(merge, shape_of(2)) == 0);
  CHECK(kda_end_numbers(shape_of(1)) == 0);
  CHECK(kda_transition_numbers(shape_of(1)) == 0);
  // Two tiles of 128 for the columns of V = 200, one for those of K = 128.
  CHECK(kda_summary_blocks(*both, shape_of(4), true).forward == 2 * 3 * 4 * 3);
  CHECK(kda_summary_blocks(*both, shape_of(4), true).back == 2 * 3 * 4 * 2);
  CHECK(kda_summary_blocks(*back, shape_of(4), true).forward == 2 * 3 * 4 * 1);
  // Without ranks E of three segments and M of two are wanted.
  CHECK(kda_summary_blocks(*both, shape_of(4), false).forward == 2 * 3 * (3 * 2 + 2));
  CHECK(kda_summary_blocks(*both, shape_of(4), false).back == 2 * 3 * 4 * 2);
  CHECK(kda_summary_blocks(*back, shape_of(4), false).forward == 2 * 3 * 2);
  CHECK(kda_summary_blocks(*back, shape_of(2), false).forward == 0);
  // 13 tiles of 16 rows for each chain of six heads would be 156 blocks: of 64 rows they are four.
  CHECK(kda_merge_rows(merge, shape_of(4)) == 64);
  CHECK(kda_merge_blocks(merge, shape_of(4)) == 2 * 3 * 4 * 2);
  const KdaSegmentShape few = {1, 3, 4, 128, 200};
  CHECK(kda_merge_rows(merge, few) == 16);
  CHECK(kda_merge_blocks(merge, few) == 3 * 13 * 2);
  CHECK(kda_end_numbers(shape_of(4)) == 2 * 3 * 4 * 200 * 128);
  CHECK(kda_transition_numbers(shape_of(4)) == 2 * 3 * 4 * 128 * 128);
  // A grid too large for a launch stays one, whatever the product is.
  KdaSegmentShape large = shape_of(32);
  large.sequences = large.value_heads = 1ll << 40;
  CHECK(kda_summary_blocks(*both, large, false).all() > 1ll << 31);
}

TEST_CASE("kda: what the summaries and their chain move") {
  KdaProblem problem;
  problem.gate = Dtype::f32, problem.beta = Dtype::bf16;
  const KdaSummaryParts parts = {true, false, false, false};
  const auto summary = summary_of(parts, problem);
  const KernelSpec merge = kda_merge_spec(problem, parts, true);
  KdaSegmentShape shape = {1, 4, 4, 128, 128};
  CHECK(kda_segments_cost(problem, *summary, merge, {1, 4, 1, 128, 128}, 2048).bytes == 0);
  const Cost cost = kda_segments_cost(problem, *summary, merge, shape, 2048);
  // Three segments of 512 tokens with v, two without; q, k, g and beta of each.
  const uint64_t rows = 4 * 512 * (5 * (2 * 256 + 512 + 2) + 3 * 256);
  // E of three and M of two, written, and E read by the walks; two links read and write E, and
  // eight tiles of rows read M.
  const uint64_t state = 4 * 128 * 128 * 4;
  CHECK(cost.bytes == rows + state * (3 + 3 + 2 + 4 + 2 * 8));
  CHECK(cost.flops == 2ull * 4 * 128 * 128 * 128 * 2);
  CHECK(cost.minimum_bytes == 0);
  const Cost more = kda_segments_cost(problem, *summary, merge, {1, 4, 8, 128, 128}, 2048);
  CHECK(more.tensor_ops > cost.tensor_ops);
}

TEST_CASE("kda: few heads and long sequences are cut, and nothing else is") {
  CHECK(kda_choose_segments(forward_of(132, 1 << 20)) == 1);  // every multiprocessor has work
  CHECK(kda_choose_segments(forward_of(4, 1023)) == 1);       // less than four of 256
  // 24 heads: summaries are 24 (3 + 2) = 120 blocks, walks 96; both fit once.
  CHECK(kda_choose_segments(forward_of(24, 8192)) == 4);
  // 36 heads: four segments take two rounds for the summaries and two for the walks, as long as one
  // segment; seven take three and two of 1216 tokens, five take four of 1664.
  CHECK(kda_choose_segments(forward_of(36, 8192)) == 7);
  // 100 heads are nearly as fast at once as cut.
  CHECK(kda_choose_segments(forward_of(100, 8192)) == 1);
  CHECK(kda_choose_segments(forward_of(4, 2048)) == 8);
  // For a million tokens 31 segments take hardly longer than 32.
  CHECK(kda_choose_segments(forward_of(1, 1 << 20)) == 31);
  CHECK(kda_choose_segments({}) == 1);
  CHECK(kda_choose_segments(forward_of(4, 0)) == 1);  // more sequences than tokens
  CHECK(kda_choose_segments(forward_of(0, 4096)) == 1);
  // The two walks of a backward fill the device with half of the heads.
  KdaSegmentProblem both = forward_of(66, 8192);
  both.back = true;
  CHECK(kda_choose_segments(both) == 1);
  both.heads = 4;
  CHECK(kda_choose_segments(both) > 1);
  // Walks that are launches of their own each fill it with all of them: 16 heads have room for
  // eight segments, of which one launch of both walks would take two rounds.
  both.heads = 16, both.tokens = 4096, both.apart = true;
  CHECK(kda_choose_segments(both) == 8);
  both.apart = false;
  CHECK(kda_choose_segments(both) == 4);
  both.heads = 132, both.apart = true;
  CHECK(kda_choose_segments(both) == 1);
}

TEST_CASE("kda: on a rank, which summarises its part anyway, more is cut") {
  KdaSegmentProblem rank = forward_of(60, 8192);
  CHECK(kda_choose_segments(rank) == 1);
  rank.ranks = true;
  CHECK(kda_choose_segments(rank) > 1);
}

TEST_CASE("kda: what a rank's summaries cost") {
  KdaProblem problem;
  problem.gate = Dtype::f32, problem.beta = Dtype::bf16;
  const auto summary = summary_of({true, true, false, false}, problem);
  const KdaSegmentShape shape = {1, 4, 1, 128, 128};
  CHECK(kda_part_cost(problem, *summary, shape, {}).bytes == 0);
  const KdaPartWalks middle = {2048, 2048, true, true, 2};
  const Cost cost = kda_part_cost(problem, *summary, shape, middle);
  // Two walks through the rows of q, k, g, beta and v or do; E, M and D; two links that read M for
  // each of sixteen tiles of rows, and E of two.
  const uint64_t rows = 2 * 4 * 2048 * (2 * 256 + 512 + 2 + 256), state = 4 * 128 * 128 * 4;
  CHECK(cost.bytes == rows + state * (3 + 2 * (16 + 2)));
  CHECK(cost.flops == 2ull * 4 * 128 * 128 * 128 * 2);
  // Both directions, and M as wide as E.
  KdaPartWalks forth = {2048, 0, true, false, 0};
  CHECK(cost.tensor_ops == 3 * kda_part_cost(problem, *summary, shape, forth).tensor_ops);
}

TEST_CASE("kda: every choice obeys its limits, on any device") {
  for (const int64_t blocks : {1, 16, 108, 132, 264}) {
    for (int64_t heads = 1; heads <= 64; heads += 3) {
      for (int64_t tokens = 1; tokens <= 1 << 20; tokens = tokens * 5 / 2 + 7) {
        const int segments = kda_choose_segments({heads, 1, 1, tokens, blocks, true, false});
        CAPTURE(heads);
        CAPTURE(tokens);
        CHECK((segments == 1 || (segments >= 4 && segments <= kKdaMostSegments)));
        if (segments > 1) CHECK(tokens >= 256 * segments);
        if (segments > 1) CHECK(heads < blocks);
      }
    }
  }
}

// On 132 multiprocessors in groups of 16 there are at a time 64 clusters of two, 40 of three, 32 of
// four, 24 of five and 16 of more. A segment but the first one is 4 parts of 4 n + 1 in blocks of
// 16 tokens; it takes 2.3 times as long as these, 150, and 15 for each segment.
TEST_CASE("kda: how many segments a cluster has") {
  const auto segments = [](int64_t heads, int64_t tokens, int64_t multiprocessors = 132) {
    return kda_cluster_segments({heads, tokens, multiprocessors});
  };
  CHECK(segments(12, 2048) == 8);  // 859 for 2048
  CHECK(segments(16, 2048) == 8);
  CHECK(segments(17, 2048) == 5);  // 1145, where eight take two turns of 859
  CHECK(segments(24, 2048) == 5);
  CHECK(segments(32, 2048) == 4);  // 1351
  CHECK(segments(40, 8192) == 3);  // 6009 for 8192
  CHECK(segments(64, 8192) == 1);  // three take two turns of 6009
  CHECK(segments(132, 8192) == 1);
  CHECK(segments(133, 8192) == 1);
  CHECK(segments(1, 512) == 8);  // 417 for 512
  CHECK(segments(1, 256) == 1);  // 344 for 256
  CHECK(segments(4, 0) == 1);
  CHECK(segments(0, 4096) == 1);
  // With fewer multiprocessors than a group has one cluster is at a time.
  CHECK(segments(1, 8192, 8) == 8);
  CHECK(segments(2, 8192, 8) == 8);  // two turns of 2588
}

TEST_CASE("kda: what a cluster moves and computes beside the walk that gives outputs") {
  KdaProblem problem;
  problem.gate = Dtype::f32, problem.beta = Dtype::bf16;
  const DeviceFacts h100 = *facts_of_arch("sm_90a");
  const auto cluster =
      kKdaForwardCluster.make(kKdaForwardCluster.candidates(problem, h100).front(), problem, h100);
  const auto cost_of = [&](int64_t segments) {
    return kda_cluster_cost(problem, *cluster, {1, 4, segments, 128, 128}, 2048);
  };
  const Cost cost = cost_of(4);
  // Two segments of 31 blocks of tokens, between the first one of 35 and the last one: k, v, g and
  // beta of each. E of three and the states behind two links; M of two, of two bytes a number, and
  // its diagonal.
  const uint64_t rows = 4 * 2 * 31 * 16 * (2 * 256 + 512 + 2), state = 4 * 128 * 128 * 4;
  CHECK(cost.bytes == rows + state * (3 + 2) + 4 * 2 * (128 * 128 * 2 + 128 * 4));
  CHECK(cost.minimum_bytes == 0);
  // The state behind the first one is all that two hand over.
  const Cost two = cost_of(2);
  CHECK(two.bytes == state);
  CHECK(two.tensor_ops == 0);
  // One of three has 40 blocks. There is a link each, and each first walk reads a block of 16 rows
  // of keys twice.
  const Cost three = cost_of(3);
  const uint64_t link = 4 * 2 * 128 * 128 * 128, again = 4 * 2 * 16 * 128 * 128;
  CHECK((cost.tensor_ops - 2 * (link + again)) * 40 == (three.tensor_ops - link - again) * 62);
}
