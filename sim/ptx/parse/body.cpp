// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles function bodies: scopes, declarations, labels, instructions and their operands.
#include "sim/ptx/parse/parser.h"
#include "sim/ptx/special.h"

namespace sim {
namespace {

bool is_special_register(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find('.'));
  for (const std::string_view known : kSpecialNames) {
    if (stem == known.substr(0, known.find('.'))) return true;
  }
  return false;
}

}  // namespace

// At '{'. Scope 0 is the body itself.
void TextParser::body() {
  expect("{");
  int scope = 0;
  std::vector<int> open = {0};
  while (!open.empty()) {
    if (peek().kind == Token::Kind::end) fail("function '" + function_->name + "' has no end");
    if (accept("{")) {
      if (open.size() > 200) fail("nested too deeply");
      function_->scope_parents.push_back(open.back());
      scope = static_cast<int>(function_->scope_parents.size()) - 1;
      open.push_back(scope);
      scopes_.emplace_back();
    } else if (accept("}")) {
      if (open.size() > 1) scopes_.pop_back();
      open.pop_back();
    } else {
      body_statement(open.back());
    }
  }
}

void TextParser::body_statement(int scope) {
  const Token& t = peek();
  if (accept(";")) return;
  if (t.is(".reg")) return register_declaration();
  if (t.is(".loc")) return location();
  if (t.is(".file")) return file_directive();
  if (t.is(".section")) return skip_section();
  if (t.is(".pragma")) {
    skip_past(";");
    return;
  }
  Space space = Space::generic;
  const bool external = accept(".extern");
  if (peek().is(".shared")) space = Space::shared;
  if (peek().is(".local")) space = Space::local;
  if (peek().is(".param")) space = Space::param;
  if (peek().is(".global")) space = Space::global;
  if (peek().is(".const")) space = Space::constant;
  if (space != Space::generic) {
    take();
    do {
      Declaration d = declaration(space, external);
      int id = static_cast<int>(function_->variables.size());
      if (space == Space::global || space == Space::constant) {
        id = kModuleSymbol + static_cast<int>(unit_.variables.size());
        unit_.variables.push_back(std::move(d));
      } else {
        function_->variables.push_back(std::move(d));
      }
      declare(name_token_, {Name::Kind::variable, id});
    } while (accept(","));
    return expect(";");
  }
  if (t.kind == Token::Kind::word && peek(1).is(":")) {
    const std::string name(take().text);
    take();
    if (peek().is(".branchtargets")) return branch_targets(name, scope);
    if (peek().is(".callprototype") || peek().is(".calltargets")) {
      skip_past(";");
      return;
    }
    Statement s;
    s.ptx_line = t.line;
    s.label = name;
    s.scope = scope;
    function_->statements.push_back(std::move(s));
    return;
  }
  instruction(scope);
}

void TextParser::branch_targets(const std::string& label, int scope) {
  take();
  std::vector<std::string>& targets = function_->branch_tables[{scope, label}];
  if (!targets.empty()) fail("table '" + label + "' is defined twice");
  do {
    targets.emplace_back(take().text);
  } while (accept(","));
  expect(";");
}

void TextParser::register_declaration() {
  take();
  Type type = Type::none;
  while (peek().kind == Token::Kind::word && peek().text[0] == '.') {
    type = type_by_name(take().text.substr(1));
    if (type == Type::none) fail("unknown register type");
  }
  if (type == Type::none) fail("register declaration without a type");
  do {
    const std::string_view stem = take().text;
    if (!accept("<")) {
      declare(stem, {Name::Kind::reg, static_cast<int>(function_->registers.size())});
      function_->registers.push_back({std::string(stem), type});
      continue;
    }
    const uint64_t count = integer();
    expect(">");
    register_count_ += count;
    if (count > 1u << 20 || register_count_ > 1u << 21) fail("too many registers");
    for (uint64_t i = 0; i < count; ++i) {
      names_.push_back(std::string(stem) + std::to_string(i));
      declare(names_.back(), {Name::Kind::reg, static_cast<int>(function_->registers.size())});
      function_->registers.push_back({names_.back(), type});
    }
  } while (accept(","));
  expect(";");
}

// .loc file line column [, function_name symbol [+ n]] [, inlined_at file line column]
void TextParser::location() {
  take();
  source_.file = static_cast<int>(integer());
  source_.line = static_cast<int>(integer());
  integer();
  while (accept(",")) {
    take();
    while (!peek().is(",") && peek().kind != Token::Kind::end &&
           peek().line == tokens_[at_ - 1].line) {
      take();
    }
  }
}

void TextParser::instruction(int scope) {
  Statement s;
  s.ptx_line = peek().line;
  s.source = source_;
  s.scope = scope;
  if (accept("@")) {
    const bool negate = accept("!");
    s.guard = identifier(scope);
    if (s.guard.kind != Operand::Kind::reg || function_->registers[s.guard.id].type != Type::pred) {
      fail("the guard '" + s.guard.name + "' is not a predicate register");
    }
    s.guard.negate = negate;
  }
  if (peek().kind != Token::Kind::word) {
    fail("expected an instruction, found '" + std::string(peek().text) + "'");
  }
  s.opcode = std::string(take().text);
  while (peek().kind == Token::Kind::word && peek().text[0] == '.') s.opcode += take().text;
  for (const char* own : {"trap.assertion", "vprintf", "ret.callee", "heap.malloc",
                          "heap.free"}) {  // see inline_calls
    if (s.opcode == own) fail("unsupported instruction '" + s.opcode + "'");
  }
  if (!peek().is(";")) {
    do {
      s.operands.push_back(operand(scope));
    } while (accept(","));
  }
  expect(";");
  function_->statements.push_back(std::move(s));
}

Operand TextParser::operand(int scope) {
  const Nesting nesting(this);
  if (peek().is("(")) {  // the argument lists of a call
    take();
    Operand list;
    list.kind = Operand::Kind::vector;
    while (!accept(")")) {
      list.parts.push_back(operand(scope));
      accept(",");
    }
    return list;
  }
  Operand first = atom(scope);
  if (!accept("|")) return first;
  Operand pair;
  pair.kind = Operand::Kind::pair;
  pair.parts.push_back(std::move(first));
  pair.parts.push_back(atom(scope));
  return pair;
}

Operand TextParser::atom(int scope) {
  const Nesting nesting(this);
  if (accept("!")) {
    Operand o = identifier(scope);
    o.negate = true;
    return o;
  }
  if (peek().is("[")) return address(scope);
  if (accept("{")) {
    Operand v;
    v.kind = Operand::Kind::vector;
    do {
      v.parts.push_back(atom(scope));
    } while (accept(","));
    expect("}");
    return v;
  }
  if (peek().kind == Token::Kind::word) {
    Operand o = identifier(scope);
    if (o.kind == Operand::Kind::symbol && (peek().is("+") || peek().is("-"))) {
      o.offset = signed_integer();
    }
    return o;
  }
  return literal();
}

Operand TextParser::literal() {
  Operand o;
  const bool minus = accept("-");
  const Token& t = take();
  o.bits = t.bits;
  if (t.kind == Token::Kind::integer) {
    o.kind = Operand::Kind::imm;
    if (minus) o.bits = -o.bits;
  } else if (t.kind == Token::Kind::real32) {
    o.kind = Operand::Kind::real32;
    if (minus) o.bits ^= 0x80000000u;
  } else if (t.kind == Token::Kind::real64) {
    o.kind = Operand::Kind::real64;
    if (minus) o.bits ^= 1ull << 63;
  } else {
    fail("expected an operand, found '" + std::string(t.text) + "'");
  }
  return o;
}

Operand TextParser::address(int scope) {
  expect("[");
  Operand a;
  a.kind = Operand::Kind::address;
  if (peek().kind == Token::Kind::word) {
    a.parts.push_back(identifier(scope));
    while (peek().is("+") || peek().is("-")) a.offset += signed_integer();
    while (accept(",")) a.parts.push_back(atom(scope));  // the coordinates of a tensor map
  } else {
    a.offset = signed_integer();
  }
  expect("]");
  return a;
}

Operand TextParser::identifier(int scope) {
  if (peek().kind != Token::Kind::word) {
    fail("expected a name, found '" + std::string(peek().text) + "'");
  }
  const std::string_view name = take().text;
  Operand o;
  o.name = std::string(name);
  o.scope = scope;
  if (name == "_") {
    o.kind = Operand::Kind::sink;
  } else if (name == "WARP_SZ") {
    o.kind = Operand::Kind::imm;
    o.bits = 32;
  } else if (const Name* known = find(name)) {
    o.kind = known->kind == Name::Kind::reg ? Operand::Kind::reg : Operand::Kind::symbol;
    o.id = known->id;
  } else if (name[0] == '%') {
    if (!is_special_register(name)) fail("undefined register '" + o.name + "'");
    o.kind = Operand::Kind::special;
  } else {
    o.kind = Operand::Kind::label;  // or a function; the decoder knows
  }
  return o;
}

}  // namespace sim
