// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lathe::cli {

// Does what the words of a command line ask for and returns the exit code. Throws Failure.
int run_command_line(int count, char** words);

}  // namespace lathe::cli
