// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/traffic.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace lathe::cli {
namespace {

constexpr char kVariable[] = "LATHE_SIM_NCCL_COUNTERS";

}  // namespace

Traffic::Traffic() {
  path_ = (std::filesystem::temp_directory_path() /
           ("lathe-traffic-" + std::to_string(getpid()) + ".jsonl"))
              .string();
  const char* value = std::getenv(kVariable);
  had_ = value != nullptr;
  if (had_) before_ = value;
  setenv(kVariable, path_.c_str(), 1);
}

Traffic::~Traffic() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  if (had_) {
    setenv(kVariable, before_.c_str(), 1);
  } else {
    unsetenv(kVariable);
  }
}

TrafficCounts Traffic::take() {
  std::map<int, TrafficCounts> ranks;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    // Before their first run the ranks agree on the plan: a collective, no part of it.
    if (json.at("hop") == 0 && json.at("sends") == 0 && json.at("receives") == 0) continue;
    TrafficCounts& rank = ranks[json.at("rank").get<int>()];
    const uint64_t bytes =
        json.at("bytes_sent").get<uint64_t>() + json.at("collective_bytes").get<uint64_t>();
    ++rank.groups;
    rank.sent += bytes;
    rank.largest_hop = std::max(rank.largest_hop, bytes);
  }
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  TrafficCounts most;
  for (const auto& [rank, counts] : ranks) {
    most.groups = std::max(most.groups, counts.groups);
    most.sent = std::max(most.sent, counts.sent);
    most.largest_hop = std::max(most.largest_hop, counts.largest_hop);
  }
  return most;
}

}  // namespace lathe::cli
