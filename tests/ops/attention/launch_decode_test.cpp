// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check what flash_attention_decode launches, over a driver table that only writes
// down: which kernels, with which parameters, and that a run allocates nothing.
#include <doctest/doctest.h>

#include "ops/attention/schema.h"
#include "templates/params/attention.h"
#include "tests/harness/launch_world.h"

namespace {

using namespace launches;
using test::Builder;
using test::error;
namespace decode = lathe::attention_decode;

Builder decoder(bool append, const char* splits) {
  Builder builder("flash_attention_decode");
  builder.tensors({{"q", LATHE_F16, {-1, -1, 8, 64}},
                   {"k_cache", LATHE_F16, {-1, -1, 2, 64}},
                   {"v_cache", LATHE_F16, {-1, -1, 2, 32}},
                   {"block_table", LATHE_I32, {-1, -1}},
                   {"cache_seqlens", LATHE_I32, {-1}},
                   {"out", LATHE_F16, {-1, -1, 8, 32}},
                   {"lse", LATHE_F32, {-1, 8, -1}}});
  if (append) {
    builder.tensor({"k_new", LATHE_F16, {-1, -1, 2, 64}});
    builder.tensor({"v_new", LATHE_F16, {-1, -1, 2, 32}});
  }
  builder.set("num_splits", splits).set("window_left", "1000").set("causal", "1");
  return builder;
}

void fill(World* world, int64_t batch, int64_t queries) {
  world->fill("B Sq H HK D DV P page M", {batch, queries, 8, 2, 64, 32, 77, 48, 20});
}

TEST_CASE("decode: append, attention in parts and combine, and nothing is allocated") {
  World world;
  world.make(decoder(true, "3"));
  fill(&world, 5, 4);
  // Rows of the keys' cache lie apart.
  world.arrays[decode::k_cache].strides = {48 * 256, 256, 64, 1};
  world.slots[decode::k_cache] = world.arrays[decode::k_cache].get();
  size_t bytes = 0;
  REQUIRE_MESSAGE(world.run(&bytes) == LATHE_OK, error());
  REQUIRE(recorder.count == 3);
  const auto append = world.launches_of("attention_append").at(0);
  const auto p = append.as<lathe::AttentionAppendParams>();
  CHECK(append.config.gridDimX == 20);
  check_addresses(
      {{p.k_new, decode::k_new}, {p.v_new, decode::v_new}, {p.k_cache, decode::k_cache}});
  CHECK(p.k_page_stride == 48 * 256 / 8);
  CHECK(p.k_row_stride == 32);
  CHECK(p.v_row_stride == 8);
  CHECK(p.k_words == 8);
  CHECK(p.v_words == 4);

  const auto q = recorder.launches[1].as<lathe::AttentionDecodeParams>();
  CHECK(recorder.launches[1].config.gridDimX == 1 * 2 * 5 * 3);  // 16 rows are one tile
  CHECK(recorder.launches[1].config.hStream == kStream);
  check_addresses(
      {{q.forward.q, decode::q}, {q.forward.k, decode::k_cache}, {q.forward.v, decode::v_cache}});
  CHECK(q.forward.k_batch_stride == 48 * 256);
  CHECK(q.forward.k_token_stride == 256);
  CHECK(q.forward.window_left == -1);  // a window over all 960 keys is none
  CHECK(q.forward.window_right == 0);
  check_addresses(
      {{q.pages.block_table, decode::block_table}, {q.pages.cache_seqlens, decode::cache_seqlens}});
  CHECK(q.pages.page == 48);
  CHECK(q.pages.pages == 77);
  CHECK(q.pages.table_width == 20);
  CHECK(q.pages.most_keys == 960);
  CHECK(q.appended == 4);
  CHECK(q.splits == 3);
  CHECK(q.partial_out == kWorkspace);
  CHECK(q.partial_lse == kWorkspace + 3 * 5 * 8 * 4 * 32 * 4);

  const auto c = world.launches_of("attention_combine").at(0).as<lathe::AttentionCombineParams>();
  CHECK(c.partial_out == q.partial_out);
  CHECK(c.partial_lse == q.partial_lse);
  check_addresses({{c.out, decode::out}, {c.lse, decode::lse}});
  CHECK(c.rows == 5 * 8 * 4);
  CHECK(c.splits == 3);
  CHECK(static_cast<const char*>(c.partial_lse) + 3 * c.rows * 4 <= kWorkspace + bytes);
}

TEST_CASE("decode: latent keys are their values, and keys alone are appended") {
  Builder builder("flash_attention_decode");
  builder.tensors({{"q", LATHE_F16, {-1, -1, 16, 576}},
                   {"k_cache", LATHE_F16, {-1, -1, 1, 576}},
                   {"block_table", LATHE_I32, {-1, -1}},
                   {"cache_seqlens", LATHE_I32, {-1}},
                   {"k_new", LATHE_F16, {-1, -1, 1, 576}},
                   {"out", LATHE_F16, {-1, -1, 16, 512}},
                   {"lse", LATHE_F32, {-1, 16, -1}}});
  World world;
  world.make(builder.set("num_splits", "2"));
  world.fill("B Sq H HK D DV P page M", {3, 2, 16, 1, 576, 512, 77, 48, 20});
  size_t bytes = 0;
  REQUIRE_MESSAGE(world.run(&bytes) == LATHE_OK, error());
  REQUIRE(recorder.count == 3);
  const auto a = world.launches_of("attention_append").at(0).as<lathe::AttentionAppendParams>();
  check_addresses({{a.k_new, decode::k_new}, {a.k_cache, decode::k_cache}});
  CHECK(a.k_words == 72);
  CHECK(a.v_words == 0);
  const auto p = recorder.launches[1].as<lathe::AttentionDecodeParams>();
  check_addresses({{p.forward.k, decode::k_cache}, {p.forward.v, decode::k_cache}});
  CHECK(p.forward.k_token_stride == 576);
  CHECK(p.forward.head_dim == 576);
  CHECK(p.forward.value_dim == 512);
  CHECK(p.appended == 2);
  CHECK(bytes >= 2 * 3 * 16 * 2 * 513 * 4);
}

TEST_CASE("decode: the kernel follows the number of queries; without append or parts it is alone") {
  World world;
  world.make(decoder(false, "1"));
  size_t bytes = 1;
  std::vector<int> kernels;
  for (const int64_t queries : {1, 4, 5, 40}) {
    fill(&world, 2, queries);
    REQUIRE_MESSAGE(world.run(&bytes) == LATHE_OK, error());
    CHECK(bytes == 0);
    REQUIRE(recorder.count == 1);
    kernels.push_back(recorder.launches[0].kernel);
    const auto p = recorder.launches[0].as<lathe::AttentionDecodeParams>();
    CHECK(p.appended == 0);
    CHECK(p.splits == 1);
    CHECK(p.forward.tiles == (queries == 40 ? 3 : 1));  // 160 rows, 64 a tile
  }
  CHECK(kernels == std::vector<int>{0, 0, 1, 1});
  fill(&world, 0, 3);
  CHECK(world.run(&bytes) == LATHE_OK);
  CHECK(recorder.count == 0);
}

TEST_CASE("decode: caches that are only read may be one; written ones may not") {
  for (const bool append : {false, true}) {
    World world;
    world.make(decoder(append, "1"));
    fill(&world, 2, 1);
    world.arrays[decode::v_cache].view.data = World::address(decode::k_cache);
    world.slots[decode::v_cache] = world.arrays[decode::v_cache].get();
    size_t bytes = 0;
    CHECK(world.run(&bytes) == (append ? LATHE_INVALID_ARGUMENT : LATHE_OK));
    if (append) CHECK(test::contains(error(), "k_cache"));
  }
}

}  // namespace
