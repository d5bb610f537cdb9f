// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls of .func functions are replaced by their bodies. Parameters become variables in the
// thread's depot. Recursion, calls through pointers and external functions are refused by name.
#include <functional>

#include "sim/ptx/decode.h"

namespace sim {
namespace {

class Inliner {
 public:
  Inliner(const Unit& unit, FunctionText whole) : unit_(unit), out_(std::move(whole)) {}

  FunctionText run() {
    std::vector<Statement> statements = std::move(out_.statements);
    out_.statements.clear();
    expand(std::move(statements));
    return std::move(out_);
  }

 private:
  void expand(std::vector<Statement> statements) {
    for (Statement& s : statements) {
      if (s.opcode.substr(0, 4) == "call" && (s.opcode.size() == 4 || s.opcode[4] == '.')) {
        call(s);
      } else {
        out_.statements.push_back(std::move(s));
      }
    }
  }

  // call (returns), name, (arguments) in any shortened form.
  void call(const Statement& s) {
    const Operand* name = nullptr;
    std::vector<Operand> returns, arguments;
    for (const Operand& o : s.operands) {
      if (o.kind == Operand::Kind::vector) {
        (name ? arguments : returns) = o.parts;
      } else if (!name) {
        name = &o;
      } else {
        throw PtxError(s.ptx_line, "calls through a pointer are not supported");
      }
    }
    if (!name || name->kind != Operand::Kind::label) {
      throw PtxError(s.ptx_line, "calls through a pointer are not supported");
    }
    const FunctionText* callee = nullptr;
    for (const FunctionText& f : unit_.functions) {
      if (f.name == name->name) callee = &f;
    }
    if (!callee) throw PtxError(s.ptx_line, "call of undefined function '" + name->name + "'");
    if (!callee->has_body) return external(s, *callee);
    for (const std::string& open : open_) {
      if (open == callee->name) {
        throw PtxError(s.ptx_line, "recursive calls of '" + open + "' are not supported");
      }
    }
    if (returns.size() != callee->returns.size() || arguments.size() != callee->params.size()) {
      throw PtxError(s.ptx_line, "call of '" + callee->name + "' with a wrong number of arguments");
    }
    open_.push_back(callee->name);
    splice(s, *callee, returns, arguments);
    open_.pop_back();
  }

  void external(const Statement& s, const FunctionText& callee) {
    if (callee.name != "__assertfail") {
      throw PtxError(s.ptx_line,
                     "call of external function '" + callee.name + "', which has no body");
    }
    Statement trap = s;
    trap.opcode = "trap.assertion";
    trap.operands.clear();
    out_.statements.push_back(std::move(trap));
  }

  void splice(const Statement& s, const FunctionText& callee, const std::vector<Operand>& returns,
              const std::vector<Operand>& arguments) {
    if (out_.statements.size() > 4'000'000) throw PtxError(s.ptx_line, "calls expand too far");
    const int register_base = static_cast<int>(out_.registers.size());
    const int variable_base = static_cast<int>(out_.variables.size());
    const int scope_base = static_cast<int>(out_.scope_parents.size());
    out_.registers.insert(out_.registers.end(), callee.registers.begin(), callee.registers.end());
    out_.variables.insert(out_.variables.end(), callee.variables.begin(), callee.variables.end());
    for (const int parent : callee.scope_parents) {
      out_.scope_parents.push_back(parent < 0 ? -1 : parent + scope_base);
    }
    for (const auto& [label, targets] : callee.branch_tables) out_.branch_tables[label] = targets;
    std::vector<int> variables;
    for (size_t i = 0; i < callee.variables.size(); ++i) {
      variables.push_back(variable_base + static_cast<int>(i));
    }
    auto bind = [&](const std::vector<int>& formal, const std::vector<Operand>& actual) {
      for (size_t i = 0; i < formal.size(); ++i) {
        if (actual[i].kind != Operand::Kind::symbol) {
          throw PtxError(s.ptx_line, "an argument is not a .param variable");
        }
        variables[formal[i]] = actual[i].id;
      }
    };
    bind(callee.returns, returns);
    bind(callee.params, arguments);
    std::function<void(Operand*)> rename = [&](Operand* o) {
      if (o->kind == Operand::Kind::reg) o->id += register_base;
      if (o->kind == Operand::Kind::symbol && o->id < kModuleSymbol) o->id = variables[o->id];
      o->scope += scope_base;
      for (Operand& part : o->parts) rename(&part);
    };
    // A call under a guard is jumped over by the other lanes.
    const std::string end = "end of call";
    if (s.guard.kind == Operand::Kind::reg) {
      Statement over = s;
      over.opcode = "bra";
      over.guard.negate = !over.guard.negate;
      over.operands = {label_operand(end)};
      over.scope = scope_base;
      out_.statements.push_back(std::move(over));
    }
    std::vector<Statement> body = callee.statements;
    for (Statement& b : body) {
      rename(&b.guard);
      for (Operand& o : b.operands) rename(&o);
      b.scope += scope_base;
      if (b.opcode == "ret" || b.opcode == "ret.uni") {
        b.opcode = "bra";
        b.operands = {label_operand(end)};
      }
    }
    expand(std::move(body));
    Statement label;
    label.label = end;
    label.scope = scope_base;
    label.ptx_line = s.ptx_line;
    out_.statements.push_back(std::move(label));
  }

  static Operand label_operand(const std::string& name) {
    Operand o;
    o.kind = Operand::Kind::label;
    o.name = name;
    return o;
  }

  const Unit& unit_;
  FunctionText out_;
  std::vector<std::string> open_;
};

}  // namespace

FunctionText inline_calls(const Unit& unit, const FunctionText& entry) {
  return Inliner(unit, entry).run();
}

}  // namespace sim
