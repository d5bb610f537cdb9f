// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The lines of a user's kernel that the simulator speaks of: it knows the text by the name under
// which the library compiles it, the user by the file.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "api/cli/reports/report.h"

namespace lathe::cli {

// Where the instructions of a kernel's PTX come from, by its .loc lines.
class PtxPlaces {
 public:
  explicit PtxPlaces(const std::string& ptx);

  // "common/mma.cuh:20" and the places that it was called from, where it was compiled in line, the
  // innermost first; empty: nothing is known of the line of PTX.
  std::vector<std::string> of(size_t ptx_line) const;

 private:
  using Site = std::tuple<int, int, int>;  // file, line, column

  std::map<int, std::string> files_;
  std::map<Site, Site> outer_;     // of a site in a function that was compiled in line: the call
  std::map<size_t, Site> begins_;  // by line of PTX
};

class SourceLines {
 public:
  // `op`: as the user named the operator. One of lathe's own has no lines. `ptx`: of its kernels.
  SourceLines(const std::string& op, const std::vector<std::string>& ptx);

  // Puts the user's file in place of the name that "source" has, of a finding or a counted line and
  // of the other access of a race, and beside it "source_text", the line itself. Where the source
  // is a header of lathe, "called_from" says which line of the user's it serves.
  void name(Json* entry) const;

 private:
  void name_one(Json* entry) const;
  // "FILE:9" of "/lathe/caller/kernel.cuh:9"; empty for any other place.
  std::string users(const std::string& place) const;
  std::string caller_of(const Json& entry) const;

  std::string file_;
  std::vector<std::string> lines_;
  std::vector<PtxPlaces> kernels_;
};

}  // namespace lathe::cli
