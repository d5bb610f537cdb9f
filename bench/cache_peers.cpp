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

// Returns the line of JSON that a script of tests/peers prints.
nlohmann::json answer_of(const std::string& folder, const std::string& cache,
                         const std::string& script, const std::string& word) {
  const std::string peers = peers_of(folder).string();
  const std::string output =
      output_of("TRITON_CACHE_DIR='" + cache + "' LD_LIBRARY_PATH='" + peers + "/standins' '" +
                peers + "/venv/bin/python' '" LATHE_SOURCE_DIR "/tests/peers/" + script + "' " +
                word + " 2>/dev/null");
  return nlohmann::json::parse(output.substr(output.find('{')));
}

std::string versions_of(const nlohmann::json& answer) {
  return "triton " + answer.at("triton").get<std::string>() + ", fla " +
         answer.at("fla").get<std::string>();
}

}  // namespace

TritonForward triton_forward(const std::string& folder, const std::string& cache,
                             const std::string& what) {
  const auto answer = answer_of(folder, cache, "attention_start.py", what);
  TritonForward forward;
  forward.versions = versions_of(answer);
  forward.kernels = answer.at("kernels").get<int>();
  forward.microseconds = answer.at("us").get<double>();
  forward.processor_microseconds = answer.at("cpu_us").get<double>();
  if (forward.kernels == 0 || answer.at("hits").get<int>() != 0)
    throw std::runtime_error("Triton compiled nothing for " + what + ", or its cache had a kernel");
  return forward;
}

TritonStart triton_start(const std::string& folder, const std::string& cache, bool both,
                         bool cold) {
  const auto answer = answer_of(folder, cache, "conv_start.py", both ? "both" : "forward");
  TritonStart start;
  start.versions = versions_of(answer);
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
