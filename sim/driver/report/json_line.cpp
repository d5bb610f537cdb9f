// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/driver/report/json_line.h"

#include <charconv>
#include <cstdio>

#include "sim/model/letters.h"

namespace sim::driver {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (code < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", code);
      out += buffer;
    } else {
      out += letter;
    }
  }
  return out + '"';
}

}  // namespace

void JsonLine::raw(const std::string& name, const std::string& json) {
  text_ += text_.empty() ? '{' : ',';
  text_ += quoted(name);
  text_ += ':';
  text_ += json;
}

void JsonLine::add(const char* name, const std::string& text) { raw(name, quoted(text)); }
void JsonLine::add(const char* name, uint64_t value) { raw(name, std::to_string(value)); }
void JsonLine::add(const char* name, int value) { raw(name, std::to_string(value)); }
void JsonLine::add(const char* name, const JsonLine& object) { raw(name, object.text()); }

void JsonLine::add(const char* name, double value) {
  char buffer[512];  // as many digits as the largest double has, and nine
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, 9).ptr;
  raw(name, std::string(buffer, end));
}

void JsonLine::add(const char* name, const uint32_t (&value)[3]) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "[%u,%u,%u]", value[0], value[1], value[2]);
  raw(name, buffer);
}

void JsonLine::add_address(const char* name, uint64_t value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "\"0x%llx\"", static_cast<unsigned long long>(value));
  raw(name, buffer);
}

}  // namespace sim::driver
