// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the implementations of one step of an operator. A step is a list of implementations.
// Among those that support the case, tuned choices for the device decide, else the order of the
// list.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "codegen/base/invalid.h"
#include "codegen/choice.h"
#include "codegen/launch_shape.h"

namespace lathe {

// An implementation is a kernel template with its configurations. Implementations of one step have
// the same parameter struct, so an executor fills it without knowing which of them a plan has. All
// are pure functions of integers. A spec states its own shared memory, threads and cluster. A Walk
// is made of a spec and holds the constants that grids depend on: an executor keeps it, because a
// launch has no time to look up constants by name.
template <typename Problem, typename Shape, typename Params, typename Walk = KernelSpec>
struct Implementation {
  // Returns UNSUPPORTED, by name, for a problem or a device that no configuration covers.
  Status (*supports)(const Problem&, const DeviceFacts&);
  // Returns the configurations worth trying, the default first; at least one if the case is
  // supported.
  std::vector<KernelSpec> (*candidates)(const Problem&, const DeviceFacts&);
  // `tile` names the constants that a configuration fixes, beside the number of warps.
  std::span<const char* const> tile;
  Grid (*grid)(const Walk&, const Shape&);
  // Sets the parameters that follow from the configuration; null if there are none.
  void (*fill)(const KernelSpec&, const Shape&, Params*) = nullptr;
};

// Holds the implementation and the configuration that a plan takes.
template <typename How>
struct ChosenKernel {
  const How* how = nullptr;
  KernelSpec spec;
};

// Returns the first implementation's error if none supports the case.
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

// Returns the kernel of one step that was tuned for the device, else the first of `own`, which are
// Hopper's. `portable` makes the group of the portable kernels for the same step. It is not called
// where nothing was tuned.
template <typename Portable>
KernelSpec choose_family(CandidateGroup own, const DeviceFacts& facts, Portable portable) {
  if (!facts.choices || facts.choices->silent()) return std::move(own.specs.front());
  std::vector<CandidateGroup> groups = {std::move(own)};
  CandidateGroup others = portable();
  if (!others.specs.empty()) groups.push_back(std::move(others));
  const CandidateIndex chosen = pick(groups, facts);
  KernelSpec spec = std::move(groups[chosen.group].specs[chosen.spec]);
  if (chosen.group > 0) spec.family_reason = "not sm90: the tuned choice is a portable kernel";
  return spec;
}

// Returns the tile that was tuned for the device, else the first candidate. `tile` names the
// constants that it fixes. Returns UNSUPPORTED if there is no candidate: `what` then needs at least
// least() bytes of shared memory.
template <typename Tile, typename SpecOf, typename Least>
Result<Tile> choose_tile(const std::vector<Tile>& candidates, const DeviceFacts& facts,
                         std::initializer_list<const char*> tile, SpecOf spec_of, const char* what,
                         Least least) {
  if (!candidates.empty()) return pick(candidates, facts, tile, spec_of);
  return unsupported(text(what, " needs at least ", least(), " bytes of shared memory, ",
                          facts.arch, " allows ", facts.shared_bytes_per_block));
}

// Returns the tiles of a table for which `holds` is true, in the table's order.
template <typename Tiles, typename Holds>
auto tiles_that(const Tiles& tiles, Holds holds) {
  std::vector<std::remove_cvref_t<decltype(*std::begin(tiles))>> out;
  std::copy_if(std::begin(tiles), std::end(tiles), std::back_inserter(out), holds);
  return out;
}

// Returns the least shared memory of the tiles; there is at least one tile.
template <typename Tiles, typename Bytes>
int least_bytes(const Tiles& tiles, Bytes bytes_of_tile) {
  int least = bytes_of_tile(*std::begin(tiles));
  for (const auto& tile : tiles) least = std::min(least, bytes_of_tile(tile));
  return least;
}

}  // namespace lathe
