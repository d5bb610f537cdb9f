// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A kernel and the functions it calls become one text. Most calls are replaced by the body they
// name: parameters become variables in the thread's depot. Recursive calls, calls through registers
// and calls past a size limit stay calls; their functions are appended once, each with a frame of
// its own.
#include <functional>

#include "sim/ptx/decode.h"

namespace sim {
namespace {

constexpr size_t kMostStatements = 200'000;  // of a kernel, before calls stay calls
constexpr size_t kMostNesting = 40;          // of bodies in bodies
constexpr size_t kLargeBody = 4000;          // statements; the second such call stays a call

bool is_call(const Statement& s) {
  return s.opcode.compare(0, 4, "call") == 0 && (s.opcode.size() == 4 || s.opcode[4] == '.');
}

Operand label_operand(const std::string& name, int scope) {
  Operand o;
  o.kind = Operand::Kind::label;
  o.name = name;
  o.scope = scope;
  return o;
}

// call (returns), target, (arguments), prototype in any shortened form.
struct CallParts {
  const Operand* target = nullptr;
  std::vector<Operand> returns, arguments;

  explicit CallParts(const Statement& s) {
    for (const Operand& o : s.operands) {
      if (o.kind == Operand::Kind::vector) {
        (target ? arguments : returns) = o.parts;
      } else if (!target) {
        target = &o;
      }
    }
    if (!target) throw PtxError(s.ptx_line, "a call without a target");
  }
};

class Inliner {
 public:
  Inliner(const Unit& unit, FunctionText whole) : unit_(unit), out_(std::move(whole)) {}

  FunctionText run() {
    std::vector<Statement> statements = std::move(out_.statements);
    out_.statements.clear();
    expand(std::move(statements));
    for (size_t k = 0; k < out_.callees.size(); ++k) append(k);
    return std::move(out_);
  }

 private:
  void expand(std::vector<Statement> statements) {
    for (Statement& s : statements) {
      s.frame = frame_;
      if (is_call(s)) {
        call(s);
      } else {
        out_.statements.push_back(std::move(s));
      }
    }
  }

  void call(const Statement& s) {
    if (by_name_.empty()) {
      for (const FunctionText& f : unit_.functions) by_name_.emplace(f.name, &f);
    }
    const CallParts parts(s);
    if (parts.target->kind == Operand::Kind::reg) {
      for (const std::string& name : taken()) callee(name);
      return keep(s);
    }
    if (parts.target->kind != Operand::Kind::label) throw PtxError(s.ptx_line, "a bad call target");
    const std::string& name = parts.target->name;
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) {
      throw PtxError(s.ptx_line, "call of undefined function '" + name + "'");
    }
    const FunctionText& function = *found->second;
    if (function.entry) throw PtxError(s.ptx_line, "call of the kernel '" + name + "'");
    if (parts.returns.size() != function.returns.size() ||
        parts.arguments.size() != function.params.size()) {
      throw PtxError(s.ptx_line, "call of '" + name + "' with a wrong number of arguments");
    }
    if (!function.has_body) return external(s, name, parts);
    if (stays_call(function)) {
      callee(name);
      return keep(s);
    }
    open_.push_back(name);
    jump_over(s, [&] { splice(s, function, parts.returns, parts.arguments); });
    open_.pop_back();
  }

  bool stays_call(const FunctionText& f) {
    if (callee_numbers_.count(f.name)) return true;
    if (open_.size() >= kMostNesting || out_.statements.size() > kMostStatements) return true;
    if (f.statements.size() > kLargeBody && ++large_calls_[f.name] > 1) return true;
    for (const std::string& open : open_) {
      if (open == f.name) return true;
    }
    return false;
  }

  // Functions whose address is taken anywhere in the module.
  const std::vector<std::string>& taken() {
    if (taken_known_) return taken_;
    taken_known_ = true;
    std::map<std::string, bool> names;
    auto note = [&](const std::string& name) {
      const auto it = by_name_.find(name);
      if (it != by_name_.end() && it->second->has_body && !it->second->entry) names[name] = true;
    };
    for (const Declaration& d : unit_.variables) {
      for (const auto& p : d.pointers) note(p.symbol);
    }
    for (const FunctionText& f : unit_.functions) {
      for (const Statement& s : f.statements) {
        if (is_call(s)) continue;
        for (const Operand& o : s.operands) {
          if (o.kind == Operand::Kind::label) note(o.name);
        }
      }
    }
    for (const auto& [name, yes] : names) taken_.push_back(name);
    return taken_;
  }

  void callee(const std::string& name) {
    if (!callee_numbers_.emplace(name, out_.callees.size()).second) return;
    FunctionText::Callee c;
    c.name = name;
    out_.callees.push_back(std::move(c));
  }

  // Lanes whose guard is false jump over what `emit` emits.
  template <class F>
  void jump_over(const Statement& s, F emit) {
    if (s.guard.kind != Operand::Kind::reg) return emit();
    const int scope = new_scope();
    Statement over = s;
    over.opcode = "bra";
    over.guard.negate = !over.guard.negate;
    over.operands = {label_operand("after call", scope)};
    over.scope = scope;
    out_.statements.push_back(std::move(over));
    emit();
    add_label("after call", scope, s.ptx_line);
  }

  void keep(const Statement& s) {
    jump_over(s, [&] {
      Statement plain = s;
      plain.guard = Operand{};
      out_.statements.push_back(std::move(plain));
    });
  }

  int new_scope() {
    out_.scope_parents.push_back(-1);
    return static_cast<int>(out_.scope_parents.size()) - 1;
  }

  void add_label(const std::string& name, int scope, int line) {
    Statement label;
    label.label = name;
    label.scope = scope;
    label.ptx_line = line;
    label.frame = frame_;
    out_.statements.push_back(std::move(label));
  }

  Operand new_register(Type type) {
    Operand o;
    o.kind = Operand::Kind::reg;
    o.id = static_cast<int>(out_.registers.size());
    out_.registers.push_back({"a call's own", type});
    return o;
  }

  // What the device's library would do: vprintf and __assertfail. The values of their parameters
  // are loaded; the rest is an instruction of its own.
  void external(const Statement& s, const std::string& name, const CallParts& parts) {
    const bool assertion = name == "__assertfail";
    if (!assertion && name != "vprintf") {
      throw PtxError(s.ptx_line, "call of external function '" + name + "', which has no body");
    }
    Statement act = s;
    act.opcode = assertion ? "trap.assertion" : "vprintf";
    act.operands.clear();
    if (!assertion) act.operands.push_back(new_register(Type::b32));
    for (const Operand& o : parts.arguments) {
      if (o.kind != Operand::Kind::symbol || o.id >= kModuleSymbol) {
        throw PtxError(s.ptx_line, "an argument is not a .param variable");
      }
      const bool wide = out_.variables[o.id].bytes == 8;
      act.operands.push_back(new_register(wide ? Type::b64 : Type::b32));
      out_.statements.push_back(parameter(s, wide ? "ld.param.b64" : "ld.param.b32",
                                          {act.operands.back(), address_of(o)}));
    }
    const Operand result = act.operands.empty() ? Operand{} : act.operands[0];
    out_.statements.push_back(std::move(act));
    if (!assertion && !parts.returns.empty()) {
      out_.statements.push_back(
          parameter(s, "st.param.b32", {address_of(parts.returns[0]), result}));
    }
  }

  static Operand address_of(const Operand& variable) {
    Operand a;
    a.kind = Operand::Kind::address;
    a.parts.push_back(variable);
    return a;
  }

  static Statement parameter(const Statement& s, const char* opcode,
                             std::vector<Operand> operands) {
    Statement p = s;
    p.opcode = opcode;
    p.operands = std::move(operands);
    return p;
  }

  // Appends the body with names of its own; `variables` says where its variables went.
  void body(const Statement& s, const FunctionText& function, const std::vector<int>& variables,
            int register_base, int scope_base) {
    std::function<void(Operand*)> rename = [&](Operand* o) {
      if (o->kind == Operand::Kind::reg) o->id += register_base;
      if (o->kind == Operand::Kind::symbol && o->id < kModuleSymbol) o->id = variables[o->id];
      o->scope += scope_base;
      for (Operand& part : o->parts) rename(&part);
    };
    const std::string end = "end of call";
    std::vector<Statement> statements = function.statements;
    for (Statement& b : statements) {
      rename(&b.guard);
      for (Operand& o : b.operands) rename(&o);
      b.scope += scope_base;
      if (b.opcode == "ret" || b.opcode == "ret.uni") {
        b.opcode = "bra";
        b.operands = {label_operand(end, scope_base)};
      }
    }
    expand(std::move(statements));
    add_label(end, scope_base, s.ptx_line);
  }

  // Registers, variables, scopes and branch tables; returns where its variables went.
  std::vector<int> adopt(const FunctionText& function) {
    const int variable_base = static_cast<int>(out_.variables.size());
    const int scope_base = static_cast<int>(out_.scope_parents.size());
    out_.registers.insert(out_.registers.end(), function.registers.begin(),
                          function.registers.end());
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

  void splice(const Statement& s, const FunctionText& function, const std::vector<Operand>& returns,
              const std::vector<Operand>& arguments) {
    const int register_base = static_cast<int>(out_.registers.size());
    const int scope_base = static_cast<int>(out_.scope_parents.size());
    std::vector<int> variables = adopt(function);
    auto bind = [&](const std::vector<int>& formal, const std::vector<Operand>& actual) {
      for (size_t i = 0; i < formal.size(); ++i) {
        if (actual[i].kind != Operand::Kind::symbol) {
          throw PtxError(s.ptx_line, "an argument is not a .param variable");
        }
        variables[formal[i]] = actual[i].id;
      }
    };
    bind(function.returns, returns);
    bind(function.params, arguments);
    body(s, function, variables, register_base, scope_base);
  }

  // Function number k, after the kernel's own end.
  void append(size_t k) {
    const FunctionText& function = *by_name_.at(out_.callees[k].name);
    Statement edge;  // of a part of the text
    edge.ptx_line = function.line;
    edge.frame = frame_;
    edge.opcode = "exit";
    if (frame_ == 0) out_.statements.push_back(edge);
    frame_ = static_cast<int>(k) + 1;
    open_ = {function.name};
    const int register_base = static_cast<int>(out_.registers.size());
    const int scope_base = static_cast<int>(out_.scope_parents.size());
    const std::vector<int> variables = adopt(function);
    FunctionText::Callee& c = out_.callees[k];
    c.scope = scope_base;
    c.first_register = register_base;
    for (const int v : function.params) c.params.push_back(variables[v]);
    for (const int v : function.returns) c.returns.push_back(variables[v]);
    add_label("start of function", scope_base, function.line);
    body(edge, function, variables, register_base, scope_base);
    edge.frame = frame_;
    edge.opcode = "ret.callee";
    out_.statements.push_back(edge);
  }

  const Unit& unit_;
  FunctionText out_;
  std::map<std::string, const FunctionText*> by_name_;
  std::map<std::string, size_t> callee_numbers_;
  std::map<std::string, int> large_calls_;
  std::vector<std::string> taken_;
  bool taken_known_ = false;
  int frame_ = 0;  // 0: the kernel's; k: of callee k - 1
  std::vector<std::string> open_;
};

}  // namespace

FunctionText inline_calls(const Unit& unit, const FunctionText& entry) {
  return Inliner(unit, entry).run();
}

}  // namespace sim
