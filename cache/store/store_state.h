// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// State that the files of Store share: the root's descriptor, the counters, the warnings given.
//
//   <root>/v1/lock          all locks, one byte per key, eviction and compile slot
//   <root>/v1/compilers     a line per compiler identity seen at publish
//   <root>/v1/nvrtc         which compiler the loader opens (compiler_memo.cpp)
//   <root>/v1/ab/abcdef....lathe     256 shards by the first byte of the key
//   <root>/v1/ab/.tmp.<pid>.<random>
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cache/directory.h"
#include "cache/store/store.h"

namespace lathe {

inline constexpr const char* kVersionDirectory = "v1";

struct Root {
  Descriptor fd;
  std::string path;     // empty if there is none to use
  std::string problem;  // why
};

struct Store::State {
  explicit State(const FileSystem& table) : fs(table) {}

  FileSystem fs;  // a copy: the store may outlive a test's table
  std::string root, problem;
  Descriptor root_fd;
  bool read_only = false;  // somebody else's: nothing in it is changed, not even a lock taken
  Trust trust() const { return read_only ? Trust::user_and_root : Trust::user; }
  int64_t lock_timeout_ms = 60000;

  std::atomic<int> slots_given_up{0};

  uint64_t max_bytes = 0;  // what entries may add up to; 0: no limit

  std::atomic<bool> publishing{true};
  std::atomic<uint64_t> hits{0}, misses{0}, corrupt{0}, published{0}, publish_failures{0};

  std::mutex mutex;
  std::set<std::string> warned;           // guarded by mutex
  std::set<std::string> known_compilers;  // guarded by mutex: lines known to be in v1/compilers

  // Through which entries are read: fresh memory costs more than reading does.
  mutable std::mutex window_mutex;
  mutable std::unique_ptr<char[]> window;  // guarded by window_mutex; kWindowBytes

  void take(Root found);
  bool on_disk() const { return root_fd.get() >= 0; }

  // <root>/v1 and <root>/v1/ab. Opened per use, so that a cache removed under a running process is
  // made anew by the next publish.
  Opened open_version(bool create) const {
    return open_directory(fs, root_fd.get(), kVersionDirectory, create, trust());
  }
  Opened open_shard(const Digest& key, bool create) const;
  // Returns whether a file has the name of that entry, good or not.
  bool is_there(const Opened& version, const Digest& key) const;
  bool tired_of_slots(double waited_ms);
  void say_waited(double ms, const Digest& key) const;
  // The file of all locks.
  Opened open_locks(const Opened& version) const;

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
  // Reads and verifies an open file of so many bytes.
  Found read_pieces(int fd, uint64_t bytes, Keep keep) const;
  // Reads and verifies one file of an open shard; removes it if it is wrong and `heal` is set.
  Found read_entry(int shard, const std::string& name, bool heal, bool touch,
                   Keep keep = Keep::all) const;

  int publish(const Entry& entry, std::string& step);
  // After the n-th publish: now and then, and in one process at a time, trims to max_bytes.
  void trim_now_and_then(uint64_t published_before);
  TrimReport trim(uint64_t bytes, int64_t fresh_seconds, bool dry_run) const;
  void note_compiler(const std::string& key_text);
};

std::string entry_name(const Digest& key);
// Returns whether a file's name is that of an entry, of any version of the library.
bool is_entry_name(std::string_view name);

// The directories of all versions of the library in an open root, v1 among them, in the order of
// names. Where they cannot be listed it is v1 alone, if that is there.
std::vector<std::string> version_names(const FileSystem& fs, int root);

// visit(shard's name, its descriptor, file name) for every file of every shard of a version's
// directory, in the order of names, until it returns false.
template <typename Visit>
void for_each_file(const FileSystem& fs, const Opened& version, Visit visit,
                   Trust trust = Trust::user) {
  std::vector<std::string> shards;
  if (!version || list_names(fs, version.fd(), shards) != 0) return;
  std::sort(shards.begin(), shards.end());
  for (const std::string& shard : shards) {
    if (shard.size() != 2) continue;
    Opened opened = open_directory(fs, version.fd(), shard.c_str(), false, trust);
    std::vector<std::string> names;
    if (!opened || list_names(fs, opened.fd(), names) != 0) continue;
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (!visit(shard, opened.fd(), name)) return;
    }
  }
}

// visit(shard descriptor, file name) for every entry of a version's directory, likewise.
template <typename Visit>
void for_each_entry(const FileSystem& fs, const Opened& version, Trust trust, Visit visit) {
  for_each_file(
      fs, version,
      [&](const std::string& shard, int fd, const std::string& name) {
        return !is_entry_name(name) || name.substr(0, 2) != shard || visit(fd, name);
      },
      trust);
}

// The same for every entry of this version.
template <typename Visit>
void for_each_entry(const Store::State& state, Visit visit) {
  for_each_entry(state.fs, state.open_version(false), state.trust(), visit);
}

// The byte of the lock file that is a key's, and eviction's.
int64_t lock_offset(std::string_view key_hex);
inline constexpr int64_t kTrimLockOffset = int64_t{1} << 62;
// A write lock on that byte, without waiting: an errno, EAGAIN if somebody else holds it.
int try_lock(const FileSystem& fs, int fd, int64_t offset);
void unlock(const FileSystem& fs, int fd, int64_t offset);

// Finds, makes and checks the root directory.
Root open_root(const FileSystem& fs, const std::string& wanted);
// The same for a directory that is only read: it is there, or there is a problem.
Root open_read_only_root(const FileSystem& fs, const std::string& path);

}  // namespace lathe
