// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A variable of the environment names the file, which takes lines. Each line is one write, so that
// several threads and processes may share it. A file that cannot be opened or written is told on
// stderr, once, and nothing more is written.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

namespace sim {

class LineFile {
 public:
  explicit LineFile(const char* variable) : variable_(variable) {}
  // "-" stands for stderr and "" for nowhere. The file is made with the first line.
  void set(const std::string& where) {
    const std::lock_guard lock(mutex_);
    if (where == where_) return;
    if (file_ > STDERR_FILENO) ::close(file_);
    file_ = -1;
    failed_ = false;
    where_ = where;
  }
  bool wanted() {
    const std::lock_guard lock(mutex_);
    return !where_.empty() && !failed_;
  }
  void write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (where_.empty() || failed_) return;
    if (file_ < 0) {
      file_ = where_ == "-"
                  ? STDERR_FILENO
                  : ::open(where_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    }
    if (file_ < 0) return fail();
    const std::string text = line + "\n";
    for (size_t done = 0; done < text.size();) {
      const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return fail();
      done += static_cast<size_t>(count);
    }
  }
  // Closes the file until the next line, so that the file may be moved away.
  void close() {
    const std::lock_guard lock(mutex_);
    if (file_ > STDERR_FILENO) ::close(file_);
    file_ = -1;
  }

 private:
  void fail() {
    failed_ = true;
    const std::string note = std::string("lathe sim: ") + variable_ + ": " + where_ +
                             " cannot be written: " + std::strerror(errno) +
                             "; nothing more is reported there\n";
    std::fwrite(note.data(), 1, note.size(), stderr);
  }

  std::mutex mutex_;
  const char* variable_;
  std::string where_;
  int file_ = -1;
  bool failed_ = false;
};

}  // namespace sim
