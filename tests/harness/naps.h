// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Warps of the simulator go on evenly, those of a device need not. A nap makes a warpgroup late at
// one place of a kernel's PTX: the others come as far as what orders them lets them.
#pragma once

#include <string>
#include <vector>

#include "sim/tests/mutation.h"

namespace apitest {

// Returns the lines ahead of which somebody may be late: arrivals, and waits for products.
inline std::vector<size_t> nap_places(const std::vector<std::string>& lines) {
  std::vector<size_t> places;
  for (size_t k = 0; k < lines.size(); ++k) {
    if (sim::test::has_instruction(lines[k], "mbarrier.arrive") ||
        sim::test::has_instruction(lines[k], "wgmma.wait_group")) {
      places.push_back(k);
    }
  }
  return places;
}

// Has one of the two warpgroups that multiply nap at one place, by `number`; at the places of other
// warps these do. A nap takes some ten turns of a warp.
inline std::string with_nap(const std::string& ptx, size_t number) {
  std::vector<std::string> lines = sim::test::lines_of(ptx);
  const std::vector<size_t> places = nap_places(lines);
  if (places.empty()) return ptx;
  std::string& line = lines[places[number / 2 % places.size()]];
  line =
      "{\n .reg .pred awake, more;\n .reg .b32 group, left;\n"
      " mov.u32 group, %tid.x;\n shr.u32 group, group, 7;\n"
      " setp.eq.u32 awake, group, " +
      std::to_string(number % 2) +
      ";\n @awake bra UP;\n mov.u32 left, 12000;\n"
      "DOWN:\n sub.u32 left, left, 1;\n setp.ne.u32 more, left, 0;\n @more bra DOWN;\n"
      "UP:\n}\n" +
      line;
  return sim::test::joined(lines);
}

}  // namespace apitest
