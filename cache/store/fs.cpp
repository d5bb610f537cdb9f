// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The table of the real file calls.
#include "cache/store/fs.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>

namespace lathe {

const FileSystem& real_fs() {
  static const FileSystem table = {
      [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
      [](int dir, const char* path, int flags, mode_t mode) {
        return ::openat(dir, path, flags, mode);
      },
      ::close,
      ::read,
      ::write,
      ::fsync,
      [](int fd, struct stat* out) { return ::fstat(fd, out); },
      [](int dir, const char* path, struct stat* out, int flags) {
        return ::fstatat(dir, path, out, flags);
      },
      ::mkdirat,
      ::renameat,
      ::unlinkat,
      ::futimens,
      [](int fd, int command, struct flock* what) { return ::fcntl(fd, command, what); },
      ::getdents64,
      ::pread,
      ::ftruncate,
  };
  return table;
}

}  // namespace lathe
