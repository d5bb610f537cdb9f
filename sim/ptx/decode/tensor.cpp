// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decodes matrix instructions. They need every lane: their member mask is all ones.
#include "sim/ptx/tensor.h"

#include "sim/ptx/decode/decode.h"

namespace sim {

// list: D, A, B, C. imm: the packed TensorConfig.
void Decoder::mma(const Statement& s) {
  count(s, 4, 4);
  TensorConfig config;
  if (!mma_config(form_, &config)) fail("unsupported shape or types");
  Draft d = draft(form_, Kind::converge);
  const Type cell = config.sum == Sum::f64 ? Type::b64 : Type::b32;
  const unsigned sizes[] = {config.d_registers(), config.a_registers(), config.b_registers(),
                            config.d_registers()};
  for (unsigned k = 0; k < 4; ++k) {
    const Operand& o = s.operands[k];
    if (o.count() != sizes[k]) {
      fail("operand " + std::to_string(k + 1) + " has " + std::to_string(o.count()) +
           " registers, expected " + std::to_string(sizes[k]));
    }
    for (unsigned i = 0; i < sizes[k]; ++i) {
      d.list.push_back(k == 0 ? destination(o.element(i), cell) : source(o.element(i), cell));
    }
  }
  d.list_results = sizes[0];
  d.inst.imm = config.pack();
  d.c = constant(0xFFFFFFFFu, 4);
  emit(std::move(d), form_, cls_);
}

// ldmatrix {d...}, [address]; stmatrix [address], {s...}. list: the registers.
void Decoder::matrix_access(const Statement& s) {
  count(s, 2, 2);
  const bool load = form_.op == Op::ldmatrix;
  const unsigned n = form_.detail & kTensorX4   ? 4
                     : form_.detail & kTensorX2 ? 2
                     : form_.detail & kTensorX1 ? 1
                                                : 0;
  if (form_.m != 8 || form_.n != 8 || form_.k || !n || form_.type_count != 1 ||
      form_.type() != Type::b16) {
    fail("unsupported form");
  }
  const Operand& registers = s.operands[load ? 0 : 1];
  if (registers.kind != Operand::Kind::vector || registers.parts.size() != n) {
    fail("wrong number of registers");
  }
  Form f = form_;
  f.vector = static_cast<uint8_t>(n);
  Draft d = draft(f, Kind::converge);
  for (unsigned i = 0; i < n; ++i) {
    const Operand& o = registers.element(i);
    d.list.push_back(load ? destination(o, Type::b32) : source(o, Type::b32));
  }
  d.list_results = load ? n : 0;
  d.a = address(s.operands[load ? 1 : 0], f.space(), &d);
  d.c = constant(0xFFFFFFFFu, 4);
  d.inst.extra = out_.memory_ordinals++;
  emit(std::move(d), f, cls_);
}

void Decoder::move_matrix(const Statement& s) {
  count(s, 2, 2);
  if (form_.m != 8 || form_.n != 8 || form_.k || form_.type_count != 1 ||
      form_.type() != Type::b16) {
    fail("unsupported form");
  }
  Draft d = draft(form_, Kind::converge);
  d.d = destination(s.operands[0], Type::b32);
  d.a = source(s.operands[1], Type::b32);
  d.c = constant(0xFFFFFFFFu, 4);
  emit(std::move(d), form_, cls_);
}

// Registers that a wgmma names are read and written late, so nobody else may have their slots, and
// every other use of them is preceded by a `touch`.
void Decoder::mark_exclusive() {
  for (const Statement& s : text_.statements) {
    if (s.opcode.compare(0, 16, "wgmma.mma_async.") != 0) {
      out_.uses_wgmma |= s.opcode.compare(0, 6, "wgmma.") == 0;
      continue;
    }
    out_.uses_wgmma = true;
    for (size_t k = 0; k < 2 && k < s.operands.size(); ++k) {
      if (s.operands[k].kind != Operand::Kind::vector) continue;
      for (const Operand& o : s.operands[k].parts) {
        if (o.kind == Operand::Kind::reg && map_[o.id].kind == Ref::Kind::reg) {
          registers_[map_[o.id].value].exclusive = true;
        }
      }
    }
  }
  if (out_.uses_wgmma) out_.reads_undefined_registers = true;  // so that blocks start alike
}

// list: exclusive registers that `next` writes, imm of them, and those that it reads.
void Decoder::touch(const Draft& next) {
  std::vector<Ref> written, read;
  auto see = [&](const Ref& r, bool result) {
    if (r.kind != Ref::Kind::reg || !registers_[r.value].exclusive) return;
    (result ? written : read).push_back(r);
  };
  for (const Ref* r : {&next.a, &next.b, &next.c, &next.e}) see(*r, false);
  see(next.d, true);
  for (size_t k = 0; k < next.list.size(); ++k) see(next.list[k], k < next.list_results);
  if (written.empty() && read.empty()) return;
  Form f;
  f.op = Op::touch;
  Draft d = draft(f, Kind::checked);
  d.inst.imm = static_cast<int64_t>(written.size());
  d.inst.extra = static_cast<uint32_t>(written.size() + read.size());
  d.list = std::move(written);
  d.list.insert(d.list.end(), read.begin(), read.end());
  if (now_->guard.kind == Operand::Kind::reg) d.inst.guard = guard();
  emit(std::move(d), f, Class::pseudo);
}

// D, A or its descriptor, B's descriptor, scale-d{, imm-scale-a, imm-scale-b{, imm-trans-a}{,
// imm-trans-b}}. list: D, A, scale-d. a, b: descriptors. imm: the packed TensorConfig.
void Decoder::wgmma(const Statement& s) {
  TensorConfig config;
  if (!wgmma_config(form_, &config)) fail("unsupported shape or types");
  const auto& o = s.operands;
  if (o.size() < 4) fail(std::to_string(o.size()) + " operands");
  config.a_in_registers = o[1].kind == Operand::Kind::vector;
  const bool integer = config.sum == Sum::s32, wide = element_bits(config.a) == 16;
  const size_t transposes = integer || !wide ? 0 : config.a_in_registers ? 1 : 2;
  count(s, 4 + (integer ? 0 : 2 + transposes), 4 + (integer ? 0 : 2 + transposes));
  auto number = [&](const Operand& n) {
    if (n.kind != Operand::Kind::imm) fail("scales and transposes must be immediates");
    return static_cast<int64_t>(n.bits);
  };
  if (!integer) {
    const int64_t x = number(o[4]), y = number(o[5]);
    if ((x != 1 && x != -1) || (y != 1 && y != -1)) fail("a scale is neither 1 nor -1");
    config.negate = x != y;
    for (size_t k = 0; k < transposes; ++k) {
      const int64_t t = number(o[6 + k]);
      if (t != 0 && t != 1) fail("a transpose is neither 0 nor 1");
      (transposes == 2 && k == 0 ? config.transpose_a : config.transpose_b) = t == 1;
    }
  }
  Draft d = draft(form_, Kind::converge);
  auto registers = [&](const Operand& v, unsigned expected, bool result) {
    if (v.count() != expected || v.kind != Operand::Kind::vector) {
      fail(std::to_string(v.count()) + " registers, expected " + std::to_string(expected));
    }
    for (unsigned i = 0; i < expected; ++i) {
      if (v.element(i).kind != Operand::Kind::reg) fail("an operand is not a register");
      d.list.push_back(result ? destination(v.element(i), Type::b32)
                              : source(v.element(i), Type::b32));
    }
  };
  registers(o[0], config.d_registers(), true);
  d.list_results = config.d_registers();
  if (config.a_in_registers)
    registers(o[1], config.a_registers(), false);
  else
    d.a = source(o[1], Type::b64);
  d.b = source(o[2], Type::b64);
  d.list.push_back(predicate(o[3]));
  d.inst.imm = config.pack();
  d.c = constant(0xFFFFFFFFu, 4);
  emit(std::move(d), form_, cls_);
}

void Decoder::wgmma_order(const Statement& s) {
  const bool wait = form_.op == Op::wgmma_wait;
  count(s, wait ? 1 : 0, wait ? 1 : 0);
  Draft d = draft(form_, Kind::converge);
  if (wait) {
    if (s.operands[0].kind != Operand::Kind::imm) fail("the number of groups is not an immediate");
    d.inst.imm = static_cast<int64_t>(s.operands[0].bits);
  }
  d.c = constant(0xFFFFFFFFu, 4);
  emit(std::move(d), form_, cls_);
}

}  // namespace sim
