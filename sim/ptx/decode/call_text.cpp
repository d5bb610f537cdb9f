// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx/decode/call_text.h"

#include "sim/ptx/decode/decode.h"

namespace sim {
namespace {

// The functions of the device's library that the simulator has, and the instructions that do them.
struct Library {
  const char *name, *opcode;
  Type result;
};
constexpr Library kLibrary[] = {{"vprintf", "vprintf", Type::b32},
                                {"malloc", "heap.malloc", Type::b64},
                                {"free", "heap.free", Type::none},
                                {"__assertfail", "trap.assertion", Type::none}};

Operand address_of(const Operand& variable) {
  Operand a;
  a.kind = Operand::Kind::address;
  a.parts.push_back(variable);
  return a;
}

Statement parameter(const Statement& s, const char* opcode, std::vector<Operand> operands) {
  Statement p = s;
  p.opcode = opcode;
  p.operands = std::move(operands);
  return p;
}

}  // namespace

Operand label_operand(const std::string& name, int scope) {
  Operand o;
  o.kind = Operand::Kind::label;
  o.name = name;
  o.scope = scope;
  return o;
}

void CallText::jump(const Statement& s, int scope) {
  Statement over = s;
  over.opcode = "bra";
  over.guard.negate = !over.guard.negate;
  over.operands = {label_operand("after call", scope)};
  over.scope = scope;
  out_.statements.push_back(std::move(over));
}

int CallText::new_scope() {
  out_.scope_parents.push_back(-1);
  return static_cast<int>(out_.scope_parents.size()) - 1;
}

void CallText::add_label(const std::string& name, int scope, int line) {
  Statement label;
  label.label = name;
  label.scope = scope;
  label.ptx_line = line;
  label.frame = frame_;
  out_.statements.push_back(std::move(label));
}

Operand CallText::new_register(Type type) {
  Operand o;
  o.kind = Operand::Kind::reg;
  o.id = static_cast<int>(out_.registers.size());
  out_.registers.push_back({"a call's own", type});
  return o;
}

void CallText::external(const Statement& s, const std::string& name, const CallParts& parts) {
  const Library* called = nullptr;
  for (const Library& each : kLibrary) {
    if (name == each.name) called = &each;
  }
  if (!called) {
    throw PtxError(s.ptx_line, "call of external function '" + name + "', which has no body");
  }
  const bool has_result = called->result != Type::none;
  if (parts.returns.size() > (has_result ? 1 : 0)) {
    throw PtxError(s.ptx_line, "'" + name + "' returns no such value");
  }
  Statement act = s;
  act.opcode = called->opcode;
  act.operands.clear();
  if (has_result) act.operands.push_back(new_register(called->result));
  for (const Operand& o : parts.arguments) {
    if (o.kind != Operand::Kind::symbol || o.id >= kModuleSymbol) {
      throw PtxError(s.ptx_line, "an argument is not a .param variable");
    }
    const bool wide = out_.variables[o.id].bytes == 8;
    act.operands.push_back(new_register(wide ? Type::b64 : Type::b32));
    out_.statements.push_back(
        parameter(s, wide ? "ld.param.b64" : "ld.param.b32", {act.operands.back(), address_of(o)}));
  }
  const Operand result = act.operands.empty() ? Operand{} : act.operands[0];
  out_.statements.push_back(std::move(act));
  if (parts.returns.empty()) return;
  const char* const store = called->result == Type::b64 ? "st.param.b64" : "st.param.b32";
  out_.statements.push_back(parameter(s, store, {address_of(parts.returns[0]), result}));
}

std::vector<int> CallText::adopt(const FunctionText& function) {
  const int variable_base = static_cast<int>(out_.variables.size());
  const int scope_base = static_cast<int>(out_.scope_parents.size());
  out_.registers.insert(out_.registers.end(), function.registers.begin(), function.registers.end());
  std::vector<int> variables;
  for (const Declaration& d : function.variables) {
    variables.push_back(variable_base + static_cast<int>(variables.size()));
    out_.variables.push_back(d);
    out_.variables.back().frame = frame_;
  }
  for (const int parent : function.scope_parents) {
    out_.scope_parents.push_back(parent < 0 ? -1 : parent + scope_base);
  }
  for (const auto& [key, targets] : function.branch_tables) {
    out_.branch_tables[{key.first + scope_base, key.second}] = targets;
  }
  return variables;
}

}  // namespace sim
