// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every layer reports failure by a code and a text, no exceptions.
//
// A text names the thing, the value found and the values allowed. An ok Status is one null pointer:
// a launch makes and drops some tens of them.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lathe {

// The values are those of lathe_status in api/lathe.h, in the same order; api/boundary.cpp asserts
// it.
enum class Code : int {
  ok = 0,
  invalid_argument,
  unsupported,
  no_device,
  compile_failed,
  not_cached,
  cache_io,
  cuda,
  nccl,
  timeout,
  internal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : failure_(new Failure{code, std::move(text)}) {}
  Status(const Status& other) : failure_(other.ok() ? nullptr : new Failure(*other.failure_)) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return ok() ? Code::ok : failure_->code; }
  const std::string& text() const { return ok() ? kNoText : failure_->text; }

 private:
  struct Failure {
    Code code;
    std::string text;
  };
  static inline const std::string kNoText;

  std::unique_ptr<const Failure> failure_;  // null: ok
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  // Holds a T{} from the start, for a large value that is filled where it lies.
  explicit Result(std::in_place_t) : value_(std::in_place) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

inline const Status& status_of(const Status& status) { return status; }
template <typename T>
const Status& status_of(const Result<T>& result) {
  return result.status();
}

// Returns what body() returns, a Status or a Result, or an exception (memory) as a Status: it must
// not go further where somebody waits or is to be joined.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Status(Code::internal, error.what());
  }
}

}  // namespace lathe

// Returns from the enclosing function if `expression`, a Status or a Result, is not ok.
#define LATHE_TRY(expression)                 \
  do {                                        \
    auto&& lathe_tried = (expression);        \
    if (!lathe_tried.ok()) [[unlikely]]       \
      return ::lathe::status_of(lathe_tried); \
  } while (0)

#define LATHE_JOIN_(a, b) a##b
#define LATHE_JOIN(a, b) LATHE_JOIN_(a, b)
// LATHE_ASSIGN(auto x, f()): x is the value of the Result, or the function returns its Status.
#define LATHE_ASSIGN(declaration, expression)              \
  auto LATHE_JOIN(lathe_result_, __LINE__) = (expression); \
  if (!LATHE_JOIN(lathe_result_, __LINE__).ok())           \
    return LATHE_JOIN(lathe_result_, __LINE__).status();   \
  declaration = std::move(*LATHE_JOIN(lathe_result_, __LINE__))
