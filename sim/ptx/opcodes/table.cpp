// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the table of instructions.
#include <unordered_map>

#include "sim/ptx/opcodes/opcodes.h"

namespace sim {
namespace {

constexpr uint64_t kOrder =
    kVolatile | kRelaxed | kAcquire | kRelease | kAcqRel | kSc | kScope | kWeak | kMmio;
constexpr uint64_t kCaching = kCache | kCacheHint;
constexpr uint64_t kArith = kFtz | kSat | kRelu | kNanMod | kCc | kXorsign;

constexpr OpInfo kOps[] = {
    {"add", Op::add, Class::integer, "ttt", kArith},
    {"addc", Op::addc, Class::integer, "ttt", kCc},
    {"sub", Op::sub, Class::integer, "ttt", kArith},
    {"subc", Op::subc, Class::integer, "ttt", kCc},
    {"mul", Op::mul, Class::integer, "ttt", kArith | kHi | kLo | kWide},
    {"mad", Op::mad, Class::integer, "tttt", kArith | kHi | kLo | kWide},
    {"madc", Op::madc, Class::integer, "tttt", kCc | kHi | kLo},
    {"mul24", Op::mul24, Class::integer, "ttt", kHi | kLo},
    {"mad24", Op::mad24, Class::integer, "tttt", kHi | kLo | kSat},
    {"div", Op::div, Class::integer, "ttt", kFtz | kApprox | kFull},
    {"rem", Op::rem, Class::integer, "ttt", 0},
    {"abs", Op::abs, Class::integer, "tt", kFtz},
    {"neg", Op::neg, Class::integer, "tt", kFtz},
    {"min", Op::min, Class::integer, "ttt", kFtz | kNanMod | kXorsign | kRelu},
    {"max", Op::max, Class::integer, "ttt", kFtz | kNanMod | kXorsign | kRelu},
    {"sad", Op::sad, Class::integer, "tttt", 0},
    {"popc", Op::popc, Class::integer, "it", 0},
    {"clz", Op::clz, Class::integer, "it", 0},
    {"bfind", Op::bfind, Class::integer, "it", kShiftamt},
    {"brev", Op::brev, Class::integer, "tt", 0},
    {"bfe", Op::bfe, Class::integer, "ttii", 0},
    {"bfi", Op::bfi, Class::integer, "tttii", 0},
    {"fns", Op::fns, Class::integer, "iiii", 0},
    {"dp4a", Op::dp4a, Class::integer, "iiii", 0},
    {"dp2a", Op::dp2a, Class::integer, "iiii", kLo | kHi},
    {"lop3", Op::lop3, Class::integer, "iiiik", 0},
    {"and", Op::and_, Class::integer, "ttt", 0},
    {"or", Op::or_, Class::integer, "ttt", 0},
    {"xor", Op::xor_, Class::integer, "ttt", 0},
    {"not", Op::not_, Class::integer, "tt", 0},
    {"cnot", Op::cnot, Class::integer, "tt", 0},
    {"shl", Op::shl, Class::integer, "tti", 0},
    {"shr", Op::shr, Class::integer, "tti", 0},
    {"shf", Op::shf, Class::integer, "ttti", kLeft | kRight | kWrap | kClamp},
    {"bmsk", Op::bmsk, Class::integer, "iii", kWrap | kClamp},
    {"szext", Op::szext, Class::integer, "tti", kWrap | kClamp},
    {"vabsdiff4", Op::vabsdiff4, Class::integer, "iiii", 0},
    {"fma", Op::fma, Class::floating, "tttt", kFtz | kSat | kRelu},
    {"rcp", Op::rcp, Class::math, "tt", kFtz | kApprox},
    {"sqrt", Op::sqrt, Class::math, "tt", kFtz | kApprox},
    {"rsqrt", Op::rsqrt, Class::math, "tt", kFtz | kApprox},
    {"ex2", Op::ex2, Class::math, "tt", kFtz | kApprox},
    {"lg2", Op::lg2, Class::math, "tt", kFtz | kApprox},
    {"sin", Op::sin, Class::math, "tt", kFtz | kApprox},
    {"cos", Op::cos, Class::math, "tt", kFtz | kApprox},
    {"tanh", Op::tanh, Class::math, "tt", kApprox},
    {"copysign", Op::copysign, Class::floating, "ttt", 0},
    {"testp", Op::testp, Class::compare, "qt", 0},
    {"setp", Op::setp, Class::compare, "quu?p", kFtz},
    {"set", Op::set, Class::compare, "tuu?p", kFtz},
    {"selp", Op::selp, Class::move, "tttp", 0},
    {"slct", Op::slct, Class::move, "tttu", kFtz},
    {"mov", Op::mov, Class::move, nullptr, 0},
    {"cvt", Op::cvt, Class::convert, nullptr, kFtz | kSat | kRelu | kSatfinite | kPackMod},
    {"cvta", Op::cvta, Class::move, nullptr, kTo},
    {"prmt", Op::prmt, Class::integer, "iiii", 0},
    {"isspacep", Op::isspacep, Class::compare, nullptr, 0},
    {"ld", Op::ld, Class::memory, nullptr, kOrder | kCaching | kNc | kUnified},
    {"ldu", Op::ld, Class::memory, nullptr, 0},
    {"st", Op::st, Class::memory, nullptr, kOrder | kCaching},
    {"prefetch", Op::prefetch, Class::memory, nullptr, kCache},
    {"prefetchu", Op::prefetch, Class::memory, nullptr, kCache},
    {"discard", Op::discard, Class::memory, nullptr, kCache},
    {"applypriority", Op::prefetch, Class::memory, nullptr, kCache},
    {"createpolicy", Op::createpolicy, Class::move, nullptr, kFractional | kCache},
    {"atom", Op::atom, Class::atomic, nullptr, kOrder | kNoftz | kCacheHint},
    {"red", Op::red, Class::atomic, nullptr, kOrder | kNoftz | kCacheHint},
    {"shfl", Op::shfl, Class::warp, nullptr, kSync | kUp | kDown | kBfly | kIdx},
    {"vote", Op::vote, Class::warp, nullptr, kSync | kAll | kAny | kUni | kBallot},
    {"match", Op::match, Class::warp, nullptr, kSync | kAll | kAny},
    {"redux", Op::redux, Class::warp, nullptr, kSync},
    {"activemask", Op::activemask, Class::warp, nullptr, 0},
    {"elect", Op::elect, Class::warp, nullptr, kSync},
    {"bar", Op::bar, Class::barrier, nullptr, kSync | kArrive | kRed | kAligned | kPopc},
    {"barrier", Op::bar, Class::barrier, nullptr, kSync | kArrive | kRed | kAligned | kPopc},
    {"bra", Op::bra, Class::control, nullptr, kUni},
    {"brx", Op::brx, Class::control, nullptr, kUni | kIdx},
    {"ret", Op::ret, Class::control, nullptr, kUni},
    {"exit", Op::exit, Class::control, nullptr, 0},
    {"trap", Op::trap, Class::control, nullptr, 0},
    {"brkpt", Op::brkpt, Class::control, nullptr, 0},
    {"call", Op::call, Class::control, nullptr, kUni},
    {"nanosleep", Op::nanosleep, Class::control, nullptr, 0},
    {"pmevent", Op::pmevent, Class::control, nullptr, 0},
    {"membar", Op::fence, Class::barrier, nullptr, kScope},
    {"fence", Op::fence, Class::barrier, nullptr, kScope | kAcqRel | kSc | kAcquire | kRelease},
    {"alloca", Op::alloca_, Class::control, nullptr, 0},
    {"stacksave", Op::stacksave, Class::control, nullptr, 0},
    {"stackrestore", Op::stackrestore, Class::control, nullptr, 0},
    {"griddepcontrol", Op::griddepcontrol, Class::control, nullptr, kLaunchDependents | kWaitMod},
};

}  // namespace

const OpInfo* find_op(std::string_view name) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, const OpInfo*> table;
    for (const OpInfo& info : kOps) table.emplace(info.name, &info);
    return table;
  }();
  const auto it = kTable.find(name);
  return it == kTable.end() ? nullptr : it->second;
}

}  // namespace sim
