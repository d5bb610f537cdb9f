// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Keeps units that did not compile, for whoever reads the message.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

// Saves `unit` in the temporary directory as lathe-failed-<user id>/<kernel>-<digest>.cu and gives
// that path; empty if it cannot. The folder is the user's own, and it keeps the 16 files that were
// saved last: the same failure again takes no more room.
std::string save_failed_unit(std::string_view unit);

}  // namespace lathe
