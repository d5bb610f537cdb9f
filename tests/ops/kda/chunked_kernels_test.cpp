// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover chunked KDA: specs, tiles, grids, workspaces and costs.
#include "ops/kda/chunked_kernels.h"

#include <doctest/doctest.h>

#include <string_view>

using namespace lathe;

namespace {

KdaProblem forward(int key_dim = 128, int value_dim = 128) {
  KdaProblem problem;
  problem.key_dim = key_dim, problem.value_dim = value_dim;
  problem.forward = true, problem.grouped = false;
  return problem;
}
KdaProblem backward(int key_dim = 128, int value_dim = 128) {
  KdaProblem problem = forward(key_dim, value_dim);
  problem.forward = false, problem.backward = true;
  return problem;
}

DeviceFacts h100() { return *facts_of_arch("sm_90a"); }
DeviceFacts small() { return *facts_of_arch("sm_86"); }

KdaChunkedKernels kernels_of(const KdaProblem& problem, const DeviceFacts& facts = h100()) {
  auto found = kda_chunked_kernels(problem, facts);
  REQUIRE_MESSAGE(found.ok(), found.status().text());
  return std::move(*found);
}

}  // namespace

TEST_CASE("kda: a problem has the kernels that it needs") {
  KdaChunkedKernels kernels = kernels_of(forward());
  CHECK(kernels.forward);
  CHECK_FALSE(kernels.scan);
  CHECK_FALSE(kernels.backward);
  kernels = kernels_of(backward());
  CHECK_FALSE(kernels.forward);
  CHECK(kernels.scan);
  CHECK(kernels.backward);
  CHECK_FALSE(kernels.finish.has_value());
  KdaProblem problem = backward();
  problem.A_log = problem.dA_log = true;
  CHECK(kernels_of(problem).finish.has_value());
  // The gradient of the initial state comes from the walk back alone.
  problem = forward();
  problem.forward = false, problem.dinitial_state = true;
  kernels = kernels_of(problem);
  CHECK(kernels.scan);
  CHECK_FALSE(kernels.backward);
}

TEST_CASE("kda: Hopper's kernels by K, V and value heads") {
  DeviceFacts hopper = h100();
  hopper.family = "sm90";
  struct Case {
    int key_dim, value_dim;
    bool grouped;
    // Kernels of the walk forward, the walk back and the gradients.
    const char *states, *scan, *backward;
  };
  constexpr const char* kStates = "kda_forward_warpgroups";
  constexpr const char* kBack = "kda_backward_scan_warpgroups";
  for (const Case& each : {Case{128, 128, false, kStates, kBack, "kda_backward_warpgroups"},
                           {72, 40, false, kStates, kBack, "kda_backward_warpgroups"},
                           {128, 136, false, kStates, kBack, "kda_backward"},
                           {128, 128, true, kStates, kBack, "kda_backward"},
                           {136, 128, false, kStates, "kda_backward_scan", "kda_backward"},
                           {256, 256, false, kStates, "kda_backward_scan", "kda_backward"}}) {
    CAPTURE(each.key_dim);
    CAPTURE(each.value_dim);
    KdaProblem problem = backward(each.key_dim, each.value_dim);
    problem.grouped = each.grouped;
    const KdaChunkedKernels kernels = kernels_of(problem, hopper);
    REQUIRE(kernels.states);
    CHECK(kernels.states->kernel->kernel == std::string_view(each.states));
    CHECK(kernels.scan->kernel->kernel == std::string_view(each.scan));
    CHECK(kernels.backward->kernel->kernel == std::string_view(each.backward));
    // Rows of dv are kept by a walk back for gradients that know of it.
    if (each.scan == kBack) {
      const bool by_beta = each.backward != std::string_view("kda_backward");
      CHECK(kernels.scan->kernel->constant("by_beta") == (by_beta ? 1 : 0));
    }
  }
}

// One launch where it gives all that is asked for; else summaries, a chain and walks.
TEST_CASE("kda: which segments a cluster walks") {
  DeviceFacts hopper = h100();
  hopper.family = "sm90";
  KdaProblem problem = forward();
  problem.segmented = true, problem.packed = true;
  const auto clustered = [&](const KdaProblem& of) {
    const KdaChunkedKernels kernels = kernels_of(of, hopper);
    CHECK((kernels.cluster == nullptr) == (kernels.summary != nullptr));
    CHECK((kernels.cluster == nullptr) == kernels.merge.has_value());
    return kernels.cluster != nullptr;
  };
  const auto with = [&](auto change) {
    KdaProblem other = problem;
    change(&other);
    return clustered(other);
  };
  CHECK(clustered(problem));
  CHECK(with([](KdaProblem* p) { p->key_dim = 72, p->value_dim = 72; }));
  CHECK(with([](KdaProblem* p) { p->pool = p->initial_state = p->final_state = true; }));
  CHECK(with([](KdaProblem* p) { p->grouped = true, p->fixed_segments = 8; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->fixed_segments = 9; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->key_dim = 64; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->key_dim = 136; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->value_dim = 64; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->value_dim = 136; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->element = Dtype::f16; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->vector_bytes = 8; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->backward = true; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->saves = true; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->dinitial_state = true; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->ranks = true; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->chunk_states = true; }));
  CHECK_FALSE(with([](KdaProblem* p) { p->pool = p->checkpoints = true; }));
  // Whole sequences have neither.
  problem.segmented = false;
  CHECK(kernels_of(problem, hopper).cluster == nullptr);
  problem.segmented = true;
  hopper.family = "portable";
  CHECK_FALSE(clustered(problem));
}

TEST_CASE("kda: a launch of clusters, and its workspace") {
  DeviceFacts hopper = h100();
  hopper.family = "sm90";
  KdaProblem problem = forward();
  problem.segmented = true;
  const KdaChunkedKernels kernels = kernels_of(problem, hopper);
  KdaChunkedShape shape = {3, 2, 4, 1000, 5};
  shape.clustered = true;
  KdaLaunch launch = kda_launch(problem, kernels, shape);
  CHECK(launch.forward == 3 * 4 * 5);
  CHECK(launch.cluster == 5);
  CHECK(launch.count() == 1);
  // E, and M of two bytes a number with its diagonal, of each segment.
  const auto workspace = kda_workspace(problem, shape, false);
  REQUIRE(workspace.ok());
  CHECK(workspace->transitions - workspace->summaries == 3 * 4 * 5 * 128 * 128 * 4);
  CHECK(workspace->total - workspace->transitions == 3 * 4 * 5 * (128 * 128 * 2 + 128 * 4));
  // One segment is the walk alone.
  shape.segments = 1, shape.clustered = false;
  launch = kda_launch(problem, kernels, shape);
  CHECK(launch.forward == 3 * 4);
  CHECK(launch.cluster == 1);
  CHECK(kda_workspace(problem, shape, false)->total == 0);
}

// Chunks go by twos where the device then takes no more turns than by ones.
TEST_CASE("kda: runs of Hopper's gradients") {
  DeviceFacts hopper = h100();
  hopper.family = "sm90";
  KdaProblem problem = backward();
  const KdaChunkedKernels kernels = kernels_of(problem, hopper);
  const auto run = [&](const KdaChunkedShape& shape) {
    const KdaLaunch launch = kda_launch(problem, kernels, shape);
    CHECK(launch.kept_run == launch.run);  // the walk forward leaves out as many states
    return launch.run;
  };
  const int64_t blocks = kernels.backward->blocks_at_once();
  CHECK(blocks == hopper.multiprocessors);
  const auto heads = static_cast<int>(blocks);
  CHECK(run({1, heads, heads, 64}) == 1);   // a turn of half as many blocks would be two long
  CHECK(run({1, heads, heads, 128}) == 2);  // two turns, or one that is as long
  CHECK(run({1, heads, heads, 192}) == 1);  // three, or four
  CHECK(run({1, heads, heads, 8192}) == 2);
  CHECK(run({1, heads, heads, 64 * 33}) == 2);  // 33, or 34
  CHECK(run({1, heads, heads, 64 * 31}) == 1);  // 31, or 32: more than a 32nd
  CHECK(kda_launch(problem, kernels, {1, heads, heads, 128}).backward == blocks);
  problem.packed = true;  // of 128 sequences each may have one chunk and a block that is idle
  CHECK(run({128, 8, 8, 128 * 64}) == 1);
  CHECK(run({1, heads, heads, 128 * 100}) == 2);
  problem.fixed_segments = true;
  CHECK(run({1, heads, heads, 128 * 100}) == 1);
  problem.fixed_segments = false, problem.sums_outside = true;
  CHECK(run({1, heads, heads, 128 * 100}) == 1);
}

TEST_CASE("kda: the spec's text names what makes the code") {
  KdaProblem problem = forward(100, 60);
  problem.vector_bytes = 8, problem.gate_kind = 2;
  problem.dt_bias = problem.l2norm = problem.final_state = problem.initial_state = true;
  CHECK(kernels_of(problem).forward->kernel->text() ==
        "kda_forward element=bf16 g=f32 beta=bf16 cu=i32 width=128 vector=8 gate=2 A_log=0 "
        "dt_bias=1 sigmoid=0 l2norm=1 packed=0 v_first=0 initial=1 final=1 chunks=0 output=1 "
        "saved=0 ranks=0 threads=128 smem=73728");
  problem.forward = false, problem.backward = true, problem.dht = true;
  CHECK(kernels_of(problem).scan->kernel->text() ==
        "kda_backward_scan element=bf16 g=f32 beta=bf16 cu=i32 width=128 vector=8 gate=2 A_log=0 "
        "dt_bias=1 sigmoid=0 l2norm=1 packed=0 v_first=0 initial=1 final=0 chunks=0 output=0 "
        "saved=1 dht=1 dinitial=0 ranks=0 threads=128 smem=73728");
  // Types of what is not there change nothing, nor what only another launch does.
  KdaProblem other = problem;
  other.cu_seqlens = Dtype::i64, other.index = Dtype::i64;
  other.final_state = false;
  CHECK(kernels_of(problem).scan->kernel->text() == kernels_of(other).scan->kernel->text());
  // Widths that are padded to the same one are the same code.
  other.key_dim = 68, other.value_dim = 52;
  CHECK(kernels_of(problem).backward->kernel->text() == kernels_of(other).backward->kernel->text());
  CHECK(kernels_of(problem).scan->kernel->text() == kernels_of(other).scan->kernel->text());
}

TEST_CASE("kda: a walk that is left the forward's states starts from none") {
  KdaProblem problem = backward();
  problem.initial_state = true;
  CHECK(problem.recomputes());
  CHECK(kernels_of(problem).scan->kernel->constant("initial") == 1);
  problem.given_saved = true;
  CHECK_FALSE(problem.recomputes());
  CHECK(kernels_of(problem).scan->kernel->constant("initial") == 0);
  CHECK(kernels_of(problem).scan->kernel->constant("saved") == 0);
  problem.given_saved = false, problem.forward = problem.saves = true;
  CHECK_FALSE(problem.recomputes());
  CHECK(kernels_of(problem).forward->kernel->constant("saved") == 1);
}

TEST_CASE("kda: every width has a tile on every device, and one that fits V") {
  for (const std::string& arch : supported_archs()) {
    const DeviceFacts facts = *facts_of_arch(arch);
    for (int key_dim = 8; key_dim <= 256; key_dim += 4) {
      for (const Dtype element : {Dtype::bf16, Dtype::f32}) {
        for (const int value_dim : {8, 16, 20, 64, 100, 128, 256}) {
          KdaProblem problem = forward(key_dim, value_dim);
          problem.element = element;
          CHECK(kda_padded_keys(problem) >= key_dim);
          CHECK(kda_padded_keys(problem) - key_dim < 64);
          const auto tiles = kda_walk_candidates(problem, facts);
          REQUIRE_FALSE(tiles.empty());
          CHECK(kernels_of(problem, facts).tile == tiles.front());
          for (const KdaWalkTile& tile : tiles) {
            CHECK((tile.warps == 1 || tile.values() < 2 * value_dim));
            CHECK(kda_walk_smem(problem, tile) <= facts.shared_bytes_per_block);
          }
        }
      }
    }
  }
  // The gradients have one, which fits everywhere.
  for (const int key_dim : {8, 64, 128, 192, 256}) {
    for (const int flags : {0, 1, 2, 3}) {
      for (const Dtype element : {Dtype::bf16, Dtype::f32}) {
        KdaProblem problem = backward(key_dim, 128);
        problem.element = element, problem.l2norm = flags & 1, problem.grouped = flags & 2;
        CHECK(kernels_of(problem, small()).backward->kernel->smem_bytes <= 99 * 1024);
      }
    }
  }
  CHECK(kernels_of(forward(), h100()).tile.warps == 8);
  CHECK(kernels_of(forward(), *facts_of_arch("sm_80")).tile.warps == 8);
  CHECK(kernels_of(forward(), small()).tile.warps == 4);
  CHECK(kernels_of(forward(128, 32), h100()).tile.warps == 2);
  CHECK(kernels_of(forward(256, 256), h100()).tile.warps == 4);
}

TEST_CASE("kda: a device with too little shared memory is refused with the numbers") {
  DeviceFacts none = h100();
  none.shared_bytes_per_block = 1024;
  const auto found = kda_chunked_kernels(forward(), none);
  REQUIRE_FALSE(found.ok());
  CHECK(found.status().code() == Code::unsupported);
  CHECK(found.status().text().find("18432 bytes of shared memory, sm_90a allows 1024") !=
        std::string::npos);
}

TEST_CASE("kda: slots and chunks are counted from capacities") {
  KdaProblem problem = backward();
  const KdaChunkedShape fixed = {3, 2, 4, 130};
  CHECK(kda_rows(problem, fixed) == 390);
  CHECK(kda_slots(problem, fixed) == 9);
  CHECK(kda_chunks(problem, fixed, 16) == 9);
  problem.packed = true;
  CHECK(kda_rows(problem, fixed) == 130);
  CHECK(kda_slots(problem, fixed) == 5);
  CHECK(kda_chunks(problem, fixed, 16) == 11);
  CHECK(kda_slots(problem, {0, 2, 4, 0}) == 0);
  CHECK(kda_slots(problem, {0, 2, 4, 70}) == 2);  // rows of nobody, which somebody clears
}

TEST_CASE("kda: blocks of the launches") {
  KdaProblem problem = backward(128, 256);
  problem.A_log = problem.dt_bias = problem.dA_log = problem.ddt_bias = true;
  KdaChunkedKernels kernels = kernels_of(problem);
  const KdaChunkedShape shape = {3, 2, 4, 130};
  KdaLaunch launch = kda_launch(problem, kernels, shape);
  CHECK(launch.forward == 0);
  CHECK(launch.scan_back == 3 * 4 * 2);
  CHECK(launch.scan_forward == 3 * 4 * 2);
  CHECK(launch.backward == 9 * 2);
  CHECK(launch.finish == 4 * 128 / 32 + 1);
  CHECK(launch.count() == 3);
  // Left by the forward, the walk forward is not made.
  problem.forward = problem.saves = true;
  kernels = kernels_of(problem);
  launch = kda_launch(problem, kernels, shape);
  CHECK(launch.forward == 3 * 4 * 2);
  CHECK(launch.scan_forward == 0);
  CHECK(launch.count() == 4);
  // Rows of nobody are cleared by the forward and by the gradients.
  KdaProblem packed = problem;
  packed.packed = true;
  launch = kda_launch(packed, kernels, {0, 2, 4, 70});
  CHECK(launch.forward == 4 * 2);
  CHECK(launch.scan() == 0);
  CHECK(launch.backward == 2 * 2);
  // Without tokens there are only sums of nothing, and states if there are any.
  const KdaChunkedShape empty = {3, 2, 4, 0};
  launch = kda_launch(problem, kernels, empty);
  CHECK(launch.count() == 1);
  CHECK(launch.finish > 0);
  problem.final_state = problem.dinitial_state = true;
  launch = kda_launch(problem, kernels, empty);
  CHECK(launch.forward > 0);
  CHECK(launch.scan() > 0);
  CHECK(launch.backward == 0);
  // A number that passes a grid does not wrap around.
  const KdaChunkedShape huge = {2147483647, 2147483647, 2147483647, 2147483647};
  launch = kda_launch(problem, kernels, huge);
  for (const int64_t blocks : {launch.forward, launch.scan(), launch.backward, launch.finish}) {
    CHECK(blocks > 2147483647);
  }
}

TEST_CASE("kda: the workspace is a function of capacities, its parts apart") {
  KdaProblem problem = backward(60, 100);
  problem.dA_log = problem.ddt_bias = true;
  const KdaChunkedShape shape = {3, 2, 4, 130};
  const int64_t values = 390 * 4 * 100 * 2, states = 9 * 4 * 60 * 100 * 2;
  const auto up = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  auto found = kda_workspace(problem, shape, false);
  REQUIRE(found.ok());
  CHECK(found->saved_values == 0);
  CHECK(found->saved_states == up(values));
  CHECK(found->value_grads == found->saved_states + up(states));
  CHECK(found->state_grads == found->value_grads + up(values));
  CHECK(found->rate_sums == found->state_grads + up(states));
  CHECK(found->bias_sums == found->rate_sums + up(9 * 4 * 4));
  CHECK(found->total == found->bias_sums + up(9 * 4 * 60 * 4));
  CHECK(kda_workspace(problem, shape, true)->value_grads == 0);
  CHECK(kda_workspace(forward(), shape, false)->total == 0);
  problem.dA_log = problem.ddt_bias = problem.backward = false, problem.dinitial_state = true;
  CHECK(kda_workspace(problem, shape, false)->total == up(values) + up(states));
  problem.backward = true;
  found = kda_workspace(problem, {2147483647, 2147483647, 2147483647, 2147483647}, false);
  REQUIRE_FALSE(found.ok());
  CHECK(found.status().text() == "the workspace passes 2^63 bytes");
}

TEST_CASE("kda: the least that has to move is the table's") {
  // bf16 with g in 16 bits, no states: 1.008 and 1.815 GB for B 1, T 8192, H 96, K = V = 128.
  KdaProblem problem = forward();
  problem.gate = Dtype::bf16;
  const KdaChunkedShape shape = {1, 96, 96, 8192};
  Cost cost = kda_chunked_cost(problem, kernels_of(problem), shape, 64);
  const uint64_t tokens = uint64_t{8192} * 96;
  CHECK(cost.minimum_bytes == tokens * (5 * 128 * 2 + 2));
  CHECK(cost.bytes == cost.minimum_bytes);
  CHECK(cost.flops == 6 * tokens * 128 * 128);
  CHECK(cost.tensor_ops > cost.flops);
  CHECK(cost.tensor_ops < 2 * cost.flops);
  problem = backward();
  problem.gate = Dtype::bf16;
  cost = kda_chunked_cost(problem, kernels_of(problem), shape, 64);
  CHECK(cost.minimum_bytes == tokens * (9 * 128 * 2 + 2 * 2));
  CHECK(cost.bytes > cost.minimum_bytes);
  // Both at once read their inputs once.
  problem.forward = problem.saves = true;
  cost = kda_chunked_cost(problem, kernels_of(problem), shape, 64);
  CHECK(cost.minimum_bytes == tokens * (10 * 128 * 2 + 2 * 2));
}
