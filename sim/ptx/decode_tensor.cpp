// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Decoding of matrix instructions. They need every lane: their member mask is all ones.
#include "sim/ptx/decode.h"
#include "sim/ptx/tensor.h"

namespace sim {
namespace {

unsigned element_count(const Operand& o) {
  return o.kind == Operand::Kind::vector ? static_cast<unsigned>(o.parts.size()) : 1u;
}

const Operand& element(const Operand& o, unsigned i) {
  return o.kind == Operand::Kind::vector ? o.parts[i] : o;
}

}  // namespace

void Decoder::tensor(const Statement& s) {
  switch (form_.op) {
    case Op::mma:
      return mma(s);
    case Op::movmatrix:
      return move_matrix(s);
    default:
      return matrix_access(s);
  }
}

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
    if (element_count(o) != sizes[k]) {
      fail("operand " + std::to_string(k + 1) + " has " + std::to_string(element_count(o)) +
           " registers, expected " + std::to_string(sizes[k]));
    }
    for (unsigned i = 0; i < sizes[k]; ++i) {
      d.list.push_back(k == 0 ? destination(element(o, i), cell) : source(element(o, i), cell));
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
  if (element_count(registers) != n) fail("wrong number of registers");
  Form f = form_;
  f.vector = static_cast<uint8_t>(n);
  Draft d = draft(f, Kind::converge);
  for (unsigned i = 0; i < n; ++i) {
    const Operand& o = element(registers, i);
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

}  // namespace sim
