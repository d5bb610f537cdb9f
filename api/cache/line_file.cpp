// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cache/line_file.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include "cache/directory.h"
#include "codegen/base/text.h"

namespace lathe {

LineFile::LineFile(std::string path, const FileSystem& fs) : path_(std::move(path)), fs_(fs) {}

std::string LineFile::append(const std::string& line) const {
  constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  Opened file = open_at(fs_, AT_FDCWD, path_.c_str(), kFlags, 0600);
  if (!file) return reason(file.error);
  struct stat about = {};
  if (uninterrupted([&] { return fs_.fstat(file.fd(), &about); }) != 0) return reason(errno);
  if (!S_ISREG(about.st_mode)) return "it is no regular file";
  std::string why = append_to(file.fd(), line + "\n");
  if (const int error = file.file.close(); error != 0 && why.empty()) why = reason(error);
  return why;
}

// Makes one write under a lock, so that a part of a line, which a full disk leaves, can be taken
// back before anybody adds to it. Lines are kept apart without locks too, or if somebody keeps one:
// each is one write at the end of the file.
std::string LineFile::append_to(int file, const std::string& line) const {
  const bool locked = lock(file);
  struct stat before = {};
  if (uninterrupted([&] { return fs_.fstat(file, &before); }) != 0) return reason(errno);
  char last = '\n';
  const auto read_last = [&] { return fs_.pread(file, &last, 1, before.st_size - 1); };
  if (before.st_size > 0 && uninterrupted(read_last) < 0) return reason(errno);
  const std::string bytes = last == '\n' ? line : "\n" + line;
  const ssize_t written =
      uninterrupted([&] { return fs_.write(file, bytes.data(), bytes.size()); });
  if (written < 0) return reason(errno);
  if (static_cast<size_t>(written) == bytes.size()) return "";
  const auto restore = [&] { return fs_.ftruncate(file, before.st_size); };
  const bool restored = locked && uninterrupted(restore) == 0;
  return text("only ", written, " of ", bytes.size(), " bytes were written",
              restored ? "" : ", and could not be taken back");
}

// Holds the whole file until its descriptor is closed; gives up after a tenth of a second.
bool LineFile::lock(int file) const {
  constexpr int kAttempts = 50;
  constexpr std::chrono::milliseconds kPause(2);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    if (uninterrupted([&] { return fs_.lock(file, F_OFD_SETLK, &whole); }) == 0) return true;
    if (errno != EAGAIN && errno != EACCES) return false;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace lathe
