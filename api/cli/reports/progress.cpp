// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The progress line is redrawn in place five times a second and wiped before anything else is said.
#include "api/cli/reports/progress.h"

#include <unistd.h>

#include <cstdio>

#include "api/cli/failure.h"

namespace lathe::cli {
namespace {

using namespace std::chrono_literals;

std::mutex screen;
bool drawn = false;

void wipe() {
  if (drawn) std::fputs("\r\x1b[K", stderr);
  drawn = false;
}

std::string seconds_text(double seconds) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.0f s", seconds);
  return buffer;
}

}  // namespace

void say(const std::string& text) {
  std::lock_guard lock(screen);
  wipe();
  std::fprintf(stderr, "lathe: %s\n", printable(text).c_str());
}

Progress::Progress(std::string stage)
    : stage_(std::move(stage)), start_(std::chrono::steady_clock::now()) {
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

void Progress::count(size_t done, size_t total, double seconds_left) {
  std::lock_guard lock(mutex_);
  done_ = done;
  total_ = total;
  seconds_left_ = seconds_left;
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
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  if (total_ == 0) return "lathe: " + stage_ + ", " + seconds_text(spent.count());
  constexpr size_t kWidth = 24;
  const size_t filled = kWidth * done_ / total_;
  std::string out = "lathe: " + stage_ + " [" + std::string(filled, '#') +
                    std::string(kWidth - filled, '.') + "] " + std::to_string(done_) + " of " +
                    std::to_string(total_);
  if (seconds_left_ >= 0) {
    out += ", " + seconds_text(seconds_left_) + " left";
  } else if (done_ > 0) {
    const double each = spent.count() / static_cast<double>(done_);
    out += ", " + seconds_text(each * static_cast<double>(total_ - done_)) + " left";
  }
  return out;
}

}  // namespace lathe::cli
