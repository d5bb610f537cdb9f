// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/cache_peers.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/peers.h"

namespace bench {
namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no process for " + command);
  std::string out;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr)
    out += buffer.data();
  if (pclose(pipe) != 0) throw std::runtime_error("failed: " + command);
  return out;
}

}  // namespace

TritonStart triton_start(const std::string& folder, const std::string& cache, bool both,
                         bool cold) {
  const std::string peers = peers_of(folder).string();
  const std::string output =
      output_of("TRITON_CACHE_DIR='" + cache + "' LD_LIBRARY_PATH='" + peers + "/standins' '" +
                peers + "/venv/bin/python' '" LATHE_SOURCE_DIR "/tests/peers/conv_start.py' " +
                (both ? "both" : "forward") + " 2>/dev/null");
  const auto answer = nlohmann::json::parse(output.substr(output.find('{')));
  TritonStart start;
  start.versions = "triton " + answer.at("triton").get<std::string>() + ", fla " +
                   answer.at("fla").get<std::string>();
  start.import_us = answer.at("import_us").get<double>();
  for (const auto& kernel : answer.at("kernels")) {
    if (kernel.at("hit").get<bool>() == cold)
      throw std::runtime_error(cold ? "Triton's empty cache had a kernel"
                                    : "Triton's cache lacked a kernel");
    start.kernels.push_back(kernel.at("us").get<double>());
  }
  return start;
}

}  // namespace bench
