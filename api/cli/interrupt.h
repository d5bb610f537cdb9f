// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Control-C: the first asks long work to end behind what it has begun, the second ends the program.
#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

namespace lathe::cli {

// Catches Control-C while it lives. It is made before any thread is: SIGINT is blocked in all of
// them and waited for in one of its own, because NVRTC's front end handles it as it likes while it
// compiles for the first time in a process (it exits).
class Interrupt {
 public:
  Interrupt() {
    struct sigaction found = {};
    sigaction(SIGINT, nullptr, &found);
    if (found.sa_handler == SIG_IGN) return;  // as under nohup
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    waiting_ = std::thread([this] { wait(); });
  }
  ~Interrupt() {
    if (!waiting_.joinable()) return;
    over_ = true;
    pthread_kill(waiting_.native_handle(), SIGINT);
    waiting_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool asked() const { return asked_; }

 private:
  void wait() {
    for (int signal = 0; sigwait(&signals_, &signal) == 0 && !over_;) {
      if (!asked_.exchange(true)) continue;
      ::signal(SIGINT, SIG_DFL);
      pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
      raise(SIGINT);
    }
  }

  sigset_t signals_{}, before_{};
  std::atomic<bool> asked_{false}, over_{false};
  std::thread waiting_;
};

// A shell takes this for "ended by Control-C".
inline constexpr int kInterrupted = 128 + SIGINT;

}  // namespace lathe::cli
