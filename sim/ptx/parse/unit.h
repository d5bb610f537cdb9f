// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A Unit is a PTX text after parsing: names are resolved, nothing is decoded yet.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/ptx/form.h"
#include "sim/ptx/parse/lexer.h"

namespace sim {

struct Operand {
  enum class Kind : uint8_t {
    none,
    reg,
    special,
    imm,
    real32,
    real64,
    symbol,
    label,
    vector,
    address,
    sink,
    pair
  };
  Kind kind = Kind::none;
  bool negate = false;         // !p
  int id = -1;                 // reg: register number; symbol: variable number (see Variables)
  uint64_t bits = 0;           // literals
  int64_t offset = 0;          // address, or symbol + offset
  std::string name;            // label, function, special register, symbol
  int scope = 0;               // label: where it was named
  std::vector<Operand> parts;  // vector, pair: elements; address: the base

  // Returns the number of a vector's elements; anything else is one element.
  unsigned count() const { return kind == Kind::vector ? static_cast<unsigned>(parts.size()) : 1u; }
  const Operand& element(unsigned i) const { return kind == Kind::vector ? parts[i] : *this; }
};

struct SourceLine {
  int file = 0, line = 0;
};

struct Statement {
  int ptx_line = 0;
  SourceLine source;
  std::string opcode;  // "ld.global.f32"; empty for a label
  Operand guard;       // kind none: always
  std::vector<Operand> operands;
  std::string label;  // a label statement
  int scope = 0;
  int frame = 0;  // after inlining: 0 the kernel's own, k: of callee k - 1
};

// A Declaration is a .shared, .local, .param, .const or .global declaration.
struct Declaration {
  std::string name;
  Space space = Space::global;
  uint32_t align = 1;
  uint64_t bytes = 0;
  bool external = false;  // .extern .shared x[]
  bool managed = false;   // .attribute(.managed)
  std::vector<uint8_t> image;
  struct Pointer {
    uint64_t offset;
    std::string symbol;
    int64_t addend;
  };
  std::vector<Pointer> pointers;
  int line = 0;
  int frame = 0;  // as Statement::frame
};

struct RegisterDecl {
  std::string name;
  Type type = Type::b32;
};

struct FunctionText {
  std::string name;
  bool entry = false;
  bool has_body = false;
  int line = 0;
  std::vector<int> params, returns;    // indices into variables
  std::vector<Declaration> variables;  // everything declared in it, .param included
  std::vector<RegisterDecl> registers;
  std::vector<Statement> statements;
  std::vector<int> scope_parents = {-1};  // scope number -> the scope around it
  uint32_t max_threads = 0, required_block[3] = {0, 0, 0}, required_cluster[3] = {0, 0, 0};
  uint32_t max_cluster_rank = 0, max_registers = 0, min_blocks = 0;
  bool explicit_cluster = false;
  std::map<std::pair<int, std::string>, std::vector<std::string>> branch_tables;  // by scope, name
  // Callees are the functions that stay functions after inlining, in the order of their statements.
  struct Callee {
    std::string name;
    int scope = 0, first_register = 0;
    std::vector<int> params, returns;
  };
  std::vector<Callee> callees;
};

// Symbol operands with id >= kModuleSymbol name Unit::variables[id - kModuleSymbol].
constexpr int kModuleSymbol = 1 << 24;

struct Unit {
  std::string target;
  std::vector<Declaration> variables;
  std::vector<FunctionText> functions;
  std::vector<std::string> files;
};

// Parses the text. On failure returns false and fills `error` with "line N: ...".
bool parse_text(std::string_view text, Unit* out, std::string* error);

}  // namespace sim
