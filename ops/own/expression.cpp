// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Parses by recursive descent, C's precedence, and runs on a stack of fixed size.
#include "ops/own/expression.h"

#include <algorithm>
#include <charconv>

#include "codegen/base/invalid.h"
#include "codegen/base/letters.h"
#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"

namespace lathe::own {
namespace {

bool begins_name(char letter) {
  return is_alphanumeric(letter) ? !is_digit(letter) : letter == '_';
}
bool continues_name(char letter) { return is_alphanumeric(letter) || letter == '_'; }

std::vector<std::string_view> names_of(const Scope& scope) {
  std::vector<std::string_view> names;
  for (const Symbol& each : scope.symbols) names.emplace_back(each.name);
  return names;
}

}  // namespace

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const Scope& scope, ExpressionFault* fault)
      : text_(text), scope_(scope), fault_(fault) {}

  bool parse(Expression* out) {
    if (text_.size() > kMostExpressionBytes) {
      return fail(0, lathe::text("the expression has ", text_.size(), " bytes; allowed are ",
                                 kMostExpressionBytes));
    }
    skip_blanks();
    if (at_ == text_.size()) return fail(0, "the expression is empty; allowed is an integer one");
    if (!conditional()) return false;
    skip_blanks();
    if (at_ < text_.size()) return fail(at_, unexpected());
    out->operations_ = std::move(operations_);
    out->text_ = std::string(text_);
    return true;
  }

 private:
  using Kind = Expression::Kind;
  struct Binary {
    std::string_view sign;
    Kind kind;
  };

  bool fail(size_t at, std::string what) {
    if (failed_) return false;
    failed_ = true;
    *fault_ = {at, std::move(what)};
    return false;
  }

  std::string unexpected() const {
    const std::string found =
        at_ == text_.size() ? "ends" : "has " + in_quotes(std::string(1, text_[at_]));
    return lathe::text("the expression ", found,
                       " here; allowed are names, whole numbers, + - * / % ( ) ? : ! && || == != < "
                       "<= > >= and min(a, b), max(a, b), ceil_div(a, b), bytes(tensor), "
                       "given(tensor)");
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  // Takes a sign, if it is the next one and no longer sign begins with it.
  bool take(std::string_view sign) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(sign)) return false;
    const char next = at_ + sign.size() < text_.size() ? text_[at_ + sign.size()] : '\0';
    if ((sign == "<" || sign == ">" || sign == "!") && next == '=') return false;
    at_ += sign.size();
    return true;
  }
  bool expect(std::string_view sign) { return take(sign) || fail(at_, unexpected()); }

  bool push(Kind kind, int64_t value = 0) {
    if (operations_.size() == kMostOperations) {
      return fail(at_, lathe::text("the expression has more than ", kMostOperations,
                                   " operations; allowed are ", kMostOperations));
    }
    operations_.push_back({kind, value});
    return true;
  }
  size_t here() const { return operations_.size(); }

  class Nesting {
   public:
    explicit Nesting(ExpressionParser* parser) : parser_(parser) { ++parser->depth_; }
    ~Nesting() { --parser_->depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool fits() const {
      return parser_->depth_ <= kMostNesting ||
             parser_->fail(parser_->at_,
                           lathe::text("the expression lies more than ", kMostNesting,
                                       " deep in itself; allowed are ", kMostNesting));
    }

   private:
    ExpressionParser* parser_;
  };

  bool conditional() {
    const Nesting nesting(this);
    if (!nesting.fits() || !either()) return false;
    if (!take("?")) return true;
    const size_t test = here();
    if (!push(Kind::jump_if_false) || !conditional()) return false;
    const size_t skip = here();
    if (!push(Kind::jump) || !expect(":")) return false;
    operations_[test].value = static_cast<int64_t>(here());
    if (!conditional()) return false;
    operations_[skip].value = static_cast<int64_t>(here());
    return true;
  }

  // `a || b`: 1 without a look at b if a holds.
  bool logical(std::string_view sign, Kind jump, int64_t otherwise,
               bool (ExpressionParser::*next)()) {
    if (!(this->*next)()) return false;
    while (take(sign)) {
      const size_t test = here();
      if (!push(jump) || !(this->*next)() || !push(Kind::truth)) return false;
      const size_t skip = here();
      if (!push(Kind::jump)) return false;
      operations_[test].value = static_cast<int64_t>(here());
      if (!push(Kind::literal, otherwise)) return false;
      operations_[skip].value = static_cast<int64_t>(here());
    }
    return true;
  }
  bool either() { return logical("||", Kind::jump_if_true, 1, &ExpressionParser::both); }
  bool both() { return logical("&&", Kind::jump_if_false, 0, &ExpressionParser::comparison); }

  bool chain(std::span<const Binary> signs, bool (ExpressionParser::*next)()) {
    if (!(this->*next)()) return false;
    for (;;) {
      const auto found =
          std::ranges::find_if(signs, [&](const Binary& each) { return take(each.sign); });
      if (found == signs.end()) return true;
      if (!(this->*next)() || !push(found->kind)) return false;
    }
  }
  bool comparison() {
    static constexpr Binary kSigns[] = {{"==", Kind::equal},      {"!=", Kind::unequal},
                                        {"<=", Kind::less_equal}, {">=", Kind::greater_equal},
                                        {"<", Kind::less},        {">", Kind::greater}};
    if (!sum()) return false;
    const auto found =
        std::ranges::find_if(kSigns, [&](const Binary& each) { return take(each.sign); });
    if (found == std::end(kSigns)) return true;
    if (!sum() || !push(found->kind)) return false;
    const size_t second = at_;
    for (const Binary& each : kSigns) {
      if (take(each.sign)) {
        return fail(second, "a < b < c compares the truth of a < b; allowed is a < b && b < c");
      }
    }
    return true;
  }
  bool sum() {
    static constexpr Binary kSigns[] = {{"+", Kind::add}, {"-", Kind::subtract}};
    return chain(kSigns, &ExpressionParser::product);
  }
  bool product() {
    static constexpr Binary kSigns[] = {
        {"*", Kind::multiply}, {"/", Kind::divide}, {"%", Kind::remainder}};
    return chain(kSigns, &ExpressionParser::unary);
  }
  bool unary() {
    const Nesting nesting(this);
    if (!nesting.fits()) return false;
    if (take("-")) return unary() && push(Kind::negate);
    if (take("!")) return unary() && push(Kind::not_);
    return primary();
  }
  bool primary() {
    skip_blanks();
    if (take("(")) return conditional() && expect(")");
    if (at_ < text_.size() && is_digit(text_[at_])) return literal();
    if (at_ < text_.size() && begins_name(text_[at_])) return named();
    return fail(at_, unexpected());
  }

  bool literal() {
    const size_t begin = at_;
    while (at_ < text_.size() && (continues_name(text_[at_]) || text_[at_] == '.')) ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return fail(begin, lathe::text(in_quotes(std::string(digits)),
                                     " is no whole number; allowed are 0 to ", INT64_MAX));
    }
    return push(Kind::literal, value);
  }

  std::string_view name() {
    skip_blanks();
    const size_t begin = at_;
    if (at_ < text_.size() && begins_name(text_[at_])) {
      while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  bool named() {
    const size_t begin = at_;
    const std::string_view found = name();
    if (take("(")) return function(found, begin);
    for (const Symbol& each : scope_.symbols) {
      if (each.name == found) return push(Kind::symbol, each.index);
    }
    if (std::ranges::find(scope_.varying, found) != scope_.varying.end()) {
      return fail(begin, lathe::text(found,
                                     " varies from call to call, and this must be known when "
                                     "the kernel is compiled; [constants] ",
                                     found, " = \"dim\" compiles it in"));
    }
    const std::vector<std::string_view> known = names_of(scope_);
    return fail(begin, lathe::text(in_quotes(std::string(found)), " is not known here",
                                   did_you_mean(found, known), "; allowed are ",
                                   known.empty() ? "numbers alone" : comma_list(known)));
  }

  bool function(std::string_view called, size_t begin) {
    if (called == "bytes" || called == "given") return tensor_function(called, begin);
    static constexpr Binary kFunctions[] = {
        {"min", Kind::minimum}, {"max", Kind::maximum}, {"ceil_div", Kind::ceil_div}};
    const auto found = std::ranges::find(kFunctions, called, &Binary::sign);
    if (found == std::end(kFunctions)) {
      return fail(begin, lathe::text("there is no function ", in_quotes(std::string(called)),
                                     "; allowed are min, max, ceil_div, bytes and given"));
    }
    return conditional() && expect(",") && conditional() && expect(")") && push(found->kind);
  }

  bool tensor_function(std::string_view called, size_t begin) {
    const std::string_view tensor = name();
    if (!expect(")")) return false;
    std::vector<std::string_view> known;
    for (const TensorFunction& each : scope_.functions) {
      if (each.function != called) continue;
      if (each.tensor == tensor) return push(Kind::symbol, each.index);
      known.emplace_back(each.tensor);
    }
    return fail(begin, lathe::text(called, " is of a tensor; allowed are ",
                                   known.empty() ? "none here" : comma_list(known)));
  }

  std::string_view text_;
  const Scope& scope_;
  ExpressionFault* fault_;
  std::vector<Expression::Operation> operations_;
  size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

std::optional<Expression> Expression::parse(std::string_view text, const Scope& scope,
                                            ExpressionFault* fault) {
  Expression out;
  if (!ExpressionParser(text, scope, fault).parse(&out)) return std::nullopt;
  return out;
}

Expression Expression::number(int64_t value) {
  Expression out;
  out.operations_.push_back({Kind::literal, value});
  out.text_ = std::to_string(value);
  return out;
}

bool Expression::uses(int index) const {
  return std::ranges::any_of(operations_, [&](const Operation& each) {
    return each.kind == Kind::symbol && each.value == index;
  });
}

bool Expression::is_constant() const {
  return std::ranges::none_of(operations_,
                              [](const Operation& each) { return each.kind == Kind::symbol; });
}

void Expression::bind(std::span<const std::optional<int64_t>> values) {
  for (Operation& each : operations_) {
    if (each.kind != Kind::symbol) continue;
    if (const auto& value = values[static_cast<size_t>(each.value)]) each = {Kind::literal, *value};
  }
}

const char* Expression::binary(Kind kind, int64_t a, int64_t b, int64_t* out) {
  constexpr const char* kPasses = "passes 64 bits";
  const bool divides = kind == Kind::divide || kind == Kind::remainder || kind == Kind::ceil_div;
  if (divides && b == 0) return "divides by 0";
  if (divides && a == INT64_MIN && b == -1) return kPasses;
  switch (kind) {
    case Kind::add:
      return __builtin_add_overflow(a, b, out) ? kPasses : nullptr;
    case Kind::subtract:
      return __builtin_sub_overflow(a, b, out) ? kPasses : nullptr;
    case Kind::multiply:
      return __builtin_mul_overflow(a, b, out) ? kPasses : nullptr;
    case Kind::divide:
      return *out = a / b, nullptr;
    case Kind::remainder:
      return *out = a % b, nullptr;
    case Kind::ceil_div:
      return *out = a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0), nullptr;
    case Kind::minimum:
      return *out = std::min(a, b), nullptr;
    case Kind::maximum:
      return *out = std::max(a, b), nullptr;
    case Kind::equal:
      return *out = a == b, nullptr;
    case Kind::unequal:
      return *out = a != b, nullptr;
    case Kind::less:
      return *out = a < b, nullptr;
    case Kind::less_equal:
      return *out = a <= b, nullptr;
    case Kind::greater:
      return *out = a > b, nullptr;
    default:
      return *out = a >= b, nullptr;
  }
}

Status Expression::fault_of(const char* why, int64_t a, int64_t b) const {
  return invalid(lathe::text(in_quotes(text_), " ", why, " with the values ", a, " and ", b));
}

Status Expression::evaluate(std::span<const int64_t> values, int64_t* out) const {
  std::array<int64_t, kStack> stack;
  size_t top = 0;  // how many
  const size_t count = operations_.size();
  for (size_t i = 0; i < count; ++i) {
    const Operation each = operations_[i];
    switch (each.kind) {
      case Kind::literal:
        stack[top++] = each.value;
        break;
      case Kind::symbol:
        stack[top++] = values[static_cast<size_t>(each.value)];
        break;
      case Kind::negate:
        if (stack[top - 1] == INT64_MIN) return fault_of("passes 64 bits", 0, INT64_MIN);
        stack[top - 1] = -stack[top - 1];
        break;
      case Kind::not_:
        stack[top - 1] = stack[top - 1] == 0;
        break;
      case Kind::truth:
        stack[top - 1] = stack[top - 1] != 0;
        break;
      case Kind::jump:
        i = static_cast<size_t>(each.value) - 1;
        break;
      case Kind::jump_if_false:
      case Kind::jump_if_true:
        if ((stack[--top] != 0) == (each.kind == Kind::jump_if_true)) {
          i = static_cast<size_t>(each.value) - 1;
        }
        break;
      default: {
        const int64_t b = stack[--top], a = stack[top - 1];
        if (const char* why = binary(each.kind, a, b, &stack[top - 1])) return fault_of(why, a, b);
      }
    }
  }
  *out = stack[0];
  return {};
}

}  // namespace lathe::own
