// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The words of mma, ldmatrix, stmatrix, movmatrix and wgmma, and which shapes and types exist.
#include <unordered_map>

#include "sim/ptx/opcodes.h"
#include "sim/ptx/tensor.h"

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
};

Type tensor_type(std::string_view w) {
  static const std::unordered_map<std::string_view, Type> kNames = {
      {"f16", Type::f16},   {"bf16", Type::bf16}, {"tf32", Type::tf32}, {"f32", Type::f32},
      {"f64", Type::f64},   {"s32", Type::s32},   {"s8", Type::s8},     {"u8", Type::u8},
      {"s4", Type::s4},     {"u4", Type::u4},     {"b1", Type::b1},     {"b16", Type::b16},
      {"e4m3", Type::e4m3}, {"e5m2", Type::e5m2}};
  const auto it = kNames.find(w);
  return it == kNames.end() ? Type::none : it->second;
}

uint32_t tensor_mod(std::string_view w) {
  static const std::unordered_map<std::string_view, uint32_t> kNames = {
      {"sync", kTensorSync}, {"aligned", kTensorAligned}, {"row", kTensorRow},
      {"col", kTensorCol},   {"trans", kTensorTrans},     {"satfinite", kTensorSat},
      {"and", kTensorAnd},   {"xor", kTensorXor},         {"popc", kTensorPopc},
      {"x1", kTensorX1},     {"x2", kTensorX2},           {"x4", kTensorX4}};
  const auto it = kNames.find(w);
  return it == kNames.end() ? 0 : it->second;
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
  if (const Type t = tensor_type(w); t != Type::none) {
    if (f->type_count == 4) return false;
    f->types[f->type_count++] = t;
    return true;
  }
  if (const uint32_t mod = tensor_mod(w)) {
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

// The modifiers that an instruction must have, and those it may have.
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
    default:
      break;
  }
  return (f.detail & need) == need && !(f.detail & ~(need | may));
}

Element element_of(Type t) {
  switch (t) {
    case Type::f16:
      return Element::f16;
    case Type::bf16:
      return Element::bf16;
    case Type::tf32:
      return Element::tf32;
    case Type::e4m3:
      return Element::e4m3;
    case Type::e5m2:
      return Element::e5m2;
    case Type::s8:
      return Element::s8;
    case Type::u8:
      return Element::u8;
    case Type::s4:
      return Element::s4;
    case Type::u4:
      return Element::u4;
    case Type::b1:
      return Element::b1;
    case Type::f64:
      return Element::f64;
    default:
      return Element::none;
  }
}

// Types that may stand together have one kind.
enum class Kin : uint8_t { f16, bf16, tf32, fp8, int8, int4, bit, f64, none };
Kin kin_of(Element e) {
  switch (e) {
    case Element::f16:
      return Kin::f16;
    case Element::bf16:
      return Kin::bf16;
    case Element::tf32:
      return Kin::tf32;
    case Element::e4m3:
    case Element::e5m2:
      return Kin::fp8;
    case Element::s8:
    case Element::u8:
      return Kin::int8;
    case Element::s4:
    case Element::u4:
      return Kin::int4;
    case Element::b1:
      return Kin::bit;
    case Element::f64:
      return Kin::f64;
    default:
      return Kin::none;
  }
}

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

bool factors(const Form& f, TensorConfig* out, Kin* kin) {
  out->a = element_of(f.types[1]);
  out->b = element_of(f.types[2]);
  *kin = kin_of(out->a);
  if (*kin == Kin::none || *kin != kin_of(out->b)) return false;
  out->words = static_cast<uint8_t>(*kin == Kin::f64 ? f.k : f.k * element_bits(out->a) / 32);
  return sum_of(f.types[0], *kin, &out->sum);
}

bool mma_shape(const Form& f, Kin kin) {
  if (f.n != 8 || (f.m != 8 && f.m != 16)) return false;
  const unsigned k = f.k;
  const bool small = f.m == 8;
  switch (kin) {
    case Kin::f16:
    case Kin::bf16:
      return !small && (k == 8 || k == 16);
    case Kin::tf32:
      return !small && (k == 4 || k == 8);
    case Kin::fp8:
      return !small && (k == 16 || k == 32);
    case Kin::int8:
      return small ? k == 16 : k == 16 || k == 32;
    case Kin::int4:
      return small ? k == 32 : k == 32 || k == 64;
    case Kin::bit:
      return small ? k == 128 : k == 128 || k == 256;
    case Kin::f64:
      return small ? k == 4 : k == 4 || k == 8 || k == 16;
    default:
      return false;
  }
}

}  // namespace

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
  if (name == "wgmma" && at != std::string_view::npos) {
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
         name == "wgmma";
}

}  // namespace sim
