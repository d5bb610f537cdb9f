// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which rank of how many this process is, as its launcher says in the environment. Pure.
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

// The first launcher whose rank and world are both there. INVALID_ARGUMENT if there is none, naming
// the variables; if two launchers contradict each other, naming both; if a value is no number or
// out of range; if several ranks have no address to meet at.
Result<Launch> parse_launch(const Lookup& lookup);

}  // namespace lathe
