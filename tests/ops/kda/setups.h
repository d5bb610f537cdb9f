// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file reads configurations of the kernels of kda: the types, the width that K is padded to,
// the tile and all options. A shape makes a case of a configuration.
#pragma once

#include <random>
#include <string>

#include "tests/harness/family_case.h"
#include "tests/harness/tile_rows.h"
#include "tests/ops/kda/case.h"

namespace apitest {

// The kernels of a configuration have these in common. `width` is K as they pad it, a tile
// has 16 * `warps` columns of V. The flags are words of case_of() and of shapes.
struct KdaSetup {
  lathe_dtype element, gate, beta;
  int width, warps;
  std::string flags;

  bool has(const std::string& flag) const {
    return (" " + flags + " ").find(" " + flag + " ") != std::string::npos;
  }
  // Returns the number that widths are multiples of. Rows of odd multiples of 4 elements move in
  // pieces of 8 bytes.
  int step() const { return has("narrow") || element == LATHE_F32 ? 4 : 8; }
};

// Reads lines such as "bf16 f32 f32 64 4 | final".
inline std::vector<KdaSetup> setups(const std::string& text) {
  std::vector<KdaSetup> all;
  for (const TableRow& row : table_rows(text)) {
    all.push_back({row.dtypes.at(0), row.dtypes.at(1), row.dtypes.at(2), row.numbers.at(0),
                   row.numbers.at(1), row.flags});
  }
  return all;
}

inline KdaCase case_of(const KdaSetup& s) {
  KdaCase kda;
  kda.element = s.element, kda.gate_dtype = s.gate, kda.beta_dtype = s.beta;
  kda.warps = s.warps;
  kda.tight = true;
  kda.any_gates = true;
  kda.gate = s.has("softplus") ? 1 : !s.has("bounded") ? 0 : s.has("factor") ? 3 : 2;
  kda.lower_bound = -5;
  kda.dt_bias = s.has("bias"), kda.l2norm = s.has("l2norm");
  kda.sigmoid = s.has("sigmoid"), kda.negative = s.has("negative");
  kda.v_first = s.has("v_first"), kda.chunk_states = s.has("chunks");
  const bool initial = s.has("initial"), final = s.has("final");
  kda.states =
      initial ? (final ? KdaCase::both : KdaCase::from) : (final ? KdaCase::into : KdaCase::none);
  kda.chunk = 32;
  kda.segments = 1;
  kda.backward = s.has("backward") || s.has("both"), kda.apart = s.has("both");
  kda.forward = !s.has("backward");
  kda.dht = kda.backward && final;
  return kda;
}

// Returns any shape that the configuration allows. By warpgroups there is one tile.
inline KdaCase any_shape_of(const KdaSetup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  KdaCase kda = case_of(s);
  if (in_family("sm90")) kda.warps = 0;
  const int length = one_of({1, 15, 17, 64, 130}), sequences = one_of({1, 2, 4});
  if (s.has("packed")) {
    kda.cu_seqlens = {0};
    for (int n = 0; n < sequences; ++n) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + one_of({0, 1, 16, 31, 70, 150}));
    }
  }
  kda.batch = sequences, kda.tokens = length;
  // A token's errors are those of one rounded product of q and k: its root mean square needs many.
  if (length == 1) kda.batch *= 16;
  kda.heads = one_of({1, 2});
  kda.group = s.has("single") ? 1 : s.has("grouped") ? 2 : one_of({1, 2});
  kda.key_dim = s.width - s.step() * (s.has("narrow") ? one_of({1, 3, 5}) : one_of({0, 1, 3}));
  kda.value_dim = 16 * s.warps + s.step() * one_of({-3, 0, 1});
  return kda;
}

inline void check_case(const KdaCase& kda, uint64_t seed) {
  INFO(kda.text() << " seed " << seed);
  check_kda(kda, make_kda_inputs(kda, seed));
}

constexpr lathe_dtype kF32 = LATHE_F32, kF16 = LATHE_F16, kBf16 = LATHE_BF16;

}  // namespace apitest
