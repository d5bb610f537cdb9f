// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles operands: registers, constants, symbols, special registers, and the widths they
// may have.
#include <algorithm>
#include <cstring>

#include "sim/exec/warp.h"
#include "sim/ptx/decode/decode.h"

namespace sim {

Ref Decoder::fresh(uint8_t cells) {
  registers_.push_back({cells, true, false});
  return {Ref::Kind::reg, static_cast<uint32_t>(registers_.size() - 1)};
}

Ref Decoder::constant(uint64_t bits, uint8_t bytes) {
  if (bytes < 8) bits &= 0xFFFFFFFFu;
  const auto [it, fresh_one] =
      literals_.emplace(std::make_pair(bits, bytes), static_cast<uint32_t>(out_.constants.size()));
  if (fresh_one) {
    Constant c;
    c.bytes = bytes;
    c.value = bits;
    out_.constants.push_back(c);
  }
  return {Ref::Kind::constant, it->second};
}

// The address of a variable, known when the grid starts.
Ref Decoder::symbol(const Operand& o, uint8_t bytes) {
  const bool module = o.id >= kModuleSymbol;
  const Declaration& d = module ? unit_.variables[o.id - kModuleSymbol] : text_.variables[o.id];
  Constant c;
  c.bytes = bytes;
  c.value = static_cast<uint64_t>(o.offset);
  if (d.space == Space::shared) {
    c.base = d.external || d.bytes == 0 ? Constant::Base::dynamic_shared : Constant::Base::shared;
    c.value += module ? module_offsets_[o.id - kModuleSymbol] : offsets_[o.id];
  } else if (module) {
    c.base = Constant::Base::symbol;
    c.symbol = d.name;
  } else if (!is_kernel_param(o.id) && d.frame > 0) {
    return frame_address(offsets_[o.id], o.offset, bytes);
  } else {
    c.value += offsets_[o.id];  // an offset in the depot, or in the parameters
    if (is_kernel_param(o.id)) c.value += kKernelParams;
  }
  out_.constants.push_back(std::move(c));
  return {Ref::Kind::constant, static_cast<uint32_t>(out_.constants.size() - 1)};
}

bool Decoder::is_kernel_param(int id) const {
  return id < kModuleSymbol &&
         std::find(text_.params.begin(), text_.params.end(), id) != text_.params.end();
}

unsigned Decoder::register_bytes(const Operand& o) const {
  return type_bytes(text_.registers[o.id].type);
}

uint64_t Decoder::literal(const Operand& o, Type type) const {
  const unsigned bytes = type_bytes(type);
  if (type == Type::f64) {
    if (o.kind == Operand::Kind::real64) return o.bits;
    if (o.kind == Operand::Kind::real32) {
      float f;
      std::memcpy(&f, &o.bits, 4);
      const double wide = f;
      uint64_t bits;
      std::memcpy(&bits, &wide, 8);
      return bits;
    }
    fail("a floating-point operand needs a floating-point literal");
  }
  if (type == Type::f32) {
    if (o.kind == Operand::Kind::real32) return o.bits;
    if (o.kind == Operand::Kind::real64) {
      double wide;
      std::memcpy(&wide, &o.bits, 8);
      const auto f = static_cast<float>(wide);
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      return bits;
    }
    fail("a floating-point operand needs a floating-point literal");
  }
  uint64_t bits = o.bits;
  if (bytes < 8) bits &= (1ull << (8 * bytes)) - 1;
  return bits;
}

// A value of `type`. `loose`: the register may be wider (cvt, st).
Ref Decoder::source(const Operand& o, Type type, bool loose) {
  const unsigned bytes = type_bytes(type);
  const auto cell_bytes = static_cast<uint8_t>(bytes == 8 ? 8 : 4);
  switch (o.kind) {
    case Operand::Kind::imm:
    case Operand::Kind::real32:
    case Operand::Kind::real64:
      return constant(literal(o, type), cell_bytes);
    case Operand::Kind::symbol:
      return symbol(o, cell_bytes);
    case Operand::Kind::label:
      for (size_t f = 0; bytes == 8 && f < unit_.functions.size(); ++f) {
        if (unit_.functions[f].name == o.name) return constant(function_address(f), 8);
      }
      fail("undefined name '" + o.name + "'");
    case Operand::Kind::special: {
      const bool wide = o.name == "%clock64" || o.name == "%globaltimer" || o.name == "%gridid" ||
                        o.name == "%current_graph_exec";
      const Ref r = fresh(wide ? 2 : 1);
      Form f;
      f.op = Op::special;
      f.types[0] = wide ? Type::u64 : Type::u32;
      f.type_count = 1;
      Draft d = draft(f);
      d.d = r;
      d.inst.imm = special_register(o.name);
      emit(std::move(d), f, Class::pseudo);
      if (wide && bytes < 8) return narrow(r);
      if (!wide && bytes == 8) return widen(r, Type::u32);
      return r;
    }
    case Operand::Kind::reg: {
      const Type declared = text_.registers[o.id].type;
      if (declared == Type::pred) fail("predicate '" + o.name + "' where a value is expected");
      const unsigned have = register_bytes(o);
      if (have != bytes && !(loose && have > bytes) && !(bytes == 1 && have == 2)) {
        fail("operand '" + o.name + "' has " + std::to_string(8 * have) + " bits, expected " +
             std::to_string(8 * bytes));
      }
      if (have == 8 && bytes < 8) return narrow(map_[o.id]);
      return map_[o.id];
    }
    default:
      fail("bad source operand" + (o.name.empty() ? "" : " '" + o.name + "'"));
  }
}

Ref Decoder::narrow(Ref wide) {
  const Ref r = fresh(1);
  narrow_into(r, wide, Class::pseudo);
  return r;
}

void Decoder::narrow_into(Ref to, Ref wide, Class cls) {
  const Form f = plain_form(Op::narrow, Type::u32);
  Draft d = draft(f);
  d.a = wide;
  d.d = to;
  emit(std::move(d), f, cls);
}

Ref Decoder::widen(Ref value, Type type) {
  const Ref r = fresh(2);
  widen_into(r, value, type, false);
  return r;
}

void Decoder::widen_into(Ref to, Ref value, Type type, bool guarded) {
  const Form f = plain_form(Op::widen, type);
  Draft d = draft(f);
  d.a = value;
  d.d = to;
  if (guarded && now_->guard.kind == Operand::Kind::reg) {
    d.inst.guard = guard();
  }
  emit(std::move(d), f, Class::pseudo);
}

// Returns the place for a result of `type`. `loose`: a wider register extends it (ld, cvt); then a
// 64-bit register gets a temporary here and finish_result() widens it.
Ref Decoder::destination(const Operand& o, Type type, bool loose) {
  const unsigned bytes = type_bytes(type);
  if (o.kind == Operand::Kind::sink) return fresh(bytes == 8 ? 2 : 1);
  if (o.kind != Operand::Kind::reg) fail("the destination is not a register");
  if (text_.registers[o.id].type == Type::pred) {
    fail("predicate '" + o.name + "' as the destination of a value");
  }
  const unsigned have = register_bytes(o);
  if (have != bytes && !(loose && have > bytes) && !(bytes == 1 && have == 2)) {
    fail("destination '" + o.name + "' has " + std::to_string(8 * have) + " bits, expected " +
         std::to_string(8 * bytes));
  }
  if (have == 8 && bytes < 8) return fresh(1);
  return map_[o.id];
}

void Decoder::finish_result(const Operand& o, Type type, Ref temporary) {
  if (o.kind == Operand::Kind::reg && register_bytes(o) == 8 && type_bytes(type) < 8) {
    widen_into(map_[o.id], temporary, is_signed(type) ? Type::s32 : Type::u32, true);
  }
}

Ref Decoder::predicate(const Operand& o) {
  if (o.kind == Operand::Kind::imm) {
    return {Ref::Kind::raw,
            static_cast<uint32_t>((o.bits != 0) != o.negate ? kPredTrue : kPredFalse)};
  }
  if (o.kind != Operand::Kind::reg || text_.registers[o.id].type != Type::pred) {
    fail("expected a predicate" + (o.name.empty() ? "" : ", found '" + o.name + "'"));
  }
  const uint32_t negate = o.negate ? static_cast<uint32_t>(kPredNegate) : 0u;
  return {Ref::Kind::raw, map_[o.id].value | negate};
}

Ref Decoder::predicate_result(const Operand& o) {
  if (o.kind == Operand::Kind::sink) return {Ref::Kind::raw, next_predicate_++};
  if (o.negate) fail("a negated destination");
  return predicate(o);
}

}  // namespace sim
