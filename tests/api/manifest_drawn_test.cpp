// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover lines of problems that are drawn from the table of operators: each comes back
// as it was, and a damaged one is refused or is another problem.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "ops/problem.h"
#include "tests/api/manifest_text.h"

namespace {

using manifest::parse;
using manifest::text_of;
using test::Builder;
using test::error;

// Draws a problem of whatever the table allows; what setters refuse is left out.
class Drawer {
 public:
  explicit Drawer(uint32_t seed) : random_(seed) {}

  Builder problem() {
    const lathe_operator_info* op = lathe_operator_at(below(lathe_operator_count()));
    Builder out(op->name);
    for (size_t i = 0; i < op->tensor_count; ++i) {
      if (below(3) > 0) tensor(*op, op->tensors[i], &out);
    }
    for (size_t i = 0; i < op->option_count; ++i) {
      if (below(2) > 0) option(op->options[i], out.problem.get());
    }
    if (below(3) == 0) lathe_problem_alignment(out.problem.get(), 1 << below(5));
    return out;
  }
  size_t below(size_t count) { return random_() % count; }

 private:
  void tensor(const lathe_operator_info& op, const lathe_operator_tensor& info, Builder* out) {
    const char* allowed = info.dtypes;
    if (*allowed == '=') {
      for (size_t i = 0; i < op.tensor_count; ++i) {
        if (std::strcmp(op.tensors[i].name, info.dtypes + 1) == 0) allowed = op.tensors[i].dtypes;
      }
    }
    const char* const words[] = {"f32", "f16", "bf16", "i32", "i64"};
    const int dtype = static_cast<int>(below(5));
    if (!lathe::listed(allowed, '|', words[dtype])) return;
    const auto shapes = lathe::split(info.shape, '|');
    const lathe::Shape shape = lathe::parse_shape(shapes[below(shapes.size())]);
    std::vector<int64_t> extents;
    for (int d = 0; d < shape.rank; ++d) {
      const auto drawn = static_cast<int64_t>(random_() >> (1 + below(31)));
      extents.push_back(below(3) == 0 ? -1 : drawn);
    }
    lathe_problem_tensor(out->problem.get(), info.name, static_cast<lathe_dtype>(dtype), shape.rank,
                         extents.data());
  }

  void option(const lathe_operator_option& info, lathe_problem* problem) {
    const auto words = lathe::split(info.allowed, '|');
    const std::string word(words[below(words.size())]);
    if (word == "FILE") {
      const std::string text = std::string(info.name) + "(" + noise() + ")";
      lathe_problem_set_text(problem, info.name, text.data(), text.size());
      return;
    }
    if (lathe_problem_set_string(problem, info.name, word.c_str()) == LATHE_OK) return;
    const auto integer = static_cast<int64_t>(below(2) ? below(40) : random_()) - 20;
    if (lathe_problem_set_int(problem, info.name, integer) == LATHE_OK) return;
    const double number =
        std::ldexp(static_cast<double>(random_()) - 2e9, static_cast<int>(below(90)) - 60);
    lathe_problem_set_double(problem, info.name, number);
  }

  std::string noise() {
    const char* const pieces[] = {"a",  "\n",   "\"",           "\\",
                                  "\t", "\x01", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                  "/*", "*/",   "\x7F",         "\r"};
    std::string out;
    for (size_t i = below(60); i > 0; --i) out += pieces[below(std::size(pieces))];
    return out;
  }

  std::mt19937 random_;
};

// As numbers where they are some.
void check_option(const std::optional<std::string>& a, const std::optional<std::string>& b) {
  REQUIRE(a.has_value() == b.has_value());
  if (!a || *a == *b) return;
  double one = 0, two = 1;
  const auto end = [](const std::string& text) { return text.data() + text.size(); };
  CHECK(std::from_chars(a->data(), end(*a), one).ptr == end(*a));
  CHECK(std::from_chars(b->data(), end(*b), two).ptr == end(*b));
  CHECK(one == two);
}

TEST_CASE("what was declared comes back from the line, for every operator") {
  Drawer drawer(11);
  size_t texts = 0;
  for (int i = 0; i < 3000; ++i) {
    const Builder drawn = drawer.problem();
    const lathe_problem& first = *drawn.problem;
    const std::string line = text_of(&first);
    CAPTURE(line);
    REQUIRE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c < 127; }));
    const auto again = parse(line);
    REQUIRE_MESSAGE(again, error());
    REQUIRE(text_of(again.get()) == line);
    REQUIRE(again->op == first.op);
    REQUIRE(again->alignment == first.alignment);
    for (size_t t = 0; t < first.op->tensors.size(); ++t) {
      const lathe::Declared &a = first.tensors[t], &b = again->tensors[t];
      REQUIRE(a.given == b.given);
      if (!a.given) continue;
      REQUIRE(a.dtype == b.dtype);
      REQUIRE(lathe::shape_text(a.shape) == lathe::shape_text(b.shape));
      REQUIRE(a.extents == b.extents);
    }
    for (size_t o = 0; o < first.options.size(); ++o) {
      check_option(first.options[o], again->options[o]);
    }
    REQUIRE(first.mods.size() == again->mods.size());
    for (const lathe::Mod& said : first.mods) {
      const auto same = [&](const lathe::Mod& each) {
        return each.name == said.name && each.text == said.text;
      };
      CHECK(std::any_of(again->mods.begin(), again->mods.end(), same));
      ++texts;
    }
  }
  CHECK(texts > 40);  // the others were refused
}

TEST_CASE("damaged lines are refused or are other problems") {
  Drawer drawer(5);
  const std::string group = R"(,"group":{"world":4,"flags":["dispatch"]}})";
  for (int i = 0; i < 3000; ++i) {
    std::string line = text_of(drawer.problem().problem.get());
    if (line.find("flash_attention\"") < 20) line.replace(line.size() - 1, 1, group);
    for (size_t changes = drawer.below(3) + 1; changes > 0 && !line.empty(); --changes) {
      const size_t at = drawer.below(line.size());
      const size_t kind = drawer.below(4);
      if (kind == 0) line.resize(at);
      if (kind == 1) line[at] = static_cast<char>(drawer.below(256));
      if (kind == 2) line.erase(at, drawer.below(8));
      if (kind == 3) line.insert(at, line.substr(drawer.below(line.size()), drawer.below(20)));
    }
    const auto problem = parse(line);
    if (!problem) continue;
    const std::string text = text_of(problem.get());
    CAPTURE(line);
    const auto again = parse(text);
    REQUIRE_MESSAGE(again, error());
    CHECK(text_of(again.get()) == text);
  }
}

}  // namespace
