// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Starts the compile process so that the program that uses the library does not notice: it gets no
// SIGCHLD, its wait() for any child does not see this one, and no file is needed.
#pragma once

#include <string>

#include "codegen/base/status.h"

namespace lathe {

struct SpawnedProcess {
  int socket = -1;
  int pidfd = -1;  // -1 before Linux 5.2
};

// Runs the embedded program with the other end of a socket as its descriptor 0 and none of the
// caller's. `append_flags` is its NVRTC_APPEND_FLAGS. COMPILE_FAILED names the step that failed.
Result<SpawnedProcess> spawn_compile_process(const std::string& append_flags);

// Closes the socket, at which the process ends, and the pidfd. Where this process is the one that
// orphans are given to (the first of a container), it takes the exit status.
void end_process(const SpawnedProcess& process);

}  // namespace lathe
