// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Somebody may put these things in place of a file of a rendezvous.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/collective/rendezvous_cases.h"

namespace rendezvous {

// A Victim is a file that a link may lead to and that nobody may touch.
struct Victim {
  explicit Victim(const Folder& folder) : path((folder.path() / "victim").string()) {
    std::ofstream(path) << "precious";
  }
  bool is_whole() const {
    std::string word;
    std::ifstream(path) >> word;
    return word == "precious" && std::filesystem::file_size(path) == 8;
  }
  std::string path;
};

struct Planted {
  const char* kind;
  // Returns false where this user or file system cannot make it.
  bool (*plant)(const std::string& path, const std::string& victim);
  const char* refused;  // the words for it
  bool replaced;        // by a write
};

inline bool plant_file(const std::string& path, off_t bytes, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  const bool made = fd >= 0 && ftruncate(fd, bytes) == 0 && fchmod(fd, mode) == 0;
  if (fd >= 0) close(fd);
  return made;
}

inline const std::vector<Planted>& planted() {
  using Text = const std::string&;
  static const std::vector<Planted> out = {
      {"FIFO", [](Text path, Text) { return mkfifo(path.c_str(), 0600) == 0; }, "is a FIFO", true},
      {"link", [](Text path, Text victim) { return symlink(victim.c_str(), path.c_str()) == 0; },
       "is a link", true},
      {"link to nothing",
       [](Text path, Text) { return symlink("/nowhere/at/all", path.c_str()) == 0; }, "is a link",
       true},
      {"folder", [](Text path, Text) { return mkdir(path.c_str(), 0700) == 0; }, "is a folder",
       false},
      {"huge file", [](Text path, Text) { return plant_file(path, off_t{1} << 40, 0600); },
       "has 1099511627776 bytes", true},
      {"empty file", [](Text path, Text) { return plant_file(path, 0, 0600); }, "has 0 bytes",
       true},
      {"file that nobody may read",
       [](Text path, Text) { return geteuid() != 0 && plant_file(path, 3, 0); },
       "cannot be opened: Permission denied", true},
      {"file of another user",
       [](Text path, Text) {
         return plant_file(path, 3, 0644) && chown(path.c_str(), 12345, 12345) == 0;
       },
       "belongs to user 12345", true},
      {"socket's name",
       [](Text path, Text) { return mknod(path.c_str(), S_IFSOCK | 0600, 0) == 0; },
       "cannot be opened", true},
  };
  return out;
}

}  // namespace rendezvous
