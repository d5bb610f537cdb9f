// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file is the door into the code of one instruction set.
#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {

extern const Isa kIsa;

namespace {

// `plain`: the same family in the plain build, which also knows the rare forms (SIM_RARE).
struct Family {
  Resolver *own, *plain;
};
#define SIM_FAMILY(NAME) \
  { resolve_##NAME, base::resolve_##NAME }
#define SIM_ONCE(NAME) \
  { base::resolve_##NAME, nullptr }
constexpr Family kFamilies[] = {SIM_ONCE(rare),      SIM_FAMILY(float),   SIM_FAMILY(half),
                                SIM_FAMILY(math),    SIM_FAMILY(compare), SIM_FAMILY(select),
                                SIM_FAMILY(convert), SIM_FAMILY(move),    SIM_FAMILY(memory),
                                SIM_ONCE(atomic),    SIM_ONCE(stack),     SIM_FAMILY(warp),
                                SIM_FAMILY(mma),     SIM_FAMILY(matrix),  SIM_ONCE(copy),
                                SIM_ONCE(mbarrier),  SIM_ONCE(bulk),      SIM_ONCE(cluster),
                                SIM_FAMILY(wgmma),   SIM_ONCE(wmma),      SIM_FAMILY(integer)};

Handler resolve(const Form& f) {
  for (const Family& family : kFamilies) {
    if (Handler h = family.own(f)) return h;
    if (Handler h = family.plain && family.plain != family.own ? family.plain(f) : nullptr) {
      return h;
    }
  }
  return nullptr;
}

#define SIM_TEXT_OF(X) #X
#define SIM_TEXT(X) SIM_TEXT_OF(X)

}  // namespace

const Isa kIsa = {SIM_TEXT(SIM_ISA), resolve, run};

}  // namespace sim::SIM_ISA
