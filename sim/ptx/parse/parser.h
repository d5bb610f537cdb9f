// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the state of a parse, which parser.cpp (module level) and body.cpp
// (function bodies) share.
#pragma once

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <unordered_map>

#include "sim/ptx/parse/unit.h"

namespace sim {

// A PtxError is thrown inside sim/ptx and turned into a log text at Module::parse.
struct PtxError : std::runtime_error {
  PtxError(int line, const std::string& what)
      : std::runtime_error("line " + std::to_string(line) + ": " + what) {}
};

// These functions return the type, space and so on by their PTX names; `none` if unknown. The
// leading dot is not part of it.
Type type_by_name(std::string_view name);

class TextParser {
 public:
  TextParser(std::vector<Token> tokens, Unit* unit) : tokens_(std::move(tokens)), unit_(*unit) {}
  void run();

 private:
  struct Name {
    enum class Kind : uint8_t { reg, variable } kind;
    int id;
  };
  using Scope = std::unordered_map<std::string_view, Name>;

  // Module level.
  void module_statement();
  void file_directive();
  void skip_section();
  void function(bool entry, bool external);
  std::vector<int> parameters(FunctionText* f);
  void performance_directives(FunctionText* f);
  // variable.cpp
  Declaration declaration(Space space, bool external);
  void initializer(Declaration* d, unsigned element);
  void initial_value(Declaration* d, unsigned element);

  // Bodies.
  void body();
  void body_statement(int scope);
  void register_declaration();
  void location();
  void instruction(int scope);
  Operand operand(int scope);
  Operand atom(int scope);
  Operand address(int scope);
  Operand identifier(int scope);
  Operand literal();
  void branch_targets(const std::string& label, int scope);

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& t = peek();
    if (at_ < tokens_.size() - 1) ++at_;
    return t;
  }
  bool accept(std::string_view text) {
    if (!peek().is(text)) return false;
    take();
    return true;
  }
  void expect(std::string_view text);
  void skip_past(std::string_view text) {
    while (!accept(text)) {
      if (peek().kind == Token::Kind::end) fail("expected '" + std::string(text) + "'");
      take();
    }
  }
  // Text from outside must not decide how deep the parser's own calls go.
  struct Nesting {
    explicit Nesting(TextParser* p) : parser(p) {
      if (++parser->nesting_ > 200) parser->fail("nested too deeply");
    }
    ~Nesting() { --parser->nesting_; }
    TextParser* parser;
  };
  uint64_t integer();
  int64_t signed_integer();
  [[noreturn]] void fail(const std::string& what) const { throw PtxError(peek().line, what); }
  const Name* find(std::string_view name) const;
  void declare(std::string_view name, Name what);

  std::vector<Token> tokens_;
  Unit& unit_;
  size_t at_ = 0;
  int nesting_ = 0;
  uint64_t register_count_ = 0;  // of the module
  std::unordered_map<std::string, size_t> function_numbers_;
  FunctionText* function_ = nullptr;
  std::vector<Scope> scopes_ = {{}};
  std::deque<std::string> names_;  // what %r<n> declares; the scopes hold views of it
  SourceLine source_;
  std::string_view name_token_;  // the name the last declaration() read; a view into the text
};

}  // namespace sim
