// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The decoder leads from parsed statements to Function::code. decode.cpp holds the frame,
// the other files here the families; flow/ has control flow, liveness and slots.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/ptx/code.h"
#include "sim/ptx/opcodes/opcodes.h"
#include "sim/ptx/parse/parser.h"
#include "sim/ptx/parse/unit.h"

namespace sim {

// A Ref is an operand before slots are given out.
struct Ref {
  enum class Kind : uint8_t { none, reg, constant, raw };  // raw: `value` as it is (predicates)
  Kind kind = Kind::none;
  uint32_t value = 0;
  uint8_t half = 0;  // of a .b128 register: 1 for the upper 64 bits
};

// A Draft is an instruction before slots are given out.
struct Draft {
  Inst inst;
  Ref d, a, b, c, e;          // e goes to Inst::aux
  std::vector<Ref> list;      // goes to Function::lists; Inst::aux is its index
  uint32_t list_results = 0;  // how many of the first in `list` are written
  std::string target;         // bra
  std::string table;          // brx
  int scope = 0;
};

struct VirtualRegister {
  uint8_t cells = 1;       // slots: 1, 2 for 64 bits, 4 for 128
  bool temporary = true;   // made by the decoder: written and read under one guard
  bool exclusive = false;  // named by a wgmma: keeps its slot from end to end
};

class Decoder {
 public:
  Decoder(const Unit& unit, const FunctionText& text, Function* out);
  void run();
  uint32_t live_registers() const { return live_registers_; }

 private:
  friend class Flow;

  void lay_out();
  void statement(const Statement& s);
  void by_shape(const Statement& s, const OpInfo& info);
  void lop3_predicate(const Statement& s);

  // move.cpp
  void mov(const Statement& s);
  void cvt(const Statement& s);
  void cvta(const Statement& s);
  void isspacep(const Statement& s);
  // memory.cpp
  void load(const Statement& s);
  void store(const Statement& s);
  void atomic(const Statement& s);
  void async_copy(const Statement& s);
  void address_only(const Statement& s);
  // async.cpp
  void asynchronous(const Statement& s);
  void mbarrier(const Statement& s, Draft* d);
  void bulk(const Statement& s, Draft* d);
  void tensor_copy(const Statement& s, Draft* d);
  void add_address(const Operand& o, Space space, Draft* d);
  Ref address(const Operand& o, Space space, Draft* d);
  bool constant_param(const Operand& o, uint32_t* offset, uint32_t* room);
  // wide.cpp
  void wide(const Statement& s);
  Ref half(const Operand& o, uint8_t which);
  // call.cpp
  void call(const Statement& s);
  void stack(const Statement& s);
  void lay_out_callees();
  uint32_t place_in_frame(const Declaration& d);
  Ref frame_address(uint32_t offset, int64_t addend, uint8_t bytes);
  // control.cpp
  void branch(const Statement& s);
  void warp_op(const Statement& s);
  void barrier(const Statement& s);
  void control(const Statement& s);
  // tensor.cpp
  void mma(const Statement& s);
  void matrix_access(const Statement& s);
  void move_matrix(const Statement& s);
  void wgmma(const Statement& s);
  void wmma_access(const Statement& s);
  void wmma(const Statement& s);
  void wgmma_order(const Statement& s);
  void mark_exclusive();
  void touch(const Draft& d);

  Draft draft(const Form& form, Kind kind = Kind::simple) const;
  void emit(Draft d, const Form& form, Class cls);
  // operand.cpp
  Ref source(const Operand& o, Type type, bool loose = false);
  Ref destination(const Operand& o, Type type, bool loose = false);
  Ref predicate(const Operand& o);
  Ref predicate_result(const Operand& o);
  Ref constant(uint64_t bits, uint8_t bytes);
  Ref symbol(const Operand& o, uint8_t bytes);
  uint16_t guard() const;
  Ref fresh(uint8_t cells);
  uint64_t literal(const Operand& o, Type type) const;
  unsigned register_bytes(const Operand& o) const;
  void count(const Statement& s, size_t low, size_t high) const;
  void finish_result(const Operand& o, Type type, Ref temporary);
  Ref narrow(Ref wide);
  void narrow_into(Ref to, Ref wide, Class cls);
  Ref widen(Ref value, Type type);
  void widen_into(Ref to, Ref value, Type type, bool guarded);
  bool is_kernel_param(int id) const;
  int64_t special_register(const std::string& name);
  [[noreturn]] void fail(const std::string& what) const;

  const Unit& unit_;
  const FunctionText& text_;
  Function& out_;
  const Statement* now_ = nullptr;
  Form form_;
  Class cls_ = Class::control;
  std::vector<Draft> drafts_;
  std::vector<VirtualRegister> registers_;
  std::vector<Ref> map_;  // text register -> Ref
  std::map<std::pair<int, std::string>, uint32_t> labels_;
  std::vector<uint32_t> offsets_;         // of the function's variables, in their space
  std::vector<uint32_t> module_offsets_;  // of module-level .shared variables
  std::map<std::pair<uint64_t, int>, uint32_t> literals_;
  uint32_t next_predicate_ = kPredFirst;
  uint32_t live_registers_ = 1;
};

// Replaces calls by the bodies they name. Throws PtxError for what cannot be replaced.
FunctionText inline_calls(const Unit& unit, const FunctionText& entry);

}  // namespace sim
