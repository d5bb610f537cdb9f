// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/markup.h"

#include <cstdarg>
#include <cstdio>

#include "sim/model/letters.h"

namespace sim::clock {

std::string formatted(const char* format, ...) {
  const PlainNumbers plain;
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    out += letter == '<'   ? "&lt;"
           : letter == '&' ? "&amp;"
           : letter == '"' ? "&quot;"
                           : std::string(1, letter);
  }
  return out;
}

}  // namespace sim::clock
