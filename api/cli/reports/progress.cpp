// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The progress line is redrawn in place five times a second and wiped before anything else is said.
#include "api/cli/reports/progress.h"

#include <unistd.h>

#include <cstdio>

#include "api/cli/reports/report.h"

namespace lathe::cli {
namespace {

using namespace std::chrono_literals;

std::mutex screen;
bool drawn = false;

void wipe() {
  if (drawn) std::fputs("\r\x1b[K", stderr);
  drawn = false;
}

}  // namespace

void say(const std::string& text) {
  std::lock_guard lock(screen);
  wipe();
  std::fprintf(stderr, "lathe: %s\n", printable(text).c_str());
}

Progress::Progress(std::string stage) : stage_(std::move(stage)) {
  if (isatty(STDERR_FILENO)) thread_ = std::thread([this] { loop(); });
}

Progress::~Progress() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(screen);
  wipe();
}

void Progress::stage(std::string text) {
  std::lock_guard lock(mutex_);
  stage_ = std::move(text);
}

double Progress::count(size_t done, size_t total, size_t timed) {
  std::lock_guard lock(mutex_);
  done_ = done, total_ = total, timed_ = timed;
  return seconds_left();
}

double Progress::seconds_left() const {
  if (timed_ == 0) return -1;
  return spent() / static_cast<double>(timed_) * static_cast<double>(total_ - done_);
}

void Progress::loop() {
  std::unique_lock lock(mutex_);
  if (ended_.wait_for(lock, 1s, [&] { return end_; })) return;
  do {
    const std::string text = line();
    std::lock_guard screen_lock(screen);
    std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
    std::fflush(stderr);
    drawn = true;
  } while (!ended_.wait_for(lock, 200ms, [&] { return end_; }));
}

std::string Progress::line() const {
  if (total_ == 0) return formatted("lathe: %s, %.0f s", stage_.c_str(), spent());
  constexpr size_t kWidth = 24;
  const size_t filled = kWidth * done_ / total_;
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  const double left = seconds_left();
  return text("lathe: ", stage_, " [", bar, "] ", done_, " of ", total_,
              left < 0 ? "" : formatted(", %.0f s left", left));
}

}  // namespace lathe::cli
