// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every file call of the cache, as a table of functions: tests replace it to inject faults.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

namespace lathe {

struct FileSystem {
  // As the calls of the same name: -1 and errno on failure.
  int (*open)(const char* path, int flags, mode_t mode);
  int (*openat)(int dir, const char* path, int flags, mode_t mode);
  int (*close)(int fd);
  ssize_t (*read)(int fd, void* to, size_t bytes);
  ssize_t (*write)(int fd, const void* from, size_t bytes);
  int (*fsync)(int fd);
  int (*fstat)(int fd, struct stat* out);
  int (*fstatat)(int dir, const char* path, struct stat* out, int flags);
  int (*mkdirat)(int dir, const char* path, mode_t mode);
  int (*renameat)(int from_dir, const char* from, int to_dir, const char* to);
  int (*unlinkat)(int dir, const char* path, int flags);
  int (*futimens)(int fd, const struct timespec times[2]);
  int (*lock)(int fd, int command, struct flock* what);  // fcntl with F_OFD_SETLK
  ssize_t (*getdents)(int fd, void* to, size_t bytes);   // struct dirent64, one after another
  ssize_t (*pread)(int fd, void* to, size_t bytes, off_t at);
  int (*ftruncate)(int fd, off_t bytes);
};

const FileSystem& real_fs();

}  // namespace lathe
