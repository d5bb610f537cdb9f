// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover integer expressions of descriptions: values against trees that are evaluated in
// 128 bits, and what is refused, with its place.
#include "ops/own/expression.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>

using namespace lathe::own;

namespace {

using Wide = __int128;
const Scope kScope = {{{"T", 0}, {"D", 1}, {"kTile", 2}}, {"V"}, {{"bytes", "x", 3}}};
constexpr int64_t kValues[] = {7, -12, 1LL << 40, 2};

std::optional<int64_t> value_of(const std::string& text) {
  ExpressionFault fault;
  const auto parsed = Expression::parse(text, kScope, &fault);
  REQUIRE_MESSAGE(parsed, text, ": ", fault.what);
  int64_t out = 0;
  if (!parsed->evaluate(kValues, &out).ok()) return std::nullopt;
  return out;
}

// A drawn tree says its own text, fully in parentheses or as few as C needs, and its value; none if
// any part passes 64 bits or divides by 0.
struct Tree {
  std::string text, plain;
  int strength = 9;  // of its outermost operator
  std::optional<Wide> value;
};

std::optional<Wide> narrow(Wide value) {
  if (value > INT64_MAX || value < INT64_MIN) return std::nullopt;
  return value;
}

std::optional<Wide> combined(const std::string& sign, Wide a, Wide b) {
  if (sign == "+") return narrow(a + b);
  if (sign == "-") return narrow(a - b);
  if (sign == "*") return narrow(a * b);
  if (sign == "<") return a < b;
  if (sign == "==") return a == b;
  if (sign == ">=") return a >= b;
  if (b == 0) return std::nullopt;
  if (sign == "/") return narrow(a / b);
  return narrow(a / b).has_value() ? std::optional<Wide>(a % b) : std::nullopt;
}

Tree drawn(std::mt19937* draw, int depth) {
  const auto pick = [&](int count) {
    return static_cast<int>((*draw)() % static_cast<unsigned>(count));
  };
  if (depth == 0 || pick(5) == 0) {
    static const std::pair<const char*, Wide> kLeaves[] = {
        {"T", 7}, {"D", -12}, {"kTile", Wide(1) << 40},          {"bytes(x)", 2},
        {"0", 0}, {"3", 3},   {"9223372036854775807", INT64_MAX}};
    const auto& [text, value] = kLeaves[pick(7)];
    return {text, text, 9, value};
  }
  static const std::pair<const char*, int> kSigns[] = {{"*", 5}, {"/", 5}, {"%", 5},  {"+", 4},
                                                       {"-", 4}, {"<", 3}, {">=", 3}, {"==", 3}};
  if (pick(6) == 0) {  // a test that looks at one of two
    const Tree test = drawn(draw, depth - 1), yes = drawn(draw, depth - 1),
               no = drawn(draw, depth - 1);
    Tree out;
    out.text = "(" + test.text + " ? " + yes.text + " : " + no.text + ")";
    out.plain = (test.strength <= 1 ? "(" + test.plain + ")" : test.plain) + "?" + yes.plain + ":" +
                no.plain;
    out.strength = 1;
    if (test.value) out.value = *test.value != 0 ? yes.value : no.value;
    return out;
  }
  if (pick(6) == 0) {  // the second is not looked at where the first decides
    const Tree a = drawn(draw, depth - 1), b = drawn(draw, depth - 1);
    const bool both = pick(2) == 0;
    const std::string sign = both ? "&&" : "||";
    Tree out;
    out.text = "(" + a.text + " " + sign + " " + b.text + ")";
    out.plain = "(" + a.plain + ")" + sign + "(" + b.plain + ")";
    out.strength = 2;
    if (!a.value) return out;
    if ((*a.value != 0) != both) {
      out.value = !both;
    } else if (b.value) {
      out.value = *b.value != 0;
    }
    return out;
  }
  const auto& [sign, strength] = kSigns[pick(8)];
  const Tree a = drawn(draw, depth - 1), b = drawn(draw, depth - 1);
  Tree out;
  out.text = "(" + a.text + " " + sign + " " + b.text + ")";
  const auto wrapped = [&, least = strength](const Tree& each, int more) {
    // No comparison of comparisons.
    const bool bare = each.strength > (least == 3 ? 3 : least - 1 + more);
    return bare ? each.plain : "(" + each.plain + ")";
  };
  out.plain = wrapped(a, 0) + sign + wrapped(b, 1);
  out.strength = strength;
  if (a.value && b.value) out.value = combined(sign, *a.value, *b.value);
  return out;
}

TEST_CASE("drawn trees have the value that 128 bits give, or are refused") {
  std::mt19937 draw(20261129);
  int refused = 0, known = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tree tree = drawn(&draw, 1 + i % 4);
    CAPTURE(tree.text);
    CAPTURE(tree.plain);
    if (tree.text.size() > kMostExpressionBytes) continue;
    for (const std::string& text : {tree.text, tree.plain}) {
      const auto found = value_of(text);
      REQUIRE(found.has_value() == tree.value.has_value());
      if (found) REQUIRE(Wide(*found) == *tree.value);
    }
    ++(tree.value ? known : refused);
  }
  CHECK(refused > 1000);
  CHECK(known > 5000);
}

TEST_CASE("functions and signs") {
  const std::pair<const char*, int64_t> kCases[] = {{"min(T, D)", -12},
                                                    {"max(T, D)", 7},
                                                    {"ceil_div(T, 2)", 4},
                                                    {"ceil_div(8, 2)", 4},
                                                    {"ceil_div(D, 5)", -2},
                                                    {"ceil_div(0, 5)", 0},
                                                    {"ceil_div(7, -2)", -3},
                                                    {"ceil_div(-7, -2)", 4},
                                                    {"-T", -7},
                                                    {"- -T", 7},
                                                    {"!T", 0},
                                                    {"!0", 1},
                                                    {"!(T == 7)", 0},
                                                    {"T%4", 3},
                                                    {"-7 % 4", -3},
                                                    {"-7 / 2", -3},
                                                    {"2 - 3 - 4", -5},
                                                    {"100 / 10 / 5", 2},
                                                    {"1 ? 2 : 3 ? 4 : 5", 2},
                                                    {"0 ? 2 : 0 ? 4 : 5", 5},
                                                    {"2 && 3", 1},
                                                    {"0 || 5", 1},
                                                    {"0 || 0", 0},
                                                    {"1 && 0 || 1", 1},
                                                    {"  T+1\t", 8},
                                                    {"min(max(T, 3), ceil_div(20, 3))", 7}};
  for (const auto& [text, value] : kCases) {
    CAPTURE(text);
    CHECK(value_of(text) == value);
  }
  CHECK_FALSE(value_of("-(0 - 9223372036854775807 - 1)").has_value());
  CHECK_FALSE(value_of("(0 - 9223372036854775807 - 1) / (0 - 1)").has_value());
  CHECK_FALSE(value_of("(0 - 9223372036854775807 - 1) % (0 - 1)").has_value());
  CHECK_FALSE(value_of("ceil_div(T, T - 7)").has_value());
}

TEST_CASE("what is refused names its place and what is allowed") {
  struct Bad {
    const char* text;
    size_t at;
    const char* what;
  };
  const Bad kBad[] = {{"", 0, "is empty"},
                      {"   ", 0, "is empty"},
                      {"T +", 3, "ends here; allowed are names"},
                      {"(T", 2, "ends here"},
                      {"T)", 1, "has ')' here"},
                      {"T T", 2, "has 'T' here"},
                      {"T = 1", 2, "has '=' here"},
                      {"T & 1", 2, "has '&' here"},
                      {"1.5", 0, "'1.5' is no whole number"},
                      {"0x10", 0, "'0x10' is no whole number"},
                      {"9223372036854775808", 0, "allowed are 0 to 9223372036854775807"},
                      {"kTyle", 0, "'kTyle' is not known here; did you mean 'kTile'?"},
                      {"T + V", 4, "V varies from call to call"},
                      {"pow(T, 2)", 0, "no function 'pow'; allowed are min, max, ceil_div"},
                      {"min(T)", 5, "has ')' here"},
                      {"min(T, 1, 2)", 8, "has ',' here"},
                      {"bytes(y)", 0, "bytes is of a tensor; allowed are x"},
                      {"given(x)", 0, "given is of a tensor; allowed are none here"},
                      {"1 < T < 9", 6, "allowed is a < b && b < c"},
                      {"T ? 1", 5, "ends here"},
                      {"T \xC3\xA4", 2, "here; allowed are names"}};
  for (const Bad& bad : kBad) {
    CAPTURE(bad.text);
    ExpressionFault fault;
    REQUIRE_FALSE(Expression::parse(bad.text, kScope, &fault));
    CHECK(fault.at == bad.at);
    CHECK_MESSAGE(fault.what.find(bad.what) != std::string::npos, fault.what);
  }
}

TEST_CASE("sizes are limited, and the stack holds what the limits allow") {
  ExpressionFault fault;
  CHECK_FALSE(Expression::parse(std::string(kMostExpressionBytes + 1, ' '), kScope, &fault));
  CHECK(fault.what.find("allowed are 512") != std::string::npos);
  CHECK_FALSE(
      Expression::parse(std::string(200, '(') + "T" + std::string(200, ')'), kScope, &fault));
  CHECK(fault.what.find("deep in itself; allowed are 32") != std::string::npos);
  CHECK_FALSE(Expression::parse(std::string(400, '-') + "T", kScope, &fault));
  std::string many = "1";
  for (int i = 0; i < 200; ++i) many += "+1";
  CHECK_FALSE(Expression::parse(many, kScope, &fault));
  CHECK(fault.what.find("allowed are 256") != std::string::npos);
  // As many results as can wait for a second one, at every level.
  std::string deep = "1";
  int levels = 0;
  for (;; ++levels) {
    const std::string next = "1 == 1 + 1 * min(2, " + deep + ")";
    if (!Expression::parse(next, kScope, &fault)) break;
    deep = next;
  }
  CHECK(levels >= 10);
  CHECK(value_of(deep).has_value());
}

TEST_CASE("numbers take the place of names") {
  ExpressionFault fault;
  auto parsed = Expression::parse("T * D + bytes(x)", kScope, &fault);
  REQUIRE(parsed);
  CHECK(parsed->uses(0));
  CHECK_FALSE(parsed->uses(2));
  CHECK_FALSE(parsed->is_constant());
  parsed->bind(std::vector<std::optional<int64_t>>{std::nullopt, 100, std::nullopt, 4});
  CHECK_FALSE(parsed->is_constant());
  int64_t out = 0;
  const int64_t calls[] = {3};
  REQUIRE(parsed->evaluate(calls, &out).ok());
  CHECK(out == 304);
  CHECK(parsed->text() == "T * D + bytes(x)");
}

}  // namespace
