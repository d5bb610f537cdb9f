// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests of the simulator's environment, which is read once, run in processes of their own. This
// file starts them and reads the files that they leave.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "sim/tests/driver/driver_client.h"

namespace sim::tests {

using Environment = std::map<std::string, std::string>;

struct Child {
  int status = -1;  // what it exited with
  std::string error;
};

// Runs `body` in a fresh process that ends with what it returns.
inline Child in_child(const Environment& environment, const std::function<int()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::exit(body());
  }
  close(ends[1]);
  Child result;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    result.error.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

inline std::string path_of(const char* name) {
  const std::string path =
      std::string(SIM_LIBRARY_DIR) + "/driver_report_" + name + "_" + std::to_string(getpid());
  std::remove(path.c_str());
  return path;
}

inline std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::remove(path.c_str());
  return text.str();
}

inline bool exists(const std::string& path) { return std::ifstream(path).good(); }

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline size_t lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace sim::tests
