// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tables of token ranges for the tests of pieces: all of a small axis, and random ones.
#pragma once

#include <functional>
#include <random>
#include <string>

#include "collective/plans/pieces.h"

namespace pieces_test {

using namespace lathe;

// Makes the layout in which owners[t] holds token t.
inline Layout layout_of(const std::vector<int>& owners, int world,
                        const std::vector<int64_t>& cu_seqlens) {
  LayoutOptions options;
  options.world = world;
  options.length = std::ssize(owners), options.cu_seqlens = cu_seqlens;
  options.ranges.resize(world);
  for (size_t t = 0; t < owners.size(); ++t) {
    const auto token = static_cast<int64_t>(t);
    options.ranges[owners[t]].push_back({token, token + 1});
  }
  return *make_layout(options);
}

// Returns the same layout with the least capacity that it fits.
inline Layout with_capacity(const Layout& layout) {
  Layout out = layout;
  out.capacity = {1, 1};
  const PieceLayout pieces = piece_layout(layout);
  for (int rank = 0; rank < layout.world(); ++rank) {
    out.capacity.tokens = std::max(out.capacity.tokens, layout.query_tokens(rank));
    out.capacity.pieces = std::max(out.capacity.pieces, std::ssize(pieces.ranks[rank]));
  }
  return out;
}

inline std::string text_of(const std::vector<int>& owners, const std::vector<int64_t>& cu_seqlens) {
  std::string out = "owners";
  for (const int owner : owners) out += " " + std::to_string(owner);
  out += ", cu_seqlens";
  for (const int64_t offset : cu_seqlens) out += " " + std::to_string(offset);
  return out;
}

// Calls `body` for every table of `tokens` tokens over `world` ranks, and every cut into sequences,
// each with an empty sequence in front and behind.
using Body = std::function<void(const Layout& layout)>;
inline void each_table(int world, int tokens, const Body& body) {
  std::vector<int> owners(static_cast<size_t>(tokens));
  const unsigned cuts = 1u << (tokens > 0 ? tokens - 1 : 0);
  for (bool more = true; more;) {
    for (unsigned cut = 0; cut < cuts; ++cut) {
      std::vector<int64_t> cu = {0, 0};
      for (int t = 1; t < tokens; ++t) {
        if (cut >> (t - 1) & 1) cu.push_back(t);
      }
      cu.push_back(tokens), cu.push_back(tokens);
      INFO(text_of(owners, cu));
      body(layout_of(owners, world, cu));
    }
    more = false;
    for (int& owner : owners) {
      owner = (owner + 1) % world;
      more = owner != 0;
      if (more) break;
    }
  }
}

// Calls `body` for random tables: long runs and short ones, some ranks empty.
inline void each_random_table(uint32_t seed, int count, const Body& body) {
  std::mt19937 random(seed);
  const auto below = [&random](int64_t bound) {
    return static_cast<int>(random() % static_cast<uint32_t>(bound));
  };
  for (int i = 0; i < count; ++i) {
    const int world = 1 + below(9), tokens = 1 + below(60), run = 1 + below(12);
    std::vector<int> owners;
    while (std::ssize(owners) < tokens) {
      const int owner = below(world);
      for (int n = 1 + below(run); n > 0 && std::ssize(owners) < tokens; --n)
        owners.push_back(owner);
    }
    std::vector<int64_t> cu = {0};
    while (cu.back() < tokens) cu.push_back(std::min<int64_t>(tokens, cu.back() + below(40)));
    INFO(text_of(owners, cu));
    body(layout_of(owners, world, cu));
  }
}

}  // namespace pieces_test
