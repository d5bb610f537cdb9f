// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The peers' wheels that --peers measures beside: tests/peers/install.sh.
#pragma once

#include <filesystem>
#include <string>

namespace bench {

// Where they are, below the build tree whose programs are in `folder`.
std::filesystem::path peers_of(const std::string& folder);

// Installs them if need be, which is told on stderr. Whether they are there; if not, it is said
// why.
bool have_peers(const std::string& folder);

}  // namespace bench
