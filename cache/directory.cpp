// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// File work relative to a descriptor: see directory.h.
#include "cache/directory.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace lathe {

int Descriptor::close() {
  if (fd_ < 0) return 0;
  // An interrupted close has closed: repeating it could hit somebody else's descriptor.
  const bool failed = fs_->close(std::exchange(fd_, -1)) != 0;
  return failed && errno != EINTR ? errno : 0;
}

Opened open_at(const FileSystem& fs, int dir, const char* name, int flags, mode_t mode) {
  const int fd = uninterrupted([&] { return fs.openat(dir, name, flags | O_CLOEXEC, mode); });
  if (fd < 0) return {Descriptor(), errno};
  return {Descriptor(fs, fd), 0};
}

bool is_owner(const struct stat& status, Trust trust) {
  return status.st_uid == geteuid() || (trust == Trust::user_and_root && status.st_uid == 0);
}

bool is_trusted(const struct stat& status, Trust trust) {
  return S_ISDIR(status.st_mode) && is_owner(status, trust) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Opened open_directory(const FileSystem& fs, int dir, const char* name, bool create, Trust trust) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
  Opened opened = open_at(fs, dir, name, kFlags);
  if (opened.error == ENOENT && create) {
    if (uninterrupted([&] { return fs.mkdirat(dir, name, 0700); }) != 0 && errno != EEXIST)
      return {Descriptor(), errno};
    opened = open_at(fs, dir, name, kFlags);
  }
  if (!opened) return opened;
  struct stat status;
  if (uninterrupted([&] { return fs.fstat(opened.fd(), &status); }) != 0)
    return {Descriptor(), errno};
  if (!is_trusted(status, trust)) return {Descriptor(), EPERM};
  return opened;
}

int read_into(const FileSystem& fs, int fd, size_t bytes, char* to, size_t* done) {
  *done = 0;
  while (*done < bytes) {
    const ssize_t got = uninterrupted([&] { return fs.read(fd, to + *done, bytes - *done); });
    if (got < 0) return errno;
    if (got == 0) break;
    *done += static_cast<size_t>(got);
  }
  return 0;
}

int read_all(const FileSystem& fs, int fd, size_t bytes, std::string& out) {
  out.resize(bytes);
  size_t done = 0;
  const int error = read_into(fs, fd, bytes, out.data(), &done);
  if (error == 0) out.resize(done);
  return error;
}

int read_all_at(const FileSystem& fs, int fd, uint64_t at, size_t bytes, std::string& out) {
  out.resize(bytes);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = uninterrupted([&] {
      return fs.pread(fd, out.data() + done, bytes - done, static_cast<off_t>(at + done));
    });
    if (got < 0) return errno;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return 0;
}

int write_all(const FileSystem& fs, int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = uninterrupted([&] { return fs.write(fd, bytes.data(), bytes.size()); });
    if (done < 0) return errno;
    if (done == 0) return EIO;  // no progress and no reason: never loop on it
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return 0;
}

int list_names(const FileSystem& fs, int fd, std::vector<std::string>& out) {
  alignas(struct dirent64) char buffer[16384];
  for (;;) {
    const ssize_t bytes = uninterrupted([&] { return fs.getdents(fd, buffer, sizeof(buffer)); });
    if (bytes < 0) return errno;
    if (bytes == 0) return 0;
    for (ssize_t at = 0; at < bytes;) {
      const auto* item = reinterpret_cast<const struct dirent64*>(buffer + at);
      const std::string_view name = item->d_name;
      if (name != "." && name != "..") out.emplace_back(name);
      at += item->d_reclen;
    }
  }
}

void unlink_same(const FileSystem& fs, int dir, const char* name, const struct stat& status) {
  struct stat now;
  if (uninterrupted([&] { return fs.fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW); }) != 0) return;
  if (now.st_dev != status.st_dev || now.st_ino != status.st_ino) return;
  uninterrupted([&] { return fs.unlinkat(dir, name, 0); });
}

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace lathe
