// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the files that make up Store share: the root's descriptor, the counters, the warnings given.
//
//   <root>/v1/lock          all locks, one byte per key
//   <root>/v1/compilers     a line per compiler identity seen at publish
//   <root>/v1/ab/abcdef....lathe     256 shards by the first byte of the key
//   <root>/v1/ab/.tmp.<pid>.<random>
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cache/directory.h"
#include "cache/store.h"

namespace lathe {

inline constexpr const char* kVersionDirectory = "v1";

struct Store::State {
  explicit State(const FileSystem& table) : fs(table) {}

  FileSystem fs;  // a copy: the store may outlive a test's table
  std::string root, problem;
  Descriptor root_fd;
  int64_t lock_timeout_ms = 60000;

  std::atomic<bool> publishing{true};
  std::atomic<uint64_t> hits{0}, misses{0}, corrupt{0}, published{0}, publish_failures{0};

  std::mutex mutex;
  std::set<std::string> warned;           // guarded by mutex
  std::set<std::string> known_compilers;  // guarded by mutex: lines known to be in v1/compilers

  bool on_disk() const { return root_fd.get() >= 0; }

  // <root>/v1 and <root>/v1/ab. Opened per use, so that a cache removed under a running process is
  // made anew by the next publish.
  Opened open_version(bool create) const {
    return open_directory(fs, root_fd.get(), kVersionDirectory, create);
  }
  Opened open_shard(const Digest& key, bool create) const;

  // One warning for each `topic` in the life of the store; an errno is one topic wherever it shows
  // up, because it is one problem of the directory.
  void warn_once(const std::string& topic, const std::string& message);

  // Why the file could not be used: `wrong` must be replaced, otherwise it is only not there for
  // us.
  struct Found {
    std::optional<Entry> entry;
    std::string why;
    bool wrong = false;
    int error = 0;
  };
  // Reads and verifies one file of an open shard; removes it if it is wrong and `heal` is set.
  Found read_entry(int shard, const std::string& name, bool heal, bool touch) const;

  int publish(const Entry& entry, std::string& step);
  void note_compiler(const std::string& key_text);
};

std::string entry_name(const Digest& key);

struct Root {
  Descriptor fd;
  std::string path;     // empty if there is none to use
  std::string problem;  // why
};
// Finds, makes and checks the root directory.
Root open_root(const FileSystem& fs, const std::string& wanted);

}  // namespace lathe
