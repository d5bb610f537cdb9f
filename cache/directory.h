// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// File work relative to a descriptor, over a FileSystem table: owned descriptors, directories that
// are checked to be ours, whole reads and writes, listings. Errors are errno values, 0 for none.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/store/fs.h"

namespace lathe {

// Repeats a call that a signal interrupted. Bounded, so that nothing can hang here.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  for (int i = 0; i < 1000 && result < 0 && errno == EINTR; ++i) result = call();
  return result;
}

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const FileSystem& fs, int fd) : fs_(&fs), fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fs_(other.fs_), fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fs_, other.fs_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  // The errno of close: network file systems report a failed write only here.
  int close();

 private:
  const FileSystem* fs_ = nullptr;
  int fd_ = -1;
};

struct Opened {
  Descriptor file;
  int error = 0;
  explicit operator bool() const { return error == 0; }
  int fd() const { return file.get(); }
};

Opened open_at(const FileSystem& fs, int dir, const char* name, int flags, mode_t mode = 0);

// Whose code is run: this user's, and where somebody else keeps a cache for all, root's.
enum class Trust { user, user_and_root };
bool is_owner(const struct stat& status, Trust trust);

// Returns whether a directory may hold code: its owner is trusted and nobody else may write into
// it.
bool is_trusted(const struct stat& status, Trust trust = Trust::user);

// A directory below a trusted one; made (0700) if it is missing and `create` is set. EPERM if it is
// not trusted itself.
Opened open_directory(const FileSystem& fs, int dir, const char* name, bool create,
                      Trust trust = Trust::user);

// Reads until `bytes` are there or the file ends; `out` holds what was found.
int read_all(const FileSystem& fs, int fd, size_t bytes, std::string& out);
// The same into memory with room for them; `done`: how many came.
int read_into(const FileSystem& fs, int fd, size_t bytes, char* to, size_t* done);
// The same at a place of the file; fewer bytes only where the file ends.
int read_all_at(const FileSystem& fs, int fd, uint64_t at, size_t bytes, std::string& out);
int write_all(const FileSystem& fs, int fd, std::string_view bytes);

// The names in a directory, but "." and "..".
int list_names(const FileSystem& fs, int fd, std::vector<std::string>& out);

// Removes `name` if it is still the file that `status` describes: another process may have replaced
// it by a good one.
void unlink_same(const FileSystem& fs, int dir, const char* name, const struct stat& status);

// The sentence for an errno; unlike strerror it is safe in threads.
std::string reason(int error);

}  // namespace lathe
