// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The cache's tests share this file: a directory of their own, sample entries, captured warnings.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cache/store/entry.h"
#include "cache/store/store.h"
#include "codegen/base/log.h"

namespace lathe::test {

// The directory is removed at the end of the scope. The user's own cache is never touched. The
// directory is in memory where that is possible: tests make thousands of files, and a busy disk
// would decide how long they take.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const bool in_memory = !std::getenv("TMPDIR") && access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent =
        in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "lathe-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A Signal is a pipe on which a child says that it got somewhere.
struct Signal {
  int ends[2] = {-1, -1};
  Signal() {
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  }
  ~Signal() {
    close(ends[0]);
    close(ends[1]);
  }
  void send() const {
    if (write(ends[1], "x", 1) != 1) _exit(2);
  }
  void wait() const {
    char byte = 0;
    if (read(ends[0], &byte, 1) != 1) throw std::runtime_error("the child said nothing");
  }
};

// Sets a variable (or, with no value, unsets it) for the life of the scope.
class Environment {
 public:
  Environment(const char* name, std::optional<std::string> value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Environment() { set(before_); }

 private:
  void set(const std::optional<std::string>& value) {
    if (value)
      setenv(name_, value->c_str(), 1);
    else
      unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

// Collects what is logged while it lives.
class Log {
 public:
  Log() { set_log_sink(&Log::sink, this); }
  ~Log() { set_log_sink(nullptr, nullptr); }
  std::vector<std::string> warnings() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return warnings_;
  }
  bool mentions(const std::string& part) {
    for (const std::string& warning : warnings())
      if (warning.find(part) != std::string::npos) return true;
    return false;
  }

 private:
  static void sink(void* user, int level, const char* text) {
    Log* log = static_cast<Log*>(user);
    const std::lock_guard<std::mutex> guard(log->mutex_);
    if (level == static_cast<int>(LogLevel::warning)) log->warnings_.push_back(text);
  }
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

inline Key sample_key(const std::string& name, const std::string& compiler = "nvrtc 13.0 abc") {
  Key key;
  key.text = "lathe-key 1\narch=sm_90a\ncompiler=" + compiler + "\nspec=" + name + "\n";
  key.digest = digest(key.text);
  return key;
}

inline Entry sample_entry(const std::string& name, size_t bytes = 100) {
  Entry entry;
  entry.key = sample_key(name);
  entry.metadata = {{"kernel", name}, {"registers", "31"}};
  for (size_t i = 0; i < bytes; ++i) entry.cubin += static_cast<char>(i * 131 + name.size());
  entry.ptx = ".version 8.0\n// " + name;
  return entry;
}

inline bool same(const Entry& a, const Entry& b) {
  return a.key.text == b.key.text && a.key.digest == b.key.digest && a.metadata == b.metadata &&
         a.cubin == b.cubin && a.ptx == b.ptx;
}

inline std::string path_of(const std::string& root, const Key& key) {
  const std::string hex = key.digest.hex();
  return root + "/v1/" + hex.substr(0, 2) + "/" + hex + ".lathe";
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline size_t count_files(const std::string& root, const std::string& part) {
  size_t count = 0;
  if (!std::filesystem::exists(root)) return 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(root))
    count += item.path().filename().string().find(part) != std::string::npos;
  return count;
}

inline size_t open_descriptors() {
  size_t count = 0;
  for (const auto& item : std::filesystem::directory_iterator("/proc/self/fd"))
    count += !item.path().empty();
  return count;
}

// Runs `body` in a child, whose exit status is what it returns.
inline pid_t in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Compiling is a stand-in that counts itself in a file.
inline void note_compile(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0 || write(fd, "x", 1) != 1) _exit(2);
  close(fd);
}

// Runs the miss path around a compile that takes 20 ms. Returns 0 if the right bytes came out.
inline int find_or_compile(Store& store, const Entry& entry, const std::string& compiles) {
  if (const auto found = store.get(entry.key)) return same(*found, entry) ? 0 : 1;
  const Store::Lock lock = store.lock(entry.key);
  if (const auto found = store.get(entry.key, true)) return same(*found, entry) ? 0 : 1;
  note_compile(compiles);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  store.put(entry);
  return 0;
}

}  // namespace lathe::test
