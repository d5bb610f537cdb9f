// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file table goes wrong on purpose: at the n-th call, once or from there on, with an errno,
// with single bytes, or by killing the process.
#pragma once

#include <signal.h>

#include <atomic>
#include <cerrno>

#include "cache/store/fs.h"

namespace lathe::test {

struct Fault {
  int at = 0;  // the call that goes wrong, counted from 1; 0: none
  int error = EIO;
  bool persistent = false;
  bool single_bytes = false;  // reads and writes move one byte at a time
  bool kill = false;          // kill -9 in place of an error
};

class FaultyFileSystem {
 public:
  // A process has one at a time: the table holds plain functions.
  explicit FaultyFileSystem(const Fault& fault) {
    state() = fault;
    calls() = 0;
  }
  ~FaultyFileSystem() { state() = Fault(); }
  bool reached() const { return state().at != 0 && calls() >= state().at; }

  const FileSystem& table() const {
    static const FileSystem faulty = {
        [](const char* path, int flags, mode_t mode) {
          return fails() ? -1 : real_fs().open(path, flags, mode);
        },
        [](int dir, const char* path, int flags, mode_t mode) {
          return fails() ? -1 : real_fs().openat(dir, path, flags, mode);
        },
        [](int fd) {
          const bool failed = fails();
          const int error = errno;
          real_fs().close(fd);  // as Linux does, whatever it reports
          errno = error;
          return failed ? -1 : 0;
        },
        [](int fd, void* to, size_t bytes) -> ssize_t {
          return fails() ? -1 : real_fs().read(fd, to, limited(bytes));
        },
        [](int fd, const void* from, size_t bytes) -> ssize_t {
          return fails() ? -1 : real_fs().write(fd, from, limited(bytes));
        },
        [](int) { return fails() ? -1 : 0; },  // no sync: no test here cuts the power
        [](int fd, struct stat* out) { return fails() ? -1 : real_fs().fstat(fd, out); },
        [](int dir, const char* path, struct stat* out, int flags) {
          return fails() ? -1 : real_fs().fstatat(dir, path, out, flags);
        },
        [](int dir, const char* path, mode_t mode) {
          return fails() ? -1 : real_fs().mkdirat(dir, path, mode);
        },
        [](int from_dir, const char* from, int to_dir, const char* to) {
          return fails() ? -1 : real_fs().renameat(from_dir, from, to_dir, to);
        },
        [](int dir, const char* path, int flags) {
          return fails() ? -1 : real_fs().unlinkat(dir, path, flags);
        },
        [](int fd, const struct timespec times[2]) {
          return fails() ? -1 : real_fs().futimens(fd, times);
        },
        [](int fd, int command, struct flock* what) {
          return fails() ? -1 : real_fs().lock(fd, command, what);
        },
        [](int fd, void* to, size_t bytes) -> ssize_t {
          return fails() ? -1 : real_fs().getdents(fd, to, bytes);
        },
        [](int fd, void* to, size_t bytes, off_t at) -> ssize_t {
          return fails() ? -1 : real_fs().pread(fd, to, limited(bytes), at);
        },
        [](int fd, off_t bytes) { return fails() ? -1 : real_fs().ftruncate(fd, bytes); },
    };
    return faulty;
  }

 private:
  static Fault& state() {
    static Fault fault;
    return fault;
  }
  static std::atomic<int>& calls() {
    static std::atomic<int> count{0};
    return count;
  }
  static bool fails() {
    const Fault& fault = state();
    const int call = ++calls();
    if (fault.at == 0 || call < fault.at || (call > fault.at && !fault.persistent)) return false;
    if (fault.kill) ::kill(getpid(), SIGKILL);
    errno = fault.error;
    return true;
  }
  static size_t limited(size_t bytes) { return state().single_bytes && bytes > 1 ? 1 : bytes; }
};

}  // namespace lathe::test
