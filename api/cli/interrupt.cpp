// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/interrupt.h"

namespace lathe::cli {

Interrupt::Interrupt() {
  struct sigaction found = {};
  sigaction(SIGINT, nullptr, &found);
  if (found.sa_handler == SIG_IGN) return;  // as under nohup
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  waiting_ = std::thread([this] { wait(); });
}

Interrupt::~Interrupt() {
  if (!waiting_.joinable()) return;
  over_ = true;
  pthread_kill(waiting_.native_handle(), SIGINT);
  waiting_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::wait() {
  for (int signal = 0; sigwait(&signals_, &signal) == 0 && !over_;) {
    if (!asked_.exchange(true)) continue;
    ::signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    raise(SIGINT);
  }
}

}  // namespace lathe::cli
