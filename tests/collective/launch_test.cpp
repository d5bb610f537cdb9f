// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover environments as launchers leave them, and damaged ones.
#include "collective/launch.h"

#include <doctest/doctest.h>

#include <map>

using namespace lathe;

namespace {

using Environment = std::map<std::string, std::string>;

Result<Launch> parse(const Environment& environment) {
  return parse_launch([&](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

}  // namespace

TEST_CASE("each launcher is understood") {
  struct Good {
    Environment environment;
    const char* launcher;
    int rank, world, local_rank;
    const char* run;
  };
  const Environment place = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1234"}};
  const Good cases[] = {
      {{{"RANK", "3"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"TORCHELASTIC_RUN_ID", "a"},
        {"TORCHELASTIC_RESTART_COUNT", "2"}},
       "torchrun",
       3,
       8,
       1,
       "/a/2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "torchrun", 0, 2, -1, ""},
      {{{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"PMIX_NAMESPACE", "prte-7@1"}},
       "Open MPI",
       1,
       2,
       0,
       "/prte-7@1"},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, "PMI", 1, 3, -1, ""},
      {{{"SLURM_PROCID", "5"},
        {"SLURM_NTASKS", "6"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_JOB_ID", "77"},
        {"SLURM_STEP_ID", "0"}},
       "Slurm",
       5,
       6,
       1,
       "/77/0"},
      // Two that agree: the first speaks.
      {{{"PMI_RANK", "1"},
        {"PMI_SIZE", "3"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "3"},
        {"SLURM_JOB_ID", "9"}},
       "PMI",
       1,
       3,
       -1,
       ""},
      // srun starts torchrun's agents, one per node: their numbers are not ours.
      {{{"RANK", "9"},
        {"WORLD_SIZE", "16"},
        {"TORCHELASTIC_RUN_ID", "b"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"}},
       "torchrun",
       9,
       16,
       -1,
       "/b"},
      // Half a set is none.
      {{{"RANK", "9"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, "PMI", 1, 3, -1, ""},
  };
  for (const Good& good : cases) {
    Environment environment = good.environment;
    environment.insert(place.begin(), place.end());
    const Result<Launch> got = parse(environment);
    REQUIRE_MESSAGE(got.ok(), got.status().text());
    CHECK(got->launcher == good.launcher);
    CHECK(got->rank == good.rank);
    CHECK(got->world == good.world);
    CHECK(got->local_rank == good.local_rank);
    CHECK(got->run == good.run);
    CHECK(got->address == "node1");
    CHECK(got->port == 1235);
    CHECK_FALSE(got->nccl_finds_peers);
  }
}

TEST_CASE("the meeting point: default port, one rank without, a secret, NCCL's own") {
  Environment two = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}};
  CHECK(parse(two)->port == 29501);
  CHECK(parse({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->address.empty());
  CHECK(parse(two)->secret.empty());
  two["LATHE_RENDEZVOUS_SECRET"] = "key";
  CHECK(parse(two)->secret == "key");
  two["LATHE_RENDEZVOUS_DIR"] = "/shared";
  CHECK(parse(two)->folder.empty());  // an address is faster
  two.erase("MASTER_ADDR");
  CHECK(parse(two)->folder == "/shared");
  CHECK(parse(two)->address.empty());
  two["NCCL_COMM_ID"] = "h:1";
  const Result<Launch> own = parse(two);
  REQUIRE(own.ok());
  CHECK(own->nccl_finds_peers);
  CHECK(own->address.empty());
  CHECK(own->folder.empty());
}

TEST_CASE("what is missing, wrong or contradictory is named") {
  struct Bad {
    Environment environment;
    std::vector<const char*> says;
  };
  const Bad cases[] = {
      {{}, {"RANK and WORLD_SIZE (torchrun)", "SLURM_PROCID and SLURM_NTASKS (Slurm)"}},
      {{{"RANK", "1"}}, {"RANK is set but WORLD_SIZE is not"}},
      {{{"PMI_SIZE", "1"}}, {"PMI_SIZE is set but PMI_RANK is not"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}},
       {"MASTER_ADDR is not set", "rank 1 of 2", "LATHE_RENDEZVOUS_DIR", "NCCL_COMM_ID"}},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, {"RANK is \"2\"", "0 to 1"}},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, {"RANK is \"-1\""}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE is \"0\""}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2x"}}, {"WORLD_SIZE is \"2x\""}},
      {{{"RANK", "99999999999999"}, {"WORLD_SIZE", "2"}}, {"RANK is \"99999999999999\""}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "65535"}},
       {"MASTER_PORT is \"65535\"", "65534"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
       {"torchrun (RANK=0, WORLD_SIZE=2)", "Slurm (SLURM_PROCID=1, SLURM_NTASKS=2)"}},
  };
  for (const Bad& bad : cases) {
    const Result<Launch> got = parse(bad.environment);
    CHECK(got.status().code() == Code::invalid_argument);
    for (const char* words : bad.says) {
      CHECK_MESSAGE(got.status().text().find(words) != std::string::npos, got.status().text());
    }
  }
}
