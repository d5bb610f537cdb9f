// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the table of instructions: names, operand shapes, the modifiers that each takes.
#pragma once

#include <string>
#include <string_view>

#include "sim/ptx/code.h"
#include "sim/ptx/form.h"

namespace sim {

// Each operand has one letter, the destination first where there is one:
//   t  the first type        u  the last type        w  twice as wide as the first type
//   i  32 bits               l  64 bits              k  an immediate, kept in Inst::imm
//   p  predicate             q  predicate destination, perhaps p|q
//   ?  what follows is optional
// If this is null, the decoder treats the operands itself.
struct OpInfo {
  std::string_view name;
  Op op;
  Class cls;
  const char* shape;
  uint64_t mods;  // the modifiers it may have
};

// Pairs a word of an opcode with its meaning in one table of words.
template <class Meaning>
struct Word {
  std::string_view text;
  Meaning meaning;
};
template <class Meaning, size_t N>
bool look_up(const Word<Meaning> (&words)[N], std::string_view text, Meaning* out) {
  for (const Word<Meaning>& word : words) {
    if (word.text != text) continue;
    *out = word.meaning;
    return true;
  }
  return false;
}

const OpInfo* find_op(std::string_view name);

// Reads one word of an opcode, for the files that parse a family.
bool modifier(std::string_view word, const OpInfo& info, Form* form);
bool atomic_name(std::string_view word, Atomic* out);
// These functions serve copies, barriers and fences of the asynchronous family.
bool is_async_family(std::string_view opcode);
bool parse_async_form(std::string_view opcode, Form* form, const OpInfo** info);

// Splits "add.rn.ftz.f32" into a form. Returns false and fills `error` for anything unknown.
bool parse_form(std::string_view opcode, Form* form, const OpInfo** info, std::string* error);

// These functions do the same for matrix instructions, whose words and types are their own
// (tensor.cpp).
bool is_tensor(std::string_view opcode);
bool parse_tensor(std::string_view opcode, Form* form, const OpInfo** info);

}  // namespace sim
