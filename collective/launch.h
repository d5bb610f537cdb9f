// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads from the launcher's environment variables which rank of how many this process is. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "codegen/base/status.h"

namespace lathe {

struct Launch {
  std::string launcher;  // "torchrun", "Open MPI", "PMI", "Slurm"
  int rank = 0, world = 1;
  int local_rank = -1;  // -1: not said
  std::string address;  // where rank 0 serves the unique id; empty if they meet in another way
  int port = 0;         // MASTER_PORT + 1: MASTER_PORT itself may be held by the launcher's store
  std::string folder;   // without an address: where the id is left, LATHE_RENDEZVOUS_DIR
  std::string secret;   // LATHE_RENDEZVOUS_SECRET, which ranks prove at the address; may be ""
  bool nccl_finds_peers = false;  // NCCL_COMM_ID is set: every rank makes the same id
  std::string
      run;  // names this run and its restarts, so that an earlier one is never met; may be ""
};

using Lookup = std::function<std::optional<std::string>(const char* name)>;

// Returns the first launcher whose rank and world are both set. Returns INVALID_ARGUMENT if there
// is none (the message names the variables) or if two launchers contradict each other (the message
// names both). A value that is no number or out of range, and several ranks without an address to
// meet at, are INVALID_ARGUMENT too.
Result<Launch> parse_launch(const Lookup& lookup);

}  // namespace lathe
