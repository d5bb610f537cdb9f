// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the words of an opcode, and how they make a form.
#include "sim/ptx/opcodes/opcodes.h"

#include <unordered_map>

#include "sim/ptx/parse/parser.h"

namespace sim {
namespace {

bool mod_name(std::string_view w, uint64_t* out) {
  static const std::unordered_map<std::string_view, uint64_t> kNames = {
      {"ftz", kFtz},
      {"sat", kSat},
      {"relu", kRelu},
      {"NaN", kNanMod},
      {"xorsign", kXorsign},
      {"approx", kApprox},
      {"full", kFull},
      {"hi", kHi},
      {"lo", kLo},
      {"wide", kWide},
      {"cc", kCc},
      {"shiftamt", kShiftamt},
      {"l", kLeft},
      {"r", kRight},
      {"wrap", kWrap},
      {"clamp", kClamp},
      {"to", kTo},
      {"sync", kSync},
      {"arrive", kArrive},
      {"red", kRed},
      {"aligned", kAligned},
      {"uni", kUni},
      {"up", kUp},
      {"down", kDown},
      {"bfly", kBfly},
      {"idx", kIdx},
      {"all", kAll},
      {"any", kAny},
      {"ballot", kBallot},
      {"volatile", kVolatile},
      {"relaxed", kRelaxed},
      {"acquire", kAcquire},
      {"release", kRelease},
      {"acq_rel", kAcqRel},
      {"sc", kSc},
      {"nc", kNc},
      {"L2::cache_hint", kCacheHint},
      {"ca", kCache},
      {"cg", kCache},
      {"cs", kCache},
      {"lu", kCache},
      {"cv", kCache},
      {"wb", kCache},
      {"wt", kCache},
      {"L1", kCache},
      {"L2", kCache},
      {"cta", kScope},
      {"cluster", kScope},
      {"gpu", kScope},
      {"gl", kScope},
      {"sys", kScope},
      {"satfinite", kSatfinite},
      {"noftz", kNoftz},
      {"popc", kPopc},
      {"weak", kWeak},
      {"pack", kPackMod},
      {"fractional", kFractional},
      {"mmio", kMmio},
      {"unified", kUnified},
      {"launch_dependents", kLaunchDependents},
      {"wait", kWaitMod}};
  const auto it = kNames.find(w);
  if (it == kNames.end()) return false;
  *out = it->second;
  return true;
}

constexpr Word<Round> kRounds[] = {{"rn", Round::rn},   {"rz", Round::rz},   {"rm", Round::rm},
                                   {"rp", Round::rp},   {"rna", Round::rna}, {"rni", Round::rni},
                                   {"rzi", Round::rzi}, {"rmi", Round::rmi}, {"rpi", Round::rpi}};
constexpr Word<Compare> kCompares[] = {
    {"eq", Compare::eq},   {"ne", Compare::ne},   {"lt", Compare::lt},   {"le", Compare::le},
    {"gt", Compare::gt},   {"ge", Compare::ge},   {"lo", Compare::lo},   {"ls", Compare::ls},
    {"hi", Compare::hi},   {"hs", Compare::hs},   {"equ", Compare::equ}, {"neu", Compare::neu},
    {"ltu", Compare::ltu}, {"leu", Compare::leu}, {"gtu", Compare::gtu}, {"geu", Compare::geu},
    {"num", Compare::num}, {"nan", Compare::nan}};
constexpr Word<Bool> kBools[] = {{"and", Bool::and_}, {"or", Bool::or_}, {"xor", Bool::xor_}};
constexpr Word<Space> kSpaces[] = {
    {"global", Space::global},      {"shared", Space::shared},
    {"shared::cta", Space::shared}, {"shared::cluster", Space::cluster},
    {"local", Space::local},        {"const", Space::constant},
    {"param", Space::param},        {"param::entry", Space::param},
    {"param::func", Space::param}};
constexpr Word<Prmt> kPrmts[] = {{"f4e", Prmt::f4e}, {"b4e", Prmt::b4e}, {"rc8", Prmt::rc8},
                                 {"ecl", Prmt::ecl}, {"ecr", Prmt::ecr}, {"rc16", Prmt::rc16}};
constexpr Word<TestP> kTestPs[] = {{"finite", TestP::finite}, {"infinite", TestP::infinite},
                                   {"number", TestP::number}, {"notanumber", TestP::notanumber},
                                   {"normal", TestP::normal}, {"subnormal", TestP::subnormal}};
// Also set where the word means something else; then nobody asks for a scope.
constexpr Word<uint8_t> kScopes[] = {{"cta", 1}, {"cluster", 2}, {"gpu", 3}, {"gl", 3}, {"sys", 4}};

bool is_cache_word(std::string_view w) {
  return w.substr(0, 4) == "L1::" || (w.substr(0, 4) == "L2::" && w != "L2::cache_hint");
}

// Words that only some instructions take, before the common ones.
bool special_word(std::string_view w, Form* f) {
  switch (f->op) {
    case Op::setp:
    case Op::set:
      return look_up(kCompares, w, &f->compare) || look_up(kBools, w, &f->combine);
    case Op::atom:
    case Op::red:
    case Op::redux:
      return atomic_name(w, &f->atomic);
    case Op::bar:
      return w == "cta" || look_up(kBools, w, &f->combine);
    case Op::lop3:
      return look_up(kBools, w, &f->combine);
    case Op::createpolicy:
      return w == "range" || w == "cvt";
    case Op::pmevent:
      return w == "mask";
    case Op::fence:  // orders shared memory alone: here it orders all
      return w == "sync_restrict::shared::cta" || w == "sync_restrict::shared::cluster";
    case Op::cvt:  // cvt.pack to less than a byte
      if (w.size() != 2 || (w[0] != 's' && w[0] != 'u') || (w[1] != '2' && w[1] != '4'))
        return false;
      if (f->type_count == 4) return false;
      f->types[f->type_count++] = w[0] == 's' ? Type::s8 : Type::u8;
      f->detail = static_cast<uint32_t>(w[1] - '0');
      return true;
    case Op::prmt:
      return look_up(kPrmts, w, &f->prmt);
    case Op::testp:
      return look_up(kTestPs, w, &f->testp);
    case Op::min:
    case Op::max:
      return w == "abs";  // of .xorsign.abs
    default:
      return false;
  }
}

bool parse_cp_async(std::string_view rest, Form* f) {
  f->op = Op::cp_async;
  if (rest == ".commit_group") {
    f->op = Op::cp_commit;
    return true;
  }
  if (rest == ".wait_group" || rest == ".wait_all") {
    f->op = Op::cp_wait;
    f->mods = rest == ".wait_all" ? kWaitAll : kWaitGroup;
    return true;
  }
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view w = rest.substr(0, rest.find('.'));
    rest.remove_prefix(w.size());
    Space space;
    if (look_up(kSpaces, w, &space) && f->space_count < 2) {
      f->spaces[f->space_count++] = space;
    } else if (w == "L2::cache_hint") {
      f->mods |= kCacheHint;
    } else if (w != "ca" && w != "cg" && !is_cache_word(w)) {
      return false;
    }
  }
  return f->space_count == 2 && f->spaces[0] == Space::shared && f->spaces[1] == Space::global;
}

constexpr OpInfo kCpAsync = {"cp.async", Op::cp_async, Class::memory, nullptr, kCacheHint};
constexpr OpInfo kBarWarp = {"bar.warp.sync", Op::bar_warp, Class::warp, nullptr, 0};

}  // namespace

bool atomic_name(std::string_view w, Atomic* out) {
  static constexpr Word<Atomic> kAtomics[] = {
      {"add", Atomic::add},   {"min", Atomic::min},  {"max", Atomic::max}, {"and", Atomic::and_},
      {"or", Atomic::or_},    {"xor", Atomic::xor_}, {"inc", Atomic::inc}, {"dec", Atomic::dec},
      {"exch", Atomic::exch}, {"cas", Atomic::cas}};
  return look_up(kAtomics, w, out);
}

bool modifier(std::string_view w, const OpInfo& info, Form* f) {
  if (special_word(w, f)) return true;
  const Type type = type_by_name(w);
  if (type != Type::none) {
    if (f->type_count == 4) return false;
    f->types[f->type_count++] = type;
    return true;
  }
  Space space;
  if (look_up(kSpaces, w, &space)) {
    if (f->space_count == 2) return false;
    f->spaces[f->space_count++] = space;
    return true;
  }
  if (look_up(kRounds, w, &f->round)) return true;
  const bool memory = f->op == Op::ld || f->op == Op::st || f->op == Op::atom || f->op == Op::red ||
                      f->op == Op::st_async;
  if (memory && (w == "v2" || w == "v4" || w == "v8")) {
    f->vector = static_cast<uint8_t>(w[1] - '0');
    return true;
  }
  look_up(kScopes, w, &f->scope);
  uint64_t mod = is_cache_word(w) ? static_cast<uint64_t>(kCache) : 0;
  if (!mod && !mod_name(w, &mod)) return false;
  f->mods |= mod;
  return (info.mods & mod) == mod;
}

bool parse_form(std::string_view opcode, Form* form, const OpInfo** info, std::string* error) {
  *form = Form{};
  const std::string_view name = opcode.substr(0, opcode.find('.'));
  std::string_view rest = opcode.substr(name.size());
  auto unsupported = [&](const std::string& why) {
    *error = "unsupported instruction '" + std::string(opcode) + "'" + why;
    return false;
  };
  if (is_async_family(opcode)) return parse_async_form(opcode, form, info) || unsupported("");
  if (opcode.substr(0, 9) == "cp.async.") {
    *info = &kCpAsync;
    return parse_cp_async(opcode.substr(8), form) || unsupported("");
  }
  if (is_tensor(opcode)) return parse_tensor(opcode, form, info) || unsupported("");
  if (opcode == "trap.assertion") {  // made from a call of __assertfail
    form->op = Op::trap;
    form->mods = kAny;
    *info = find_op("trap");
    return true;
  }
  static constexpr Word<Op> kMade[] = {{"ret.callee", Op::ret},
                                       {"vprintf", Op::vprintf},
                                       {"heap.malloc", Op::heap_malloc},
                                       {"heap.free", Op::heap_free}};
  if (look_up(kMade, opcode, &form->op)) {  // made by inline_calls
    form->mods = kTo;
    *info = find_op("call");
    return true;
  }
  if (opcode == "bar.warp.sync") {
    form->op = Op::bar_warp;
    *info = &kBarWarp;
    return true;
  }
  *info = find_op(name);
  if (!*info) return unsupported("");
  form->op = (*info)->op;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find('.'));
    rest.remove_prefix(word.size());
    if (!modifier(word, **info, form)) return unsupported(": '." + std::string(word) + "'");
  }
  if (name == "bar") form->mods |= kAligned;
  return true;
}

}  // namespace sim
