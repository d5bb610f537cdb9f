// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of kda over a driver table that only writes down: kernels come in the right order with the
// right parameters and grids, and the run allocates nothing.
#include <doctest/doctest.h>

#include "ops/kda/schema.h"
#include "templates/params/kda_chunked.h"
#include "tests/harness/launch_world.h"
#include "tests/ops/kda/problems.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;
namespace of = lathe::kda;

const test::Tensors kInputs =
    test::with(test::kKdaGated, {{"do", LATHE_BF16, {-1, -1, 4, 32}},
                                 {"dht", LATHE_F32, {-1, 4, 64, 32}},
                                 {"dq", LATHE_BF16, {-1, -1, 2, 64}},
                                 {"dk", LATHE_BF16, {-1, -1, 2, 64}},
                                 {"dv", LATHE_BF16, {-1, -1, 4, 32}},
                                 {"dg", LATHE_F32, {-1, -1, 4, 64}},
                                 {"dbeta", LATHE_BF16, {-1, -1, 4}},
                                 {"dA_log", LATHE_F32, {4}},
                                 {"ddt_bias", LATHE_F32, {256}},
                                 {"dinitial_state", LATHE_F32, {-1, 4, 64, 32}}});

Builder backward(const char* segments) {
  Builder builder("kda");
  builder.tensors(kInputs);
  builder.set("use_gate_in_kernel", "1").set("lower_bound", "-3").set("segments", segments);
  builder.set("use_beta_sigmoid_in_kernel", "1").set("allow_neg_eigval", "1");
  return builder;
}

void fill(World* world, int64_t tokens, int64_t chunks = 0) {
  world->fill("B T N H HV K V HV*K NT", {3, tokens, 3, 2, 4, 64, 32, 256, chunks});
}

// Returns the kernels of a run, in order.
std::vector<std::string> run(World* world) {
  REQUIRE_MESSAGE(world->run() == LATHE_OK, error());
  return world->kernels_launched();
}

}  // namespace

TEST_CASE("kda: the launches of a backward, their parameters, and nothing allocated") {
  World world;
  world.make(backward("3"));
  fill(&world, 130);
  world.arrays[of::q].strides = {130 * 136, 136, 64, 1};
  world.slots[of::q] = world.arrays[of::q].get();
  const std::vector<std::string> all = {"kda_summary", "kda_merge", "kda_backward_scan",
                                        "kda_backward", "kda_backward_finish"};
  CHECK(run(&world) == all);
  const auto scan = world.launches_of("kda_backward_scan").at(0);
  const auto p = scan.as<lathe::KdaBackwardScanParams>();
  CHECK(scan.config.gridDimX == 2 * 3 * 4 * 3);
  CHECK(p.forward_blocks == 3 * 4 * 3);
  check_addresses({{p.in.q, of::q}, {p.in.dt_bias, of::dt_bias}});
  CHECK(p.in.cu_seqlens == nullptr);
  CHECK(p.in.q_batch_stride == 130 * 136);
  CHECK(p.in.q_token_stride == 136);
  CHECK(p.in.beta_head_stride == 1);
  CHECK(p.in.sequences == 3);
  CHECK(p.in.heads == 2);
  CHECK(p.in.value_heads == 4);
  CHECK(p.in.tokens == 130);
  CHECK(p.in.key_dim == 64);
  CHECK(p.in.value_dim == 32);
  CHECK(p.in.value_tiles == 1);
  CHECK(p.in.segments == 3);
  CHECK(p.in.scale == 0.125f);
  CHECK(p.in.lower_bound == -3);
  CHECK(p.in.beta_factor == 2);
  check_addresses({{p.d_o, of::d_o}, {p.dht, of::dht}});
  const auto gradients = world.launches_of("kda_backward").at(0);
  const auto b = gradients.as<lathe::KdaBackwardParams>();
  CHECK(gradients.config.gridDimX == 3 * 3 * 2);
  CHECK(b.slots == 9);
  CHECK(b.saved_values == p.saved_values);
  CHECK(b.saved_states == p.saved_states);
  CHECK(b.value_grads == p.value_grads);
  CHECK(b.state_grads == p.state_grads);
  CHECK(b.dv_token_stride == 128);
  CHECK(b.dbeta_token_stride == 4);
  const auto finish = world.launches_of("kda_backward_finish").at(0);
  const auto f = finish.as<lathe::KdaBackwardFinishParams>();
  CHECK(f.rate_sums == b.rate_sums);
  CHECK(f.bias_sums == b.bias_sums);
  CHECK(f.slots == 9);
  CHECK(f.value_heads == 4);
  CHECK(f.key_dim == 64);

  const auto summary = world.launches_of("kda_summary").at(0);
  const auto s = summary.as<lathe::KdaSummaryParams>();
  CHECK(s.in.segments == 3);
  CHECK(s.forward_blocks > 0);
  CHECK(static_cast<unsigned>(s.forward_blocks) < summary.config.gridDimX);
  const auto m = world.launches_of("kda_merge").at(0).as<lathe::KdaMergeParams>();
  CHECK(m.summaries == s.summaries);
  CHECK(m.grad_ends == s.grad_ends);
  CHECK(m.segments == 3);
  CHECK(m.sequences == 3);
  CHECK(p.summaries == s.summaries);
  CHECK(p.grad_ends == s.grad_ends);
  // Two segments have no chain, and no more than chunks of 64 tokens are made of a sequence.
  fill(&world, 128);
  CHECK(run(&world) == std::vector<std::string>{"kda_summary", "kda_backward_scan", "kda_backward",
                                                "kda_backward_finish"});
  fill(&world, 60);
  CHECK(run(&world) ==
        std::vector<std::string>{"kda_backward_scan", "kda_backward", "kda_backward_finish"});
  // Without tokens states are handed through, and gradients of what the heads share are 0.
  fill(&world, 0);
  CHECK(run(&world) == std::vector<std::string>{"kda_backward_scan", "kda_backward_finish"});
  CHECK(world.launches_of("kda_backward_finish").at(0).as<lathe::KdaBackwardFinishParams>().slots ==
        0);
}

TEST_CASE("kda: the forward leaves what the backward of its call reads") {
  Builder builder = backward("1");
  builder.tensor({"o", LATHE_BF16, {-1, -1, 4, 32}});
  builder.tensor({"chunk_states", LATHE_F32, {-1, -1, 4, 64, 32}});
  builder.set("chunk_size", "32");
  World world;
  world.make(builder);
  fill(&world, 130, 5);
  CHECK(run(&world) == std::vector<std::string>{"kda_forward", "kda_backward_scan", "kda_backward",
                                                "kda_backward_finish"});
  const auto p = world.launches_of("kda_forward").at(0).as<lathe::KdaForwardParams>();
  const auto b = world.launches_of("kda_backward").at(0).as<lathe::KdaBackwardParams>();
  const auto s = world.launches_of("kda_backward_scan").at(0).as<lathe::KdaBackwardScanParams>();
  CHECK(p.saved_values == b.saved_values);
  CHECK(p.saved_states == b.saved_states);
  CHECK(s.forward_blocks == 0);
  CHECK(p.chunk_size == 32);
  CHECK(p.chunks == 3 * 5);
}
