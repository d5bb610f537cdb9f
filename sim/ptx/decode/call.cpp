// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles calls that stay calls, what they pass, and the stack: frames, alloca, printf.
#include <algorithm>

#include "sim/ptx/decode/decode.h"

namespace sim {
namespace {

constexpr uint32_t kFrameAlign = 16;

}  // namespace

// Frames of callees: each begins at offset 0 of its own.
uint32_t Decoder::place_in_frame(const Declaration& d) {
  Callee& c = out_.callees[static_cast<size_t>(d.frame) - 1];
  c.frame_bytes = (c.frame_bytes + d.align - 1) / d.align * d.align;
  const uint32_t offset = c.frame_bytes;
  if (d.bytes > (1u << 28) || offset > (1u << 29) || d.align > kFrameAlign) {
    throw PtxError(d.line, "'" + d.name + "' is too large, or aligned to more than 16 bytes");
  }
  c.frame_bytes += static_cast<uint32_t>(d.bytes);
  return offset;
}

void Decoder::lay_out_callees() {
  for (size_t k = 0; k < text_.callees.size(); ++k) {
    const FunctionText::Callee& from = text_.callees[k];
    Callee& to = out_.callees[k];
    auto pieces = [&](const std::vector<int>& variables, std::vector<CallPiece>* out) {
      for (const int v : variables) {
        out->push_back({offsets_[v], static_cast<uint32_t>(text_.variables[v].bytes)});
      }
    };
    pieces(from.params, &to.params);
    pieces(from.returns, &to.returns);
    // Every call takes some of the stack, or recursion would never end.
    to.frame_bytes = std::max(kFrameAlign, (to.frame_bytes + kFrameAlign - 1) & ~(kFrameAlign - 1));
    for (size_t f = 0; f < unit_.functions.size(); ++f) {
      if (unit_.functions[f].name != from.name) continue;
      out_.callee_by_address[function_address(f)] = static_cast<uint32_t>(k);
    }
  }
  out_.uses_stack |= !out_.callees.empty();
}

// aux: the call's number; imm: the callee's number, or -1 if register a holds its address.
void Decoder::call(const Statement& s) {
  Draft d = draft(form_, Kind::call);
  CallSite site;
  const Operand* target = nullptr;
  for (const Operand& o : s.operands) {
    if (o.kind != Operand::Kind::vector) {
      if (!target) target = &o;
      continue;
    }
    for (const Operand& v : o.parts) {
      if (v.kind != Operand::Kind::symbol || v.id >= kModuleSymbol || is_kernel_param(v.id) ||
          text_.variables[v.id].space != Space::param) {
        fail("an argument is not a .param variable");
      }
      (target ? site.arguments : site.results)
          .push_back({offsets_[v.id], static_cast<uint32_t>(text_.variables[v.id].bytes)});
    }
  }
  d.inst.imm = -1;
  if (target->kind == Operand::Kind::reg) {
    d.a = source(*target, Type::u64);
  } else {
    for (size_t k = 0; k < text_.callees.size(); ++k) {
      if (text_.callees[k].name == target->name) d.inst.imm = static_cast<int64_t>(k);
    }
    const Callee& c = out_.callees.at(static_cast<size_t>(d.inst.imm));
    if (!same_sizes(site, c)) fail("arguments of another size than the function's parameters");
  }
  // Registers are put away across a call, and a product may still be on its way to them.
  if (out_.uses_wgmma) fail("a call that is not inlined, in a kernel with wgmma");
  site.frame = static_cast<uint32_t>(s.frame);
  d.inst.aux = static_cast<uint32_t>(out_.sites.size());
  out_.sites.push_back(std::move(site));
  out_.uses_stack = true;
  emit(std::move(d), form_, cls_);
}

void Decoder::stack(const Statement& s) {
  Form f = form_;
  if (f.op == Op::ret) return emit(draft(f, Kind::ret), f, cls_);
  if (f.op == Op::heap_malloc || f.op == Op::heap_free) {
    const bool takes = f.op == Op::heap_malloc;
    count(s, takes ? 2 : 1, takes ? 2 : 1);
    Draft d = draft(f, Kind::checked);
    if (takes) d.d = destination(s.operands[0], Type::b64);
    d.a = source(s.operands.back(), Type::b64);
    return emit(std::move(d), f, cls_);
  }
  if (f.op == Op::vprintf) {
    count(s, 3, 3);
    Draft d = draft(f, Kind::checked);
    d.d = destination(s.operands[0], Type::b32);
    d.a = source(s.operands[1], Type::b64);
    d.b = source(s.operands[2], Type::b64);
    return emit(std::move(d), f, cls_);
  }
  out_.uses_stack = true;
  const unsigned bytes = type_bytes(f.type());
  if (f.type() != Type::u32 && f.type() != Type::u64 && f.type() != Type::b32 &&
      f.type() != Type::b64) {
    fail("unsupported form");
  }
  Form wide = f;
  wide.types[0] = Type::u64;
  const bool restore = f.op == Op::stackrestore;
  count(s, f.op == Op::alloca_ ? 2 : 1, f.op == Op::alloca_ ? 3 : 1);
  Ref size;
  if (restore || f.op == Op::alloca_) {
    size = source(s.operands[restore ? 0 : 1], f.type());
    if (bytes == 4) size = widen(size, Type::u32);
  }
  Draft d = draft(wide, Kind::checked);
  d.a = size;
  d.inst.imm = 8;
  if (s.operands.size() == 3) d.inst.imm = static_cast<int64_t>(s.operands[2].bits);
  if (d.inst.imm <= 0 || (d.inst.imm & (d.inst.imm - 1)) || d.inst.imm > (1 << 20)) {
    fail("the alignment is not a power of two");
  }
  if (restore) return emit(std::move(d), wide, cls_);
  const Ref result = bytes == 4 ? fresh(2) : destination(s.operands[0], f.type());
  d.d = result;
  emit(std::move(d), wide, cls_);
  if (bytes == 8) return;
  narrow_into(destination(s.operands[0], f.type()), result, cls_);
}

// The address of a variable in the running function's frame.
Ref Decoder::frame_address(uint32_t offset, int64_t addend, uint8_t bytes) {
  const Form f = plain_form(Op::frame, Type::u64);
  Draft d = draft(f);
  d.d = fresh(2);
  d.inst.imm = static_cast<int64_t>(offset) + addend;
  const Ref r = d.d;
  emit(std::move(d), f, Class::pseudo);
  return bytes == 8 ? r : narrow(r);
}

}  // namespace sim
