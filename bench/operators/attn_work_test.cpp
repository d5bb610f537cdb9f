// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/attn_work.h"

#include <doctest/doctest.h>

using apitest::AttentionSize;

TEST_CASE("attn: constants are read from a spec") {
  const std::string spec = "attention_forward element=bf16 width=64 m=128 n=32 threads=128";
  CHECK(bench::spec_constant(spec, "m") == 128);
  CHECK(bench::spec_constant(spec, "n") == 32);
  CHECK(bench::spec_constant(spec, "width") == 64);
  CHECK_FALSE(bench::spec_constant(spec, "stages"));
  CHECK_FALSE(bench::spec_constant(spec, "dth"));
}

TEST_CASE("attn: tiles and pairs of a mask, by hand") {
  AttentionSize size;
  size.seq_q = size.seq_k = 256;
  size.heads = 3, size.kv_heads = 1;
  size.head_dim = 64, size.value_dim = 32;
  CHECK(bench::attn_work(size, 128, 64, 1).tiles == 3 * 2 * 4);
  CHECK(bench::attn_work(size, 128, 64, 1).pair_ops == 3.0 * 256 * 256 * 2 * 96);
  size.backward = true;
  CHECK(bench::attn_work(size, 128, 64, 1).pair_ops == 3.0 * 256 * 256 * 2 * 256);
  size.backward = false;
  // Three heads of 256 rows are 768 rows of one tile column.
  CHECK(bench::attn_work(size, 128, 64, 3).tiles == 6 * 4);

  size.causal = true;  // the first 128 rows see two blocks of keys, the others all four
  const auto causal = bench::attn_work(size, 128, 64, 1);
  CHECK(causal.tiles == 3 * 6);
  CHECK(causal.tile_ops == 3.0 * 6 * 128 * 64 * 2 * 96);
  CHECK(causal.pair_ops == 3.0 * 256 * 257 / 2 * 2 * 96);

  // Two sequences of 128 rows in tiles of 128, each below its own diagonal.
  size.sequences = 2;
  CHECK(bench::attn_work(size, 128, 64, 1).tiles == 3 * 2 * 2);
  size.window_left = 0;  // a row sees itself
  CHECK(bench::attn_work(size, 64, 64, 1).tiles == 3 * 4);
  CHECK(bench::attn_work(size, 64, 64, 1).pair_ops == 3.0 * 256 * 2 * 96);
}

TEST_CASE("attn: launches are added up") {
  const auto line = [](int ops) {
    std::string text = "{\"tensor_ops\":" + std::to_string(ops) + ",\"warp_instructions\":10";
    for (const char* kind :
         {"shared_load_conflicts", "shared_store_conflicts", "local_load_requests",
          "local_store_requests", "unique_load_sectors", "unique_store_sectors",
          "global_load_sectors", "global_store_sectors", "global_atomic_sectors"}) {
      text += std::string(",\"") + kind + "\":2";
    }
    return text + "}";
  };
  const auto counts = bench::attn_counts({line(5), line(7)});
  CHECK(counts.launches == 2);
  CHECK(counts.tensor_ops == 12);
  CHECK(counts.conflicts == 8);
  CHECK(counts.local_requests == 8);
  CHECK(counts.warp_instructions == 20);
  CHECK(counts.memory_bytes == 2 * 4 * 32);
  CHECK(counts.asked_bytes == 2 * 6 * 32);
}
