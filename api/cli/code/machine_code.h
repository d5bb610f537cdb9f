// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Counts instructions in a listing of nvdisasm. A pure function of text.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::cli {

// Instructions that are counted by name, whatever stands behind a point: HGMMA.64x8x16.F32.BF16.
inline constexpr std::array<const char*, 8> kCounted = {"HMMA",    "HGMMA", "LDSM", "LDGSTS",
                                                        "UTMALDG", "BAR",   "LDL",  "STL"};

struct MachineCounts {
  size_t instructions = 0;  // without NOP, which pads
  std::array<size_t, kCounted.size()> of = {};
  // HGMMA between waits (WARPGROUP.DEPBAR), in the order of the listing, where there are any.
  std::vector<size_t> between_waits;
};

MachineCounts count_machine_code(std::string_view listing);

// Returns the counts as lines that begin with //.
std::string counts_text(const MachineCounts& counts);

}  // namespace lathe::cli
