// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decodes wmma. Its handlers make the WmmaConfig from the form again.
#include "sim/ptx/wmma.h"

#include "sim/ptx/decode/decode.h"

namespace sim {

// wmma.load {d...}, [address]{, stride}; wmma.store [address], {s...}{, stride}. list: the
// registers, the stride.
void Decoder::wmma_access(const Statement& s) {
  count(s, 2, 3);
  WmmaConfig config;
  if (!wmma_config(form_, &config)) fail("unsupported shape, layout or type");
  const bool load = form_.op == Op::wmma_load;
  const WmmaMatrix matrix = config.moved();
  const Operand& registers = s.operands[load ? 0 : 1];
  if (registers.count() != matrix.registers) {
    fail(std::to_string(registers.count()) + " registers, expected " +
         std::to_string(matrix.registers));
  }
  Draft d = draft(form_, Kind::converge);
  const Type cell = matrix.register_bits() == 64 ? Type::b64 : Type::b32;
  for (unsigned i = 0; i < matrix.registers; ++i) {
    const Operand& o = registers.element(i);
    d.list.push_back(load ? destination(o, cell) : source(o, cell));
  }
  d.list_results = load ? matrix.registers : 0;
  const unsigned line = config.columns ? matrix.rows : matrix.cols;
  d.list.push_back(s.operands.size() == 3 ? source(s.operands[2], Type::b32) : constant(line, 4));
  d.a = address(s.operands[load ? 1 : 0], form_.space(), &d);
  d.c = constant(0xFFFFFFFFu, 4);
  d.inst.extra = out_.memory_ordinals++;
  emit(std::move(d), form_, cls_);
}

// list: D, A, B, C.
void Decoder::wmma(const Statement& s) {
  count(s, 4, 4);
  WmmaConfig config;
  if (!wmma_config(form_, &config)) fail("unsupported shape, layouts or types");
  Draft d = draft(form_, Kind::converge);
  const WmmaMatrix matrices[] = {config.accumulator(config.d), config.matrix_a(), config.matrix_b(),
                                 config.accumulator(config.c)};
  for (unsigned k = 0; k < 4; ++k) {
    const Operand& o = s.operands[k];
    const unsigned expected = matrices[k].registers;
    if (o.count() != expected) {
      fail("operand " + std::to_string(k + 1) + " has " + std::to_string(o.count()) +
           " registers, expected " + std::to_string(expected));
    }
    const Type cell = matrices[k].register_bits() == 64 ? Type::b64 : Type::b32;
    for (unsigned i = 0; i < expected; ++i) {
      d.list.push_back(k == 0 ? destination(o.element(i), cell) : source(o.element(i), cell));
    }
  }
  d.list_results = matrices[0].registers;
  d.c = constant(0xFFFFFFFFu, 4);
  emit(std::move(d), form_, cls_);
}

}  // namespace sim
