// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the frame: storage, drafts, and instructions whose operands follow a shape.
#include "sim/ptx/decode/decode.h"

#include <algorithm>

#include "sim/exec/warp.h"

namespace sim {
namespace {

// The type of twice the size is the next one of the enumeration.
Type wide_type(Type t) {
  const bool known = t == Type::u16 || t == Type::s16 || t == Type::u32 || t == Type::s32;
  return known ? static_cast<Type>(static_cast<int>(t) + 1) : Type::none;
}

// Returns the value that set writes for true; 0 for types that make the instruction fail to decode.
int64_t truth(Type t) {
  if (t == Type::u32 || t == Type::s32) return 0xFFFFFFFF;
  if (t == Type::u16 || t == Type::s16) return 0xFFFF;
  if (t == Type::f32) return 0x3F800000;
  if (t == Type::f16 || t == Type::f16x2) return 0x3C00;
  return t == Type::bf16 || t == Type::bf16x2 ? 0x3F80 : 0;
}

Class refine(Class cls, const Form& f) {
  if (cls != Class::integer && cls != Class::floating) return cls;
  if (is_half(f.type())) return Class::half;
  const bool real = f.type() == Type::f32 || f.type() == Type::f64;
  if (real && f.op == Op::div) return Class::math;
  return real ? Class::floating : Class::integer;
}

}  // namespace

Decoder::Decoder(const Unit& unit, const FunctionText& text, Function* out)
    : unit_(unit), text_(text), out_(*out) {}

void Decoder::fail(const std::string& what) const {
  const std::string in = now_ && !now_->opcode.empty() ? " in '" + now_->opcode + "'" : "";
  throw PtxError(now_ ? now_->ptx_line : text_.line, what + in);
}

void Decoder::run() {
  lay_out();
  out_.files = unit_.files;
  for (const RegisterDecl& r : text_.registers) {
    if (r.type == Type::pred) {
      map_.push_back({Ref::Kind::raw, next_predicate_++});
    } else {
      const unsigned bytes = type_bytes(r.type);
      map_.push_back(fresh(bytes == 16 ? 4 : bytes == 8 ? 2 : 1));
      registers_.back().temporary = false;
    }
  }
  mark_exclusive();
  for (const Statement& s : text_.statements) {
    now_ = &s;
    if (!s.label.empty()) {
      if (!labels_.emplace(std::make_pair(s.scope, s.label), drafts_.size()).second) {
        fail("label '" + s.label + "' is defined twice");
      }
      continue;
    }
    statement(s);
  }
  Form end;
  end.op = Op::exit;
  emit(draft(end, Kind::exit), end, Class::pseudo);
  if (next_predicate_ >= kPredNegate) fail("too many predicate registers");
  out_.predicates = next_predicate_;
}

// Offsets of .shared and .local variables. Module-level .shared variables come first.
void Decoder::lay_out() {
  uint32_t shared = 0, local = 0;
  auto place = [](uint32_t* at, const Declaration& d) {
    if (d.bytes > (1u << 28)) throw PtxError(d.line, "'" + d.name + "' is too large");
    if (*at > (1u << 29)) throw PtxError(d.line, "the variables are too large");
    *at = (*at + d.align - 1) / d.align * d.align;
    const uint32_t offset = *at;
    *at += static_cast<uint32_t>(d.bytes);
    return offset;
  };
  auto shared_variable = [&](const Declaration& d) {
    out_.shared_align = std::max(out_.shared_align, d.align);
    if (d.external || d.bytes == 0) {
      out_.dynamic_align = std::max(out_.dynamic_align, d.align);
      return 0u;
    }
    return place(&shared, d);
  };
  for (const Declaration& d : unit_.variables) {
    module_offsets_.push_back(d.space == Space::shared ? shared_variable(d) : 0);
  }
  uint32_t param = 0;
  out_.callees.resize(text_.callees.size());
  for (size_t i = 0; i < text_.variables.size(); ++i) {
    const Declaration& d = text_.variables[i];
    const bool own = std::find(text_.params.begin(), text_.params.end(), static_cast<int>(i)) !=
                     text_.params.end();
    if (d.space == Space::shared)
      offsets_.push_back(shared_variable(d));
    else if (d.space == Space::param && own)
      offsets_.push_back(place(&param, d));
    else if (d.frame > 0)
      offsets_.push_back(place_in_frame(d));
    else
      offsets_.push_back(place(&local, d));
  }
  out_.static_shared = shared;
  out_.local_bytes = (local + 15) / 16 * 16;
  lay_out_callees();
}

Draft Decoder::draft(const Form& form, Kind kind) const {
  Draft d;
  d.inst.kind = kind;
  d.inst.fn = isa().resolve(form);
  d.scope = now_ ? now_->scope : 0;
  return d;
}

void Decoder::emit(Draft d, const Form& form, Class cls) {
  if (out_.uses_wgmma && form.op != Op::wgmma && form.op != Op::touch) touch(d);
  const bool needs_handler =
      d.inst.kind == Kind::simple || d.inst.kind == Kind::checked || d.inst.kind == Kind::converge;
  if (needs_handler && !d.inst.fn) fail("unsupported form");
  const bool pseudo = cls == Class::pseudo;
  d.inst.counted = !pseudo;
  if (!pseudo && now_->guard.kind == Operand::Kind::reg) {
    d.inst.guard = guard();
  }
  out_.ordered_across_blocks |= depends_on_blocks(form);
  out_.tells_dependents |= form.op == Op::griddepcontrol && form.has(kLaunchDependents);
  InstInfo info;
  info.cls = refine(cls, form);
  info.form = form;
  if (now_) {
    info.ptx_line = now_->ptx_line;
    info.file = now_->source.file;
    info.line = now_->source.line;
    info.text = now_->opcode;
    if (form.op == Op::trap) info.arguments = static_cast<uint8_t>(d.list.size());
  }
  d.inst.info = static_cast<uint32_t>(out_.infos.size());
  out_.infos.push_back(std::move(info));
  drafts_.push_back(std::move(d));
}

uint16_t Decoder::guard() const {
  return static_cast<uint16_t>(map_[now_->guard.id].value | (now_->guard.negate ? kPredNegate : 0));
}

void Decoder::count(const Statement& s, size_t low, size_t high) const {
  if (s.operands.size() < low || s.operands.size() > high) {
    fail(std::to_string(s.operands.size()) + " operands");
  }
}

void Decoder::by_shape(const Statement& s, const OpInfo& info) {
  const std::string shape = info.shape;
  const size_t optional = shape.find('?');
  const size_t full = shape.size() - (optional == std::string::npos ? 0 : 1);
  if (form_.op == Op::lop3 && form_.combine != Bool::none) return lop3_predicate(s);
  count(s, optional == std::string::npos ? full : optional, full);
  if (form_.type_count == 0) fail("no type");
  Draft d = draft(form_);
  Ref* const places[] = {&d.d, &d.a, &d.b, &d.c, &d.e};
  size_t k = 0;
  for (const char letter : shape) {
    if (letter == '?') continue;
    if (k >= s.operands.size()) break;
    const Operand& o = s.operands[k];
    Type type = letter == 'u' ? form_.last_type() : letter == 't' ? form_.type() : Type::b32;
    const bool ends = k == 0 || (k == 3 && form_.op == Op::mad);
    if (letter == 't' && ends && form_.has(kWide)) {
      type = wide_type(form_.type());
      if (type == Type::none) fail("unsupported form");
    }
    if (letter == 'k') {
      d.inst.imm = static_cast<int64_t>(o.bits);
      if (o.kind != Operand::Kind::imm) fail("the last operand must be an immediate");
    } else if (letter == 'q') {
      const bool pair = o.kind == Operand::Kind::pair;
      d.d = predicate_result(pair ? o.parts[0] : o);
      d.e = pair ? predicate_result(o.parts[1]) : Ref{Ref::Kind::raw, kNoSlot};
      if (pair) form_.vector = 2;
      d.inst.fn = isa().resolve(form_);
      d.inst.imm = form_.op == Op::testp ? static_cast<int64_t>(form_.testp)
                                         : static_cast<int64_t>(form_.combine);
    } else if (letter == 'p') {
      *places[k] = predicate(o);
    } else if (form_.type() == Type::pred) {
      *places[k] = k == 0 ? predicate_result(o) : predicate(o);
    } else {
      *places[k] = k == 0 ? destination(o, type) : source(o, type);
    }
    ++k;
  }
  if (form_.op == Op::set) {
    d.inst.imm = truth(form_.type());
    if (d.inst.imm == 0) fail("unsupported form");
  }
  const bool combines = form_.op == Op::setp || form_.op == Op::set;
  if (combines && d.c.kind == Ref::Kind::none) d.c = {Ref::Kind::raw, kPredTrue};
  emit(std::move(d), form_, info.cls);
}

void Decoder::statement(const Statement& s) {
  const OpInfo* info = nullptr;
  std::string error;
  if (!parse_form(s.opcode, &form_, &info, &error)) throw PtxError(s.ptx_line, error);
  cls_ = info->cls;
  const auto between = [&](Op first, Op last) { return form_.op >= first && form_.op <= last; };
  if (between(Op::mbarrier_init, Op::setmaxnreg)) return asynchronous(s);
  if (form_.type() == Type::b128) return wide(s);
  if (info->shape) return by_shape(s, *info);
  if (between(Op::cp_async, Op::cp_wait)) return async_copy(s);
  if (between(Op::atom, Op::red)) return atomic(s);
  if (form_.op == Op::prefetch || between(Op::discard, Op::createpolicy)) return address_only(s);
  if (form_.op == Op::bar_warp || between(Op::shfl, Op::elect)) return warp_op(s);
  if (between(Op::bra, Op::brx)) return branch(s);
  if (between(Op::ldmatrix, Op::stmatrix)) return matrix_access(s);
  if (between(Op::wgmma_fence, Op::wgmma_wait)) return wgmma_order(s);
  static constexpr struct {
    Op op;
    void (Decoder::*decode)(const Statement&);
  } kDecoders[] = {{Op::mov, &Decoder::mov},
                   {Op::cvt, &Decoder::cvt},
                   {Op::cvta, &Decoder::cvta},
                   {Op::isspacep, &Decoder::isspacep},
                   {Op::ld, &Decoder::load},
                   {Op::st, &Decoder::store},
                   {Op::bar, &Decoder::barrier},
                   {Op::mma, &Decoder::mma},
                   {Op::movmatrix, &Decoder::move_matrix},
                   {Op::wgmma, &Decoder::wgmma},
                   {Op::wmma_load, &Decoder::wmma_access},
                   {Op::wmma_store, &Decoder::wmma_access},
                   {Op::wmma_mma, &Decoder::wmma}};
  for (const auto& each : kDecoders) {
    if (each.op == form_.op) return (this->*each.decode)(s);
  }
  control(s);
}

}  // namespace sim
