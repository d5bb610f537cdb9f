// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Integer expressions of a kernel's description: grids, shared memory, constants, refusals. They
// are evaluated in 64 bits on the host; what does not fit is refused, never wrapped.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"

namespace lathe::own {

inline constexpr size_t kMostExpressionBytes = 512;
inline constexpr size_t kMostOperations = 256;
inline constexpr int kMostNesting = 32;  // parentheses, operators and functions in each other

// A name that an expression may use. Its values are in an array, at `index`.
struct Symbol {
  std::string name;
  int index = 0;
};

// Functions of one tensor's name, which the description answers: bytes(x), given(x).
struct TensorFunction {
  std::string function, tensor;
  int index = 0;
};

// The names that an expression may use.
struct Scope {
  std::vector<Symbol> symbols;
  std::vector<std::string> varying;  // dims that this expression, which is compiled in, may not use
  std::vector<TensorFunction> functions;
};

// A fault of an expression's text: at which of its bytes, and what is allowed.
struct ExpressionFault {
  size_t at = 0;
  std::string what;
};

// An expression, parsed: operations of a machine with a stack, in the order in which they run.
class Expression {
 public:
  Expression() = default;

  // Parses a text. Returns an expression, or sets `fault`.
  static std::optional<Expression> parse(std::string_view text, const Scope& scope,
                                         ExpressionFault* fault);
  // An expression that is a number.
  static Expression number(int64_t value);

  // Evaluates with the symbols' values. INVALID_ARGUMENT, with the expression's text, for a result
  // or an intermediate result that passes 64 bits and for a division by 0. Allocates nothing unless
  // it fails.
  Status evaluate(std::span<const int64_t> values, int64_t* out) const;

  // Returns whether the expression uses the symbol at an index.
  bool uses(int index) const;
  // Puts numbers in place of symbols: for each index of `values` that has one.
  void bind(std::span<const std::optional<int64_t>> values);
  // Returns whether no symbol is left.
  bool is_constant() const;
  const std::string& text() const { return text_; }
  explicit operator bool() const { return !operations_.empty(); }

 private:
  friend class ExpressionParser;
  enum class Kind : uint8_t {
    literal,
    symbol,
    negate,
    not_,
    add,
    subtract,
    multiply,
    divide,
    remainder,
    minimum,
    maximum,
    ceil_div,
    equal,
    unequal,
    less,
    less_equal,
    greater,
    greater_equal,
    truth,          // 0 or 1
    jump,           // to operation `value`
    jump_if_false,  // takes the top; jumps if it was 0
    jump_if_true,
  };
  struct Operation {
    Kind kind = Kind::literal;
    int64_t value = 0;  // the number, the symbol's index or the operation to jump to
  };
  // Between two levels of nesting at most four results wait for a second one.
  static constexpr size_t kStack = 4 * kMostNesting;

  // Returns what speaks against a binary operation; null if nothing does.
  static const char* binary(Kind kind, int64_t a, int64_t b, int64_t* out);
  Status fault_of(const char* why, int64_t a, int64_t b) const;

  std::vector<Operation> operations_;
  std::string text_;
};

}  // namespace lathe::own
