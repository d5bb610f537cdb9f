// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// All warnings go to one sink. The library never prints: without a sink a message is dropped.
#pragma once

#include <string>

namespace lathe {

enum class LogLevel : int { warning = 1, info = 2, debug = 3 };
using LogSink = void (*)(void* user, int level, const char* text);

void set_log_sink(LogSink sink, void* user);
void log_message(LogLevel level, const std::string& text);

}  // namespace lathe
