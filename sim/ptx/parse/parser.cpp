// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles module-level PTX: directives and function headers.
#include "sim/ptx/parse/parser.h"

#include <algorithm>
#include <cstring>

namespace sim {

Type type_by_name(std::string_view name) {
  static const std::unordered_map<std::string_view, Type> kTypes = {
      {"pred", Type::pred},     {"b8", Type::b8},         {"b16", Type::b16},
      {"b32", Type::b32},       {"b64", Type::b64},       {"b128", Type::b128},
      {"u8", Type::u8},         {"u16", Type::u16},       {"u32", Type::u32},
      {"u64", Type::u64},       {"s8", Type::s8},         {"s16", Type::s16},
      {"s32", Type::s32},       {"s64", Type::s64},       {"f16", Type::f16},
      {"f16x2", Type::f16x2},   {"bf16", Type::bf16},     {"bf16x2", Type::bf16x2},
      {"f32", Type::f32},       {"f64", Type::f64},       {"tf32", Type::tf32},
      {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2}, {"u16x2", Type::u16x2},
      {"s16x2", Type::s16x2}};
  const auto it = kTypes.find(name);
  return it == kTypes.end() ? Type::none : it->second;
}

namespace {

bool space_by_directive(std::string_view word, Space* space) {
  if (word == ".shared")
    *space = Space::shared;
  else if (word == ".local")
    *space = Space::local;
  else if (word == ".param")
    *space = Space::param;
  else if (word == ".const")
    *space = Space::constant;
  else if (word == ".global")
    *space = Space::global;
  else
    return false;
  return true;
}

}  // namespace

void TextParser::expect(std::string_view text) {
  if (!accept(text)) {
    fail("expected '" + std::string(text) + "', found '" + std::string(peek().text) + "'");
  }
}

uint64_t TextParser::integer() {
  if (peek().kind != Token::Kind::integer) {
    fail("expected an integer, found '" + std::string(peek().text) + "'");
  }
  return take().bits;
}

int64_t TextParser::signed_integer() {
  accept("+");  // [%rd1+-6] occurs
  const bool minus = accept("-");
  const auto value = static_cast<int64_t>(integer());
  return minus ? static_cast<int64_t>(-static_cast<uint64_t>(value)) : value;
}

const TextParser::Name* TextParser::find(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto it = scope->find(name);
    if (it != scope->end()) return &it->second;
  }
  return nullptr;
}

void TextParser::declare(std::string_view name, Name what) {
  if (!scopes_.back().emplace(name, what).second) {
    fail("'" + std::string(name) + "' is declared twice in one scope");
  }
}

void TextParser::run() {
  while (peek().kind != Token::Kind::end) module_statement();
  if (unit_.target.empty()) fail("no .target directive");
}

void TextParser::module_statement() {
  const std::string_view word = peek().text;
  if (peek().kind == Token::Kind::punct && accept(";")) return;
  if (word == ".version") {
    take();
    const Token& version = take();
    double number = 0;
    if (version.kind == Token::Kind::real64) std::memcpy(&number, &version.bits, 8);
    if (number < 6.0 || number >= 10.0) {
      fail(".version " + std::string(version.text) + "; 6.0 to 9.x are known");
    }
  } else if (word == ".target") {
    take();
    unit_.target = std::string(take().text);
    while (accept(",")) take();
  } else if (word == ".address_size") {
    take();
    if (integer() != 64) fail(".address_size must be 64");
  } else if (word == ".file") {
    file_directive();
  } else if (word == ".loc") {
    location();
  } else if (word == ".section") {
    skip_section();
  } else if (word == ".pragma") {
    skip_past(";");
  } else {
    bool external = false;
    while (accept(".visible") || accept(".weak") || accept(".common") || peek().is(".extern")) {
      external |= accept(".extern");
    }
    Space space;
    if (accept(".entry")) {
      function(true, external);
    } else if (accept(".func")) {
      function(false, external);
    } else if (space_by_directive(peek().text, &space)) {
      take();
      do {
        const Declaration d = declaration(space, external);
        const Name* old = find(d.name);
        if (old && old->kind == Name::Kind::variable) {
          // A forward declaration, followed by the definition.
          Declaration& known = unit_.variables[old->id - kModuleSymbol];
          if (known.external) known = d;
        } else {
          unit_.variables.push_back(d);
          const int id = kModuleSymbol + static_cast<int>(unit_.variables.size()) - 1;
          declare(name_token_, {Name::Kind::variable, id});
        }
      } while (accept(","));
      expect(";");
    } else {
      fail("unknown directive '" + std::string(word) + "'");
    }
  }
}

void TextParser::file_directive() {
  take();
  const uint64_t index = integer();
  if (peek().kind != Token::Kind::string) fail(".file without a name");
  if (index > 1u << 16) fail(".file index " + std::to_string(index) + " is too large");
  if (unit_.files.size() <= index) unit_.files.resize(index + 1);
  unit_.files[index] = std::string(take().text);
  while (accept(",")) integer();
}

void TextParser::skip_section() {
  while (!peek().is("{")) {
    if (peek().kind == Token::Kind::end) fail(".section without a body");
    take();
  }
  int depth = 0;
  do {
    if (peek().kind == Token::Kind::end) fail(".section without an end");
    if (peek().is("{")) ++depth;
    if (peek().is("}")) --depth;
    take();
  } while (depth > 0);
}

std::vector<int> TextParser::parameters(FunctionText* f) {
  std::vector<int> ids;
  expect("(");
  while (!accept(")")) {
    if (accept(".reg")) fail("register parameters of a .func are not supported");
    expect(".param");
    Declaration d = declaration(Space::param, false);
    const int id = static_cast<int>(f->variables.size());
    f->variables.push_back(std::move(d));
    declare(name_token_, {Name::Kind::variable, id});
    ids.push_back(id);
    if (ids.size() > 8192) fail("too many parameters");
    if (!accept(",") && !peek().is(")")) fail("expected ',' or ')' in a parameter list");
  }
  return ids;
}

void TextParser::performance_directives(FunctionText* f) {
  auto three = [&](uint32_t* out) {
    for (int i = 0; i < 3; ++i) out[i] = 1;
    int i = 0;
    do {
      const auto value = static_cast<uint32_t>(integer());
      if (i < 3) out[i++] = value;
    } while (accept(","));
  };
  for (;;) {
    uint32_t dims[3];
    if (accept(".maxntid")) {
      three(dims);
      f->max_threads = dims[0] * dims[1] * dims[2];
    } else if (accept(".reqntid")) {
      three(f->required_block);
      f->max_threads = f->required_block[0] * f->required_block[1] * f->required_block[2];
    } else if (accept(".reqnctapercluster")) {
      three(f->required_cluster);
    } else if (accept(".minnctapersm")) {
      f->min_blocks = static_cast<uint32_t>(integer());
    } else if (accept(".maxnreg")) {
      f->max_registers = static_cast<uint32_t>(integer());
    } else if (accept(".maxclusterrank")) {
      f->max_cluster_rank = static_cast<uint32_t>(integer());
    } else if (accept(".explicitcluster")) {
      f->explicit_cluster = true;
    } else if (accept(".noreturn") || accept(".blocksareclusters")) {
    } else if (peek().is(".pragma")) {
      skip_past(";");
    } else {
      return;
    }
  }
}

void TextParser::function(bool entry, bool external) {
  FunctionText f;
  f.entry = entry;
  f.line = peek().line;
  scopes_.emplace_back();
  accept(".noreturn");
  if (!entry && peek().is("(")) f.returns = parameters(&f);
  f.name = std::string(take().text);
  if (peek().is("(")) f.params = parameters(&f);
  performance_directives(&f);
  function_ = &f;
  if (accept(";")) {
    f.has_body = false;
  } else if (external && !peek().is("{")) {
    fail("expected ';' after an external function");
  } else {
    f.has_body = true;
    body();
  }
  scopes_.pop_back();
  function_ = nullptr;
  const auto [number, fresh] = function_numbers_.emplace(f.name, unit_.functions.size());
  if (fresh) return unit_.functions.push_back(std::move(f));
  FunctionText& known = unit_.functions[number->second];
  if (known.has_body && f.has_body) fail("function '" + f.name + "' is defined twice");
  if (f.has_body) known = std::move(f);
}

bool parse_text(std::string_view text, Unit* out, std::string* error) {
  std::vector<Token> tokens;
  if (!tokenize(text, &tokens, error)) return false;
  try {
    TextParser(std::move(tokens), out).run();
  } catch (const PtxError& e) {
    *error = e.what();
    return false;
  }
  return true;
}

}  // namespace sim
