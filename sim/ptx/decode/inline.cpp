// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A kernel and the functions that it calls become one text. Most calls are replaced by the body
// they name: parameters become variables in the thread's depot. Recursive calls, calls through
// registers and calls past a size limit stay calls; their functions are appended once, each with a
// frame of its own.
#include <functional>

#include "sim/ptx/decode/call_text.h"
#include "sim/ptx/decode/decode.h"

namespace sim {
namespace {

constexpr size_t kMostStatements = 200'000;  // of a kernel, before calls stay calls
constexpr size_t kMostNesting = 40;          // of bodies in bodies
constexpr size_t kLargeBody = 4000;          // statements; the second such call stays a call

bool is_call(const Statement& s) {
  return s.opcode.compare(0, 4, "call") == 0 && (s.opcode.size() == 4 || s.opcode[4] == '.');
}

class Inliner : CallText {
 public:
  Inliner(const Unit& unit, FunctionText whole) : CallText(std::move(whole)), unit_(unit) {}

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

  void keep(const Statement& s) {
    jump_over(s, [&] {
      Statement plain = s;
      plain.guard = Operand{};
      out_.statements.push_back(std::move(plain));
    });
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
  std::map<std::string, const FunctionText*> by_name_;
  std::map<std::string, size_t> callee_numbers_;
  std::map<std::string, int> large_calls_;
  std::vector<std::string> taken_;
  bool taken_known_ = false;
  std::vector<std::string> open_;
};

}  // namespace

FunctionText inline_calls(const Unit& unit, const FunctionText& entry) {
  return Inliner(unit, entry).run();
}

}  // namespace sim
