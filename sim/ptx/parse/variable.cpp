// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles declarations of variables and parameters, with their initialisers.
#include "sim/ptx/parse/parser.h"

namespace sim {

// After the space: [.align n] [.ptr ...] [.v2|.v4] .type name [dims] [= init].
Declaration TextParser::declaration(Space space, bool external) {
  Declaration d;
  d.space = space;
  d.external = external;
  d.line = peek().line;
  uint32_t align = 0, vector = 1;
  Type type = Type::none;
  while (peek().text.substr(0, 1) == "." && peek().kind == Token::Kind::word) {
    const std::string_view word = take().text.substr(1);
    if (word == "align") {
      const uint64_t value = integer();
      if (value > 1u << 20) fail("alignment " + std::to_string(value) + " is too large");
      align = static_cast<uint32_t>(value);
    } else if (word == "ptr") {
      while (peek().is(".global") || peek().is(".shared") || peek().is(".const") ||
             peek().is(".local") || peek().is(".generic")) {
        take();
      }
      if (accept(".align")) integer();  // of what it points to
    } else if (word == "v2" || word == "v4") {
      vector = word == "v2" ? 2 : 4;
    } else if (word == "attribute") {
      expect("(");
      d.managed = d.managed || peek().is(".managed");
      skip_past(")");
    } else if ((type = type_by_name(word)) == Type::none) {
      fail("unknown type or attribute '." + std::string(word) + "'");
    }
  }
  if (type == Type::none || peek().kind != Token::Kind::word) fail("malformed declaration");
  name_token_ = take().text;
  d.name = std::string(name_token_);
  const unsigned element = type == Type::pred ? 1 : type_bytes(type);
  uint64_t count = vector;
  while (accept("[")) {
    const uint64_t length = peek().is("]") ? 0 : integer();
    expect("]");
    if (length > (1ull << 40) || count * (length >> 10) > (1ull << 30)) {
      fail("'" + d.name + "' is too large");
    }
    count *= length;
  }
  d.bytes = count * element;
  d.align = align ? align : element * vector;
  if (d.align == 0 || (d.align & (d.align - 1))) fail("alignment is not a power of two");
  if (accept("=")) {
    initializer(&d, element);
    if (d.image.size() > d.bytes) {
      if (d.bytes != 0) fail("initialiser of '" + d.name + "' is larger than it");
      d.bytes = d.image.size();  // x[] = {...}
    }
    if (d.bytes < 1u << 20) d.image.resize(d.bytes);  // past the image all is zero in any case
  }
  return d;
}

void TextParser::initializer(Declaration* d, unsigned element) {
  const Nesting nesting(this);
  if (!accept("{")) return initial_value(d, element);
  if (accept("}")) return;
  do {
    initializer(d, element);
  } while (accept(","));
  expect("}");
}

void TextParser::initial_value(Declaration* d, unsigned element) {
  uint64_t bits = 0;
  const Token& t = peek();
  if (t.kind == Token::Kind::real32 || t.kind == Token::Kind::real64) {
    bits = take().bits;
  } else if (t.kind == Token::Kind::integer || t.is("-") || t.is("+")) {
    bits = static_cast<uint64_t>(signed_integer());
  } else if (t.kind == Token::Kind::word) {
    // generic(symbol)+addend, symbol+addend, or a function's name.
    const bool generic = accept("generic");
    if (generic) expect("(");
    Declaration::Pointer p{d->image.size(), std::string(take().text), 0};
    if (generic) expect(")");
    if (peek().is("+") || peek().is("-")) p.addend = signed_integer();
    d->pointers.push_back(p);
  } else {
    fail("bad initialiser '" + std::string(t.text) + "'");
  }
  for (unsigned i = 0; i < element; ++i) {
    d->image.push_back(i < 8 ? static_cast<uint8_t>(bits >> (8 * i)) : 0);
  }
}

}  // namespace sim
