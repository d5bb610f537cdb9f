// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file follows registers that nobody has written. Such a value may be moved and computed with,
// as compilers do where a path merges; it is a finding where it matters: as an address, in a store
// or another access to memory, as the condition of a branch or of such an instruction.
#include "sim/exec/grid_state.h"
#include "sim/ptx/tensor.h"

namespace sim {
namespace {

// A rule says what undefined sources do. `spread`: results are undefined too; `merge`: only where
// all sources are, since words are put together piece by piece; `matter`: a finding; `settle`:
// results count as defined, as lanes exchange values that not all of them use.
enum class Rule : uint8_t { spread, merge, matter, settle };

Rule rule_of(Op op) {
  if (op >= Op::mbarrier_init && op <= Op::tensormap_copy) return Rule::matter;
  switch (op) {
    case Op::ld:
    case Op::st:
    case Op::cp_async:
    case Op::atom:
    case Op::red:
    case Op::bar:
    case Op::bra:
    case Op::brx:
    case Op::exit:
    case Op::ret:
    case Op::trap:
    case Op::alloca_:
    case Op::vprintf:
    case Op::heap_malloc:
    case Op::heap_free:
    case Op::setmaxnreg:
    case Op::ldmatrix:
    case Op::stmatrix:
    case Op::wgmma:
    case Op::wmma_load:
    case Op::wmma_store:
      return Rule::matter;
    case Op::shfl:
    case Op::vote:
    case Op::match:
    case Op::redux:
    case Op::activemask:
    case Op::elect:
    case Op::movmatrix:
    case Op::touch:
    case Op::frame:
      return Rule::settle;
    case Op::pack:
    case Op::prmt:
    case Op::bfi:
    case Op::shf:
    case Op::slct:
      return Rule::merge;
    default:
      return Rule::spread;
  }
}

struct Uses {
  const RegisterUse *begin, *end;
};

Uses uses_of(const Warp& w, const Inst& in) {
  const Function& f = *w.function;
  const auto pc = static_cast<size_t>(&in - f.code_data);
  return {f.uses.data() + f.use_start[pc], f.uses.data() + f.use_start[pc + 1]};
}

uint32_t value_of(const Warp& w, uint16_t p) {
  return w.preds[p & ~kPredNegate] ^ (p & kPredNegate ? ~0u : 0u);
}

// Returns the lanes in which the results are undefined, or in which the sources are.
uint32_t undefined_lanes(const Warp& w, const Inst& in, Op op, Rule rule) {
  uint32_t any = 0, all = ~0u, by_place[3] = {0, 0, 0}, sources = 0, first = 0;
  bool same = true;
  const Uses uses = uses_of(w, in);
  for (const RegisterUse* u = uses.begin; u < uses.end; ++u) {
    if (u->kind != RegisterUse::Kind::source) continue;
    const uint32_t lanes = w.undefined[u->number];
    any |= lanes;
    all &= lanes;
    if (u->place < 3) by_place[u->place] |= lanes;
    if (sources++ == 0) first = u->number;
    same &= first == u->number;
  }
  if (sources == 0) return 0;
  // x - x and x ^ x do not depend on x.
  if ((op == Op::xor_ || op == Op::sub) && sources == 2 && same) return 0;
  if (op == Op::selp) {
    const uint32_t p = value_of(w, in.c);
    return by_place[2] | (p & by_place[0]) | (~p & by_place[1]);
  }
  return rule == Rule::merge ? all : any;
}

// Accumulators that scale-d ignores are written whatever they were.
uint32_t kept_accumulators(const Warp& w, const Inst& in) {
  const TensorConfig c = TensorConfig::unpack(in.imm);
  const uint16_t* list = w.function->list_data + in.aux;
  return value_of(w, list[c.d_registers() + (c.a_in_registers ? c.a_registers() : 0)]);
}

void tell(Warp& w, const Inst& in, uint32_t lanes, const char* what) {
  const std::string text = std::string(what) + " of " + lanes_text(lanes) + " of warp " +
                           std::to_string(w.index) +
                           " is not defined: it comes from a register that nothing was written to";
  report_text(w, in, Fault::undefined_register, static_cast<unsigned>(__builtin_ctz(lanes)), 0, 0,
              text.c_str());
}

}  // namespace

void watch_registers(Warp& w, const Inst& in, uint32_t mask, uint32_t exec) {
  const Op op = w.function->infos[in.info].form.op;
  const Rule rule = rule_of(op);
  const uint32_t guard = w.undefined[w.function->virtual_registers + (in.guard & ~kPredNegate)];
  if (rule == Rule::matter && (guard & mask)) tell(w, in, guard & mask, "the condition");
  uint32_t bad = rule == Rule::settle ? 0 : undefined_lanes(w, in, op, rule) & exec;
  if (rule == Rule::matter) {
    if (bad) tell(w, in, bad, "an operand");
    bad = 0;
  }
  // If the condition is not known, it is not known either whether a lane wrote it.
  const uint32_t unsure = rule == Rule::spread || rule == Rule::merge ? guard & mask : 0;
  const uint32_t kept = op == Op::wgmma ? kept_accumulators(w, in) : 0;
  const Uses uses = uses_of(w, in);
  for (const RegisterUse* u = uses.begin; u < uses.end; ++u) {
    if (u->kind != RegisterUse::Kind::result) continue;
    uint32_t& lanes = w.undefined[u->number];
    lanes = (lanes & (~exec | kept)) | bad | unsure;
  }
}

}  // namespace sim
