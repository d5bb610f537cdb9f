// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The one sink for messages. Sink and user pointer change together, hence the lock.
#include "codegen/base/log.h"

#include <mutex>

#include "codegen/base/printable.h"

namespace lathe {
namespace {

struct Sink {
  std::mutex mutex;
  LogSink function = nullptr;
  void* user = nullptr;
};

Sink& sink() {
  static Sink instance;
  return instance;
}

}  // namespace

void set_log_sink(LogSink function, void* user) {
  const std::lock_guard lock(sink().mutex);
  sink().function = function;
  sink().user = user;
}

void log_message(LogLevel level, const std::string& text) {
  std::unique_lock lock(sink().mutex);
  const LogSink function = sink().function;
  void* const user = sink().user;
  lock.unlock();
  // Called without the lock: a sink may log or change the sink.
  if (function != nullptr) function(user, static_cast<int>(level), printable(text).c_str());
}

}  // namespace lathe
