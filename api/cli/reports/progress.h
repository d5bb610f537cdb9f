// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lines on standard error: messages, and one that moves while something takes more than a second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lathe::cli {

// "lathe: TEXT" as one line, above a progress line if there is one.
void say(const std::string& text);

// Nothing unless standard error is a terminal. One at a time.
class Progress {
 public:
  explicit Progress(std::string stage);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(std::string text);
  // Shows a bar and the time left, by the time that `timed` of those that are done took. Returns
  // the seconds left; below 0 while that is not known. Safe from any thread.
  double count(size_t done, size_t total, size_t timed);

 private:
  void loop();
  double spent() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double seconds_left() const;
  std::string line() const;

  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::string stage_;
  size_t done_ = 0, total_ = 0, timed_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

}  // namespace lathe::cli
