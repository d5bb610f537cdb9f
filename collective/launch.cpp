// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads the launchers' variables.
#include "collective/launch.h"

#include <charconv>

#include "codegen/base/invalid.h"
#include "collective/plans/shard.h"

namespace lathe {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char *run, *restart;  // together they name the run
};

constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID",
     "TORCHELASTIC_RESTART_COUNT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_JOBID", "SLURM_STEP_ID"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};
constexpr int kDefaultPort = 29500;

Result<int> number(const char* name, const std::string& value, int low, int high) {
  int out = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, out);
  if (error != std::errc() || rest != end || out < low || out > high) {
    return invalid(text(name, " is \"", value, "\", must be a number from ", low, " to ", high));
  }
  return out;
}

// Returns nothing if the launcher's set of variables is not complete.
Result<std::optional<Launch>> read(const Launcher& launcher, const Lookup& lookup) {
  const auto rank = lookup(launcher.rank), world = lookup(launcher.world);
  if (!rank || !world) return std::optional<Launch>();
  Launch out;
  out.launcher = launcher.name;
  LATHE_ASSIGN(out.world, number(launcher.world, *world, 1, kMostWorld));
  LATHE_ASSIGN(out.rank, number(launcher.rank, *rank, 0, out.world - 1));
  if (const auto local = lookup(launcher.local_rank)) {
    LATHE_ASSIGN(out.local_rank, number(launcher.local_rank, *local, 0, kMostWorld));
  }
  for (const char* name : {launcher.run, launcher.restart}) {
    if (const auto part = lookup(name)) out.run += text("/", *part);
  }
  return std::optional<Launch>(std::move(out));
}

Status contradiction(const Launcher& a, const Launch& found, const Launcher& b,
                     const Launch& other) {
  const auto say = [](const Launcher& launcher, const Launch& launch) {
    return text(launcher.name, " (", launcher.rank, "=", launch.rank, ", ", launcher.world, "=",
                launch.world, ")");
  };
  return invalid(text("the environment speaks of two launchers that differ: ", say(a, found),
                      " and ", say(b, other), "; unset the variables of one"));
}

Status nothing_found(const Lookup& lookup) {
  std::string wanted, half;
  for (const Launcher& launcher : kLaunchers) {
    wanted += text(wanted.empty() ? "" : ", ", launcher.rank, " and ", launcher.world, " (",
                   launcher.name, ")");
    const bool rank = lookup(launcher.rank).has_value(), world = lookup(launcher.world).has_value();
    if (rank == world) continue;
    half += text("; ", rank ? launcher.rank : launcher.world, " is set but ",
                 rank ? launcher.world : launcher.rank, " is not");
  }
  return invalid(
      text("the environment does not say which rank this is: needed are ", wanted, half));
}

Status find_meeting_point(Launch& launch, const Lookup& lookup) {
  if (launch.world == 1) return {};
  launch.nccl_finds_peers = lookup("NCCL_COMM_ID").has_value();
  if (launch.nccl_finds_peers) return {};
  const auto address = lookup("MASTER_ADDR"), folder = lookup("LATHE_RENDEZVOUS_DIR");
  if (!address && folder) {
    launch.folder = *folder;
    return {};
  }
  if (!address) {
    return invalid(text("MASTER_ADDR is not set: rank ", launch.rank, " of ", launch.world, " (",
                        launch.launcher,
                        ") needs the address of rank 0, or in LATHE_RENDEZVOUS_DIR a ",
                        "folder that all ranks see, or NCCL_COMM_ID=host:port"));
  }
  launch.address = *address;
  int port = kDefaultPort;
  if (const auto given = lookup("MASTER_PORT")) {
    LATHE_ASSIGN(port, number("MASTER_PORT", *given, 1, 65534));
  }
  launch.port = port + 1;
  launch.secret = lookup("LATHE_RENDEZVOUS_SECRET").value_or("");
  return {};
}

}  // namespace

Result<Launch> parse_launch(const Lookup& lookup) {
  // Where torchrun is itself started by srun or mpirun, their variables number its agents, one per
  // node, and every process inherits them: they say nothing about this process.
  const bool agent = lookup("TORCHELASTIC_RUN_ID").has_value();
  const Launcher* by = nullptr;
  Launch found;
  for (const Launcher& launcher : kLaunchers) {
    if (by != nullptr && agent) break;
    LATHE_ASSIGN(const std::optional<Launch> launch, read(launcher, lookup));
    if (!launch) continue;
    if (by == nullptr) {
      by = &launcher;
      found = *launch;
    } else if (launch->rank != found.rank || launch->world != found.world) {
      return contradiction(*by, found, launcher, *launch);
    }
  }
  if (by == nullptr) return nothing_found(lookup);
  LATHE_TRY(find_meeting_point(found, lookup));
  return found;
}

}  // namespace lathe
