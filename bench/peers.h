// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the peers' wheels that --peers measures beside: tests/peers/install.sh.
#pragma once

#include <filesystem>
#include <string>

namespace bench {

// Returns where the wheels are, below the build tree whose programs are in `folder`.
std::filesystem::path peers_of(const std::string& folder);

// Installs the wheels if need be, which is told on stderr. True if they are there; if not, the
// reason is told.
bool have_peers(const std::string& folder);

}  // namespace bench
