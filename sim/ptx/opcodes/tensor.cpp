// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the words of mma, ldmatrix, stmatrix, movmatrix and wgmma, and which shapes and
// types exist.
#include "sim/ptx/opcodes/factors.h"
#include "sim/ptx/opcodes/opcodes.h"

namespace sim {
namespace {

constexpr OpInfo kTensorOps[] = {
    {"mma", Op::mma, Class::tensor, nullptr, 0},
    {"ldmatrix", Op::ldmatrix, Class::memory, nullptr, 0},
    {"stmatrix", Op::stmatrix, Class::memory, nullptr, 0},
    {"movmatrix", Op::movmatrix, Class::warp, nullptr, 0},
    {"wgmma.mma_async", Op::wgmma, Class::tensor, nullptr, 0},
    {"wgmma.fence", Op::wgmma_fence, Class::barrier, nullptr, 0},
    {"wgmma.commit_group", Op::wgmma_commit, Class::barrier, nullptr, 0},
    {"wgmma.wait_group", Op::wgmma_wait, Class::barrier, nullptr, 0},
    {"wmma.load", Op::wmma_load, Class::memory, nullptr, 0},
    {"wmma.store", Op::wmma_store, Class::memory, nullptr, 0},
    {"wmma.mma", Op::wmma_mma, Class::tensor, nullptr, 0},
};

constexpr Word<Type> kTypes[] = {{"f16", Type::f16},   {"bf16", Type::bf16}, {"tf32", Type::tf32},
                                 {"f32", Type::f32},   {"f64", Type::f64},   {"s32", Type::s32},
                                 {"s8", Type::s8},     {"u8", Type::u8},     {"s4", Type::s4},
                                 {"u4", Type::u4},     {"b1", Type::b1},     {"b16", Type::b16},
                                 {"e4m3", Type::e4m3}, {"e5m2", Type::e5m2}};

constexpr Word<uint32_t> kMods[] = {
    {"sync", kTensorSync},   {"aligned", kTensorAligned}, {"row", kTensorRow}, {"col", kTensorCol},
    {"trans", kTensorTrans}, {"satfinite", kTensorSat},   {"and", kTensorAnd}, {"xor", kTensorXor},
    {"popc", kTensorPopc},   {"x1", kTensorX1},           {"x2", kTensorX2},   {"x4", kTensorX4}};
constexpr Word<uint32_t> kParts[] = {
    {"a", kTensorPartA}, {"b", kTensorPartB}, {"c", kTensorPartC}, {"d", kTensorPartD}};

bool is_wmma(const Form& f) { return f.op >= Op::wmma_load && f.op <= Op::wmma_mma; }

// wmma.mma names two layouts, any of them, A's first.
uint32_t second_layout(const Form& f, uint32_t mod) {
  const bool second = f.op == Op::wmma_mma && (f.detail & (kTensorRow | kTensorCol));
  if (!second) return mod;
  return mod == kTensorRow ? kTensorSecondRow : mod == kTensorCol ? kTensorSecondCol : mod;
}

// "m16n8k16" or "m8n8".
bool shape(std::string_view w, Form* f) {
  size_t at = 0;
  auto number = [&](char letter, uint16_t* out) {
    if (at >= w.size() || w[at] != letter) return false;
    uint32_t value = 0;
    const size_t begin = ++at;
    while (at < w.size() && w[at] >= '0' && w[at] <= '9' && value < 4096) {
      value = value * 10 + static_cast<uint32_t>(w[at++] - '0');
    }
    *out = static_cast<uint16_t>(value);
    return at > begin;
  };
  if (f->m || !number('m', &f->m) || !number('n', &f->n)) return false;
  if (at == w.size()) return true;
  return number('k', &f->k) && at == w.size();
}

bool tensor_word(std::string_view w, Form* f) {
  if (Type t = Type::none; look_up(kTypes, w, &t)) {
    if (f->type_count == 4) return false;
    f->types[f->type_count++] = t;
    return true;
  }
  if (uint32_t mod = 0; is_wmma(*f) && look_up(kParts, w, &mod)) {
    if (f->detail & (kTensorPartA | kTensorPartB | kTensorPartC | kTensorPartD)) return false;
    f->detail |= mod;
    return true;
  }
  if (is_wmma(*f) && w == "global") {
    if (f->space_count) return false;
    f->spaces[f->space_count++] = Space::global;
    return true;
  }
  if (f->op == Op::wmma_mma && w == "rn") {
    f->round = Round::rn;
    return true;
  }
  if (uint32_t mod = 0; look_up(kMods, w, &mod)) {
    mod = second_layout(*f, mod);
    // The layouts keep their order: A by rows, B by columns.
    if (mod == kTensorRow && (f->detail & kTensorCol)) return false;
    if (f->detail & mod) return false;
    f->detail |= mod;
    return true;
  }
  if (w == "shared" || w == "shared::cta") {
    if (f->space_count) return false;
    f->spaces[f->space_count++] = Space::shared;
    return true;
  }
  return shape(w, f);
}

// Checks the modifiers that an instruction must have, and those it may have.
bool complete(const Form& f) {
  constexpr uint32_t kAlways = kTensorSync | kTensorAligned;
  uint32_t need = kAlways, may = 0;
  switch (f.op) {
    case Op::mma:
      need |= kTensorRow | kTensorCol;
      may = kTensorSat | kTensorAnd | kTensorXor | kTensorPopc;
      break;
    case Op::ldmatrix:
    case Op::stmatrix:
      may = kTensorTrans | kTensorX1 | kTensorX2 | kTensorX4;
      break;
    case Op::movmatrix:
      need |= kTensorTrans;
      break;
    case Op::wgmma:
      may = kTensorSat | kTensorAnd | kTensorPopc;
      break;
    case Op::wmma_load:
      may = kTensorRow | kTensorCol | kTensorPartA | kTensorPartB | kTensorPartC;
      break;
    case Op::wmma_store:
      need |= kTensorPartD;
      may = kTensorRow | kTensorCol;
      break;
    case Op::wmma_mma:
      may = kTensorRow | kTensorCol | kTensorSecondRow | kTensorSecondCol | kTensorSat |
            kTensorAnd | kTensorXor | kTensorPopc;
      break;
    default:
      break;
  }
  return (f.detail & need) == need && !(f.detail & ~(need | may));
}

// The depths k that mma has for a kind: with 8 rows of A, and with 16. 0: none.
struct Depths {
  Kin kin;
  unsigned small, large[3];
};
constexpr Depths kDepths[] = {{Kin::f16, 0, {8, 16, 0}},      {Kin::bf16, 0, {8, 16, 0}},
                              {Kin::tf32, 0, {4, 8, 0}},      {Kin::fp8, 0, {16, 32, 0}},
                              {Kin::int8, 16, {16, 32, 0}},   {Kin::int4, 32, {32, 64, 0}},
                              {Kin::bit, 128, {128, 256, 0}}, {Kin::f64, 4, {4, 8, 16}}};

bool factors(const Form& f, TensorConfig* out, Kin* kin) {
  const Factor first = factor_of(f.types[1]), second = factor_of(f.types[2]);
  out->a = first.element;
  out->b = second.element;
  *kin = first.kin;
  if (*kin == Kin::none || *kin != second.kin) return false;
  out->words = static_cast<uint8_t>(*kin == Kin::f64 ? f.k : f.k * element_bits(out->a) / 32);
  return sum_of(f.types[0], *kin, &out->sum);
}

bool mma_shape(const Form& f, Kin kin) {
  if (f.n != 8 || (f.m != 8 && f.m != 16)) return false;
  const unsigned k = f.k;
  for (const Depths& d : kDepths) {
    if (d.kin != kin || k == 0) continue;
    return f.m == 8 ? k == d.small : k == d.large[0] || k == d.large[1] || k == d.large[2];
  }
  return false;
}

}  // namespace

bool sum_of(Type t, Kin kin, Sum* out) {
  const bool integer = kin == Kin::int8 || kin == Kin::int4 || kin == Kin::bit;
  const bool half = kin == Kin::f16 || kin == Kin::fp8;
  *out = t == Type::s32   ? Sum::s32
         : t == Type::f64 ? Sum::f64
         : t == Type::f16 ? Sum::f16
                          : Sum::f32;
  if (t == Type::s32) return integer;
  if (t == Type::f64) return kin == Kin::f64;
  if (t == Type::f16) return half;
  return t == Type::f32 && !integer && kin != Kin::f64;
}

bool mma_config(const Form& f, TensorConfig* out) {
  Kin kin;
  if (f.type_count != 4 || f.types[0] != f.types[3]) return false;
  if (!factors(f, out, &kin) || !mma_shape(f, kin)) return false;
  out->rows = static_cast<uint8_t>(f.m);
  const bool logic = (f.detail & kTensorAnd) || (f.detail & kTensorXor);
  const bool both = (f.detail & kTensorAnd) && (f.detail & kTensorXor);
  if (both || logic != ((f.detail & kTensorPopc) != 0) || logic != (kin == Kin::bit)) return false;
  out->exclusive_or = (f.detail & kTensorXor) != 0;
  out->saturate = (f.detail & kTensorSat) != 0;
  return !out->saturate || kin == Kin::int8 || kin == Kin::int4;
}

bool wgmma_config(const Form& f, TensorConfig* out) {
  Kin kin;
  if (f.type_count != 3 || f.m != 64 || f.n == 0 || f.n > 256 || f.n % 8) return false;
  if (!factors(f, out, &kin) || kin == Kin::int4 || kin == Kin::f64) return false;
  if (out->words != 8) return false;  // 32 bytes of K, whatever the type
  const bool integer = out->sum == Sum::s32;
  if (integer && f.n > 32 && f.n % 16) return false;
  const bool bits = kin == Kin::bit;
  if (bits != ((f.detail & kTensorAnd) != 0) || bits != ((f.detail & kTensorPopc) != 0)) {
    return false;
  }
  out->saturate = (f.detail & kTensorSat) != 0;
  out->n = f.n;
  return !out->saturate || kin == Kin::int8;
}

bool parse_tensor(std::string_view opcode, Form* f, const OpInfo** info) {
  size_t at = opcode.find('.');
  std::string_view name = opcode.substr(0, at);
  if ((name == "wgmma" || name == "wmma") && at != std::string_view::npos) {
    at = opcode.find('.', at + 1);
    name = opcode.substr(0, at);
  }
  *info = nullptr;
  for (const OpInfo& known : kTensorOps) {
    if (name == known.name) *info = &known;
  }
  if (!*info) return false;
  f->op = (*info)->op;
  std::string_view rest = at == std::string_view::npos ? "" : opcode.substr(at);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find('.'));
    rest.remove_prefix(word.size());
    if (!tensor_word(word, f)) return false;
  }
  return complete(*f);
}

bool is_tensor(std::string_view opcode) {
  const std::string_view name = opcode.substr(0, opcode.find('.'));
  return name == "mma" || name == "ldmatrix" || name == "stmatrix" || name == "movmatrix" ||
         name == "wgmma" || name == "wmma";
}

}  // namespace sim
