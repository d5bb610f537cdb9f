// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Helpers of steps that choose among the tiles of a table.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "codegen/base/invalid.h"
#include "codegen/choice.h"

namespace lathe {

// Says that a block of `what` does not fit the device's shared memory.
inline std::string shared_memory_refusal(const char* what, int64_t least,
                                         const DeviceFacts& facts) {
  return text(what, " needs at least ", least, " bytes of shared memory, ", facts.arch, " allows ",
              facts.shared_bytes_per_block);
}

// Returns the tile that was tuned for the device, else the first candidate. `tile` names the
// constants that it fixes. Returns UNSUPPORTED if there is no candidate: `what` then needs at least
// least() bytes of shared memory.
template <typename Tile, typename SpecOf, typename Least>
Result<Tile> choose_tile(const std::vector<Tile>& candidates, const DeviceFacts& facts,
                         std::initializer_list<const char*> tile, SpecOf spec_of, const char* what,
                         Least least) {
  if (!candidates.empty()) return pick(candidates, facts, tile, spec_of);
  return unsupported(shared_memory_refusal(what, least(), facts));
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
