// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes the text that takes the place of calls and is appended to a kernel.
#pragma once

#include <string>
#include <vector>

#include "sim/ptx/parse/parser.h"
#include "sim/ptx/parse/unit.h"

namespace sim {

Operand label_operand(const std::string& name, int scope);

// CallParts holds the parts of `call (returns), target, (arguments), prototype` in any shortened
// form.
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

class CallText {
 protected:
  explicit CallText(FunctionText whole) : out_(std::move(whole)) {}

  // Lanes whose guard is false jump over the statements that `emit` appends.
  template <class F>
  void jump_over(const Statement& s, F emit) {
    if (s.guard.kind != Operand::Kind::reg) return emit();
    const int scope = new_scope();
    jump(s, scope);
    emit();
    add_label("after call", scope, s.ptx_line);
  }
  int new_scope();
  void add_label(const std::string& name, int scope, int line);
  // Calls the device's library, which has no text: vprintf, malloc, free and __assertfail. The
  // values of their parameters are loaded; the rest is an instruction of its own.
  void external(const Statement& s, const std::string& name, const CallParts& parts);
  // Adopts registers, variables, scopes and branch tables of a function; returns where its
  // variables went.
  std::vector<int> adopt(const FunctionText& function);

  FunctionText out_;
  int frame_ = 0;  // 0: the kernel's; k: of callee k - 1

 private:
  void jump(const Statement& s, int scope);
  Operand new_register(Type type);
};

}  // namespace sim
