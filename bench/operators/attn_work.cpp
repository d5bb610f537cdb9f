// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/attn_work.h"

#include <nlohmann/json.hpp>

#include "reference/attention_tiles.h"

namespace bench {

std::optional<int64_t> spec_constant(const std::string& spec, const std::string& name) {
  const std::string key = " " + name + "=";
  const size_t at = spec.find(key);
  if (at == spec.npos) return std::nullopt;
  return std::stoll(spec.substr(at + key.size()));
}

AttnWork attn_work(const apitest::AttentionSize& size, int64_t rows, int64_t keys, int64_t group) {
  const int64_t widths = size.backward
                             ? 3 * size.head_dim + 2 * size.value_dim  // S, dK, dQ; dP, dV
                             : size.head_dim + size.value_dim;
  AttnWork work;
  int64_t pairs = 0;
  for (int64_t part = 0; part < size.parts(); ++part) {
    const ref::PairMask mask{size.queries(part), size.keys(part), size.causal, size.window_left};
    work.tiles += ref::visible_tiles(mask, rows, keys, group) * size.heads / group;
    pairs += ref::kept_pairs(mask) * size.heads;
  }
  const auto per_pair = static_cast<double>(2 * widths);
  work.tile_ops = per_pair * static_cast<double>(work.tiles * rows * keys);
  work.pair_ops = per_pair * static_cast<double>(pairs);
  return work;
}

AttnCounts attn_counts(const std::vector<std::string>& launches) {
  AttnCounts sum;
  for (const std::string& line : launches) {
    const auto launch = nlohmann::json::parse(line);
    const auto number = [&](const std::string& name) { return launch.at(name).get<double>(); };
    ++sum.launches;
    sum.tensor_ops += number("tensor_ops");
    sum.conflicts += number("shared_load_conflicts") + number("shared_store_conflicts");
    sum.local_requests += number("local_load_requests") + number("local_store_requests");
    sum.warp_instructions += number("warp_instructions");
    sum.memory_bytes += 32 * (number("unique_load_sectors") + number("unique_store_sectors"));
    for (const char* kind : {"global_load", "global_store", "global_atomic"}) {
      sum.asked_bytes += 32 * number(std::string(kind) + "_sectors");
    }
  }
  return sum;
}

}  // namespace bench
