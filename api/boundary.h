// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The only door between C and the layers below: Status and exceptions become codes and a text of
// the calling thread, and structs that carry their size are read and written by one rule.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

#include "api/lathe.h"
#include "codegen/base/invalid.h"

namespace lathe {

// Keeps the text for lathe_last_error and returns the code. Never throws.
lathe_status report(Code code, const char* text) noexcept;

// A pointer that an exported function must be given, and its name for messages.
struct Required {
  const void* pointer;
  const char* argument;
};

// Runs the body of an exported function, which returns a Status or nothing, once the required
// pointers are there.
template <typename Body>
lathe_status boundary(std::initializer_list<Required> required, Body&& body) noexcept {
  try {
    Status status;
    for (const auto& [pointer, argument] : required) {
      if (status.ok()) status = require(pointer, argument);
    }
    if constexpr (std::is_void_v<decltype(body())>) {
      if (status.ok()) body();
    } else {
      if (status.ok()) status = body();
    }
    return status.ok() ? LATHE_OK : report(status.code(), status.text().c_str());
  } catch (const std::bad_alloc&) {
    return report(Code::internal, "out of host memory");
  } catch (const std::exception& error) {
    return report(Code::internal, error.what());
  } catch (...) {
    return report(Code::internal, "an unknown exception");
  }
}
template <typename Body>
lathe_status boundary(Body&& body) noexcept {
  return boundary({}, std::forward<Body>(body));
}

// Checks the size that a struct says it has. No struct of any version comes near kMost: a larger
// size is memory that the caller has not set.
inline Status check_size(size_t size, size_t least, const char* name) {
  constexpr size_t kMost = 4096;
  if (size >= least && size <= kMost) return {};
  return invalid(text(name, "size is ", size, ", but must be at least ", least, " and at most ",
                      kMost, ": set it to the sizeof of the struct"));
}

// Reads a struct whose first member is its size: what this version does not know must be zero. `to`
// has the defaults, which stay in members that a caller of an older version does not have: `least`
// bytes are those of the oldest version, and nobody has a part of what came later.
template <typename T>
Status take_sized(const T* from, const char* argument, T* to, size_t least = sizeof(T)) {
  size_t size;
  std::memcpy(&size, from, sizeof(size));
  LATHE_TRY(check_size(size, least, text(argument, ".").c_str()));
  const char* bytes = reinterpret_cast<const char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return invalid(text(argument, " has a value at byte ", i, ", but lathe ", LATHE_VERSION_MAJOR,
                          ".", LATHE_VERSION_MINOR, ".", LATHE_VERSION_PATCH, " knows only ",
                          sizeof(T), " bytes: the rest must be zero"));
    }
  }
  std::memcpy(to, from, size < sizeof(T) ? least : sizeof(T));
  to->size = sizeof(T);
  return {};
}

template <typename T>
Status check_sized(const T* out) {
  LATHE_TRY(require(out, "out"));
  size_t size;
  std::memcpy(&size, out, sizeof(size));
  return check_size(size, sizeof(T), "out->");
}

// Writes such a struct; members of later versions become zero. A function that changes anything
// calls check_sized before it does.
template <typename T>
Status give_sized(T value, T* out) {
  LATHE_TRY(check_sized(out));
  size_t size;
  std::memcpy(&size, out, sizeof(size));
  value.size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &value, sizeof(T));
  return {};
}

// Copies as much of a text as fits with a final NUL; `needed` (may be NULL) gets the size of all.
inline Status give_text(const std::string& from, char* out, size_t bytes, size_t* needed) {
  if (needed) *needed = from.size() + 1;
  if (bytes == 0) return {};
  out[from.copy(out, bytes - 1)] = '\0';
  return {};
}

// Returns the text as a field of a line: without tabs and ends of lines.
inline std::string one_line(std::string_view from) {
  std::string out(from);
  std::ranges::replace_if(
      out, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return out;
}

}  // namespace lathe
