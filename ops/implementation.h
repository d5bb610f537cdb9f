// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ways to compute one step of an operator. A step is a list of implementations: those that support
// the case compete, by what was tuned for the device, else by their order.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "codegen/base/invalid.h"
#include "codegen/choice.h"
#include "codegen/launch_shape.h"

namespace lathe {

// A kernel template with its configurations. Implementations of one step have the same parameter
// struct, so an executor fills it without knowing which of them a plan has. Pure functions of
// integers; a spec says its shared memory, threads and cluster itself.
template <typename Problem, typename Shape, typename Params>
struct Implementation {
  // UNSUPPORTED, by name, for a problem or a device that no configuration covers.
  Status (*supports)(const Problem&, const DeviceFacts&);
  // The configurations worth trying, the default first; at least one if the case is supported.
  std::vector<KernelSpec> (*candidates)(const Problem&, const DeviceFacts&);
  // The constants that a configuration fixes, beside the number of warps.
  std::span<const char* const> tile;
  Grid (*grid)(const KernelSpec&, const Shape&);
  // Sets the parameters that follow from the configuration; null: none does.
  void (*fill)(const KernelSpec&, const Shape&, Params*) = nullptr;
};

// The implementation and the configuration that a plan takes.
template <typename How>
struct ChosenKernel {
  const How* how = nullptr;
  KernelSpec spec;
};

// If no implementation supports the case: what the first one says.
template <typename How, typename Problem>
Result<ChosenKernel<How>> choose_kernel(std::span<const How* const> step, const Problem& problem,
                                        const DeviceFacts& facts) {
  std::vector<const How*> able;
  std::vector<CandidateGroup> groups;
  for (const How* how : step) {
    if (!how->supports(problem, facts).ok()) continue;
    able.push_back(how);
    groups.push_back({how->candidates(problem, facts), {how->tile.begin(), how->tile.end()}});
  }
  if (able.empty()) return step.front()->supports(problem, facts);
  const CandidateIndex chosen = pick(groups, facts);
  return ChosenKernel<How>{able[chosen.group], groups[chosen.group].specs[chosen.spec]};
}

// The tile that was tuned for the device, else the first candidate. `tile`: the constants that it
// fixes. UNSUPPORTED if there is none: `what` then needs at least least() bytes of shared memory.
template <typename Tile, typename SpecOf, typename Least>
Result<Tile> choose_tile(const std::vector<Tile>& candidates, const DeviceFacts& facts,
                         std::initializer_list<const char*> tile, SpecOf spec_of, const char* what,
                         Least least) {
  if (!candidates.empty()) return pick(candidates, facts, tile, spec_of);
  return unsupported(text(what, " needs at least ", least(), " bytes of shared memory, ",
                          facts.arch, " allows ", facts.shared_bytes_per_block));
}

// The tiles of a table that hold, in its order.
template <typename Tiles, typename Holds>
auto tiles_that(const Tiles& tiles, Holds holds) {
  std::vector<std::remove_cvref_t<decltype(*std::begin(tiles))>> out;
  std::copy_if(std::begin(tiles), std::end(tiles), std::back_inserter(out), holds);
  return out;
}

// The least shared memory of tiles, of which there is at least one.
template <typename Tiles, typename Bytes>
int least_bytes(const Tiles& tiles, Bytes bytes_of_tile) {
  int least = bytes_of_tile(*std::begin(tiles));
  for (const auto& tile : tiles) least = std::min(least, bytes_of_tile(tile));
  return least;
}

}  // namespace lathe
