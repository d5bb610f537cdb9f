// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers.h"

#include <cstdlib>
#include <iostream>

namespace bench {

std::filesystem::path peers_of(const std::string& folder) {
  return std::filesystem::path(folder).parent_path() / "peers";
}

bool have_peers(const std::string& folder) {
  const std::string install =
      "'" LATHE_SOURCE_DIR "/tests/peers/install.sh' '" + peers_of(folder).string() + "' >&2";
  if (std::system(install.c_str()) == 0) return true;
  std::cerr << "lathe_bench: the peers could not be installed into " << peers_of(folder).string()
            << "; going on without\n";
  return false;
}

}  // namespace bench
