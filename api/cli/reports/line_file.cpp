// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/line_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

namespace lathe::cli {
namespace {

constexpr char kVariable[] = "LATHE_SIM_NCCL_COUNTERS";

}  // namespace

LineFile::LineFile(const char* name) : file_(memfd_create(name, 0)) {
  if (file_ < 0) fail(std::string("no memory file can be made: ") + std::strerror(errno));
}

LineFile::~LineFile() { close(file_); }

std::string LineFile::text() const {
  std::string out;
  char buffer[65536];
  for (ssize_t got = 0;
       (got = pread(file_, buffer, sizeof buffer, static_cast<off_t>(out.size()))) > 0;) {
    out.append(buffer, static_cast<size_t>(got));
  }
  return out;
}

Json LineFile::lines(const char* what) const {
  Json out = Json::array();
  std::istringstream lines(text());
  for (std::string line; std::getline(lines, line);) {
    Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object()) fail(std::string(what) + " a line that is not JSON");
    out.push_back(std::move(entry));
  }
  return out;
}

void LineFile::clear() { (void)!ftruncate(file_, 0); }

Traffic::Traffic() : file_("traffic") {
  if (const char* value = std::getenv(kVariable)) before_ = value;
  setenv(kVariable, file_.path().c_str(), 1);
}

Traffic::~Traffic() {
  if (before_) {
    setenv(kVariable, before_->c_str(), 1);
  } else {
    unsetenv(kVariable);
  }
}

TrafficCounts Traffic::take() {
  std::map<int, TrafficCounts> ranks;
  for (const Json& json : file_.lines("the counters of messages have")) {
    // The ranks agree on the plan before their first run: a collective, no part of the run.
    if (json.at("hop") == 0 && json.at("sends") == 0 && json.at("receives") == 0) continue;
    TrafficCounts& rank = ranks[json.at("rank").get<int>()];
    const uint64_t bytes =
        json.at("bytes_sent").get<uint64_t>() + json.at("collective_bytes").get<uint64_t>();
    ++rank.groups;
    rank.sent += bytes;
    rank.largest_hop = std::max(rank.largest_hop, bytes);
  }
  file_.clear();
  TrafficCounts most;
  for (const auto& [rank, counts] : ranks) {
    most.groups = std::max(most.groups, counts.groups);
    most.sent = std::max(most.sent, counts.sent);
    most.largest_hop = std::max(most.largest_hop, counts.largest_hop);
  }
  return most;
}

}  // namespace lathe::cli
