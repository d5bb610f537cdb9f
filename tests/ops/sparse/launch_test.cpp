// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what sparse_flash_attention launches, over a driver table that only writes
// down: parameters, grids, workspace, and that a run allocates nothing.
#include <doctest/doctest.h>

#include "ops/sparse/schema.h"
#include "templates/params/sparse_attention.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;
namespace of = lathe::sparse_attention;

// 16 query heads of 2 key heads, D 64 + 16, DV 64.
Builder problem(bool backward) {
  Builder builder("sparse_flash_attention");
  builder.tensors({{"q", LATHE_BF16, {-1, 16, 64}},
                   {"k", LATHE_BF16, {-1, 2, 64}},
                   {"v", LATHE_BF16, {-1, 2, 64}},
                   {"q_rope", LATHE_BF16, {-1, 16, 16}},
                   {"k_rope", LATHE_BF16, {-1, 2, 16}},
                   {"indices", LATHE_I32, {-1, 2, -1}},
                   {"cu_seqlens_q", LATHE_I64, {-1}},
                   {"cu_seqlens_k", LATHE_I64, {-1}},
                   {"q_pos", LATHE_I32, {-1}},
                   {"sinks", LATHE_F32, {16}},
                   {"out", LATHE_BF16, {-1, 16, 64}},
                   {"softmax_max", LATHE_F32, {2, -1, 8}},
                   {"softmax_sum", LATHE_F32, {2, -1, 8}},
                   {"lse", LATHE_F32, {16, -1}}});
  builder.set("scale", "0.125").set("sparse_mode", "3").set("block_size", "16");
  if (!backward) {
    builder.set("num_splits", "2");
    return builder;
  }
  builder.tensors({{"dout", LATHE_BF16, {-1, 16, 64}},
                   {"dq", LATHE_BF16, {-1, 16, 64}},
                   {"dk", LATHE_BF16, {-1, 2, 64}},
                   {"dv", LATHE_BF16, {-1, 2, 64}},
                   {"dq_rope", LATHE_BF16, {-1, 16, 16}},
                   {"dk_rope", LATHE_BF16, {-1, 2, 16}},
                   {"dsinks", LATHE_F32, {16}}});
  builder.set("deterministic", "1");
  return builder;
}

void fill(World* world, int64_t rows, int64_t keys) {
  world->fill("Tq Tk N H HK G D R DV topk", {rows, keys, 3, 16, 2, 8, 64, 16, 64, 9});
}

size_t run(World* world) {
  size_t bytes = 0;
  REQUIRE_MESSAGE(world->run(&bytes) == LATHE_OK, error());
  return bytes;
}

TEST_CASE("sparse attention: parameters are those of the tensors, and nothing is allocated") {
  World world;
  world.make(problem(false));
  fill(&world, 5, 300);
  world.arrays[of::q].strides = {2000, 120, 1};
  world.slots[of::q] = world.arrays[of::q].get();
  const size_t bytes = run(&world);
  CHECK(bytes == 2u * 5 * 16 * 64 * 4 + 2 * 768);  // out, then 640 bytes each
  REQUIRE(recorder.count == 2);

  const auto launch = world.launches_of("sparse_forward").at(0);
  const auto p = launch.as<lathe::SparseForwardParams>();
  CHECK(launch.config.hStream == kStream);
  CHECK(launch.config.gridDimX == 5 * 2 * 1 * 2);
  check_addresses({{p.in.q, of::q},
                   {p.in.k, of::k},
                   {p.in.v, of::v},
                   {p.in.q_rope, of::q_rope},
                   {p.in.k_rope, of::k_rope},
                   {p.in.indices, of::indices},
                   {p.in.cu_seqlens_q, of::cu_seqlens_q},
                   {p.in.key_starts, of::cu_seqlens_k}});
  CHECK(p.in.key_ends == static_cast<char*>(World::address(of::cu_seqlens_k)) + 8);
  check_addresses({{p.in.q_pos, of::q_pos}, {p.in.sinks, of::sinks}});
  CHECK(p.in.q_batch_stride == 0);
  CHECK(p.in.q_token_stride == 2000);
  CHECK(p.in.q_head_stride == 120);
  CHECK(p.in.k_token_stride == 128);
  CHECK(p.in.k_rope_head_stride == 16);
  CHECK(p.in.indices_token_stride == 18);
  CHECK(p.in.indices_head_stride == 9);
  CHECK(p.in.sequences == 3);
  CHECK(p.in.heads == 16);
  CHECK(p.in.kv_heads == 2);
  CHECK(p.in.seq_q == 5);
  CHECK(p.in.seq_k == 300);
  CHECK(p.in.head_dim == 64);
  CHECK(p.in.rope_dim == 16);
  CHECK(p.in.value_dim == 64);
  CHECK(p.in.topk == 9);
  CHECK(p.in.block_shift == 4);
  CHECK(p.in.absolute == 0);
  CHECK(p.in.causal == 1);
  CHECK(p.in.head_tiles == 1);
  CHECK(p.in.scale == 0.125f);
  CHECK(p.splits == 2);
  CHECK(p.partial_out == kWorkspace);
  CHECK(p.partial_max == kWorkspace + 2 * 5 * 16 * 64 * 4);
  CHECK(p.partial_sum == kWorkspace + 2 * 5 * 16 * 64 * 4 + 768);

  const auto combine = world.launches_of("sparse_combine").at(0);
  const auto c = combine.as<lathe::SparseCombineParams>();
  CHECK(combine.config.gridDimX == 5 * 16 / 4);
  CHECK(c.partial_sum == p.partial_sum);
  check_addresses({{c.out, of::out},
                   {c.softmax_max, of::softmax_max},
                   {c.softmax_sum, of::softmax_sum},
                   {c.lse, of::lse},
                   {c.sinks, of::sinks}});
  CHECK(c.rows == 5);
  CHECK(c.seq_q == 5);
  CHECK(c.splits == 2);
}

TEST_CASE("sparse attention: a deterministic step is a forward, and rows in chunks") {
  World world;
  world.make(problem(true));
  fill(&world, 5, 300);
  run(&world);
  // Forward, prepare, main, ranges, fill, gather, finish: all rows are one chunk.
  REQUIRE(recorder.count == 7);
  CHECK(world.launches_of("sparse_combine").empty());
  const auto forward = world.launches_of("sparse_forward").at(0).as<lathe::SparseForwardParams>();
  CHECK(forward.splits == 1);
  const auto prepare =
      world.launches_of("sparse_backward_prepare").at(0).as<lathe::SparseBackwardPrepareParams>();
  check_addresses({{prepare.out, of::out},
                   {prepare.dout, of::dout},
                   {prepare.lse, of::lse},
                   {prepare.sinks, of::sinks}});
  CHECK(prepare.rows == 5);
  const auto launch = world.launches_of("sparse_backward").at(0);
  const auto main = launch.as<lathe::SparseBackwardParams>();
  CHECK(launch.config.gridDimX == 5 * 2);
  check_addresses({{main.dq, of::dq}, {main.dq_rope, of::dq_rope}});
  CHECK(main.delta == prepare.delta);
  CHECK(main.dk != nullptr);
  CHECK(main.dv != nullptr);
  CHECK(main.entries == 9 * 16);
  CHECK(main.chunk == 5);
  const auto gather =
      world.launches_of("sparse_backward_gather").at(0).as<lathe::SparseBackwardGatherParams>();
  CHECK(gather.dk == main.dk);
  CHECK(gather.slots == main.slots);
  CHECK(gather.keys == 600);
  CHECK(gather.key_width == 80);
  CHECK(gather.value_width == 64);
  const auto finish =
      world.launches_of("sparse_backward_finish").at(0).as<lathe::SparseBackwardFinishParams>();
  CHECK(finish.dk_sums == main.dk);
  CHECK(finish.dv_sums == main.dv);
  check_addresses({{finish.dk, of::dk},
                   {finish.dk_rope, of::dk_rope},
                   {finish.dv, of::dv},
                   {finish.dsinks, of::dsinks}});
  CHECK(finish.keys == 300);
  CHECK(finish.dk_rope_token_stride == 32);

  // No row: gradients of keys are zeros, which somebody has to write.
  fill(&world, 0, 300);
  run(&world);
  CHECK(world.launches_of("sparse_forward").empty());
  CHECK(world.launches_of("sparse_backward").empty());
  CHECK(world.launches_of("sparse_backward_finish").size() == 1);
}

}  // namespace
