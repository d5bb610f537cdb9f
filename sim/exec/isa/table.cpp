// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The door into the code of one instruction set.
#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {

extern const Isa kIsa;

namespace {

constexpr Handler (*kFamilies[])(const Form&) = {
    base::resolve_rare, resolve_float,         resolve_half,        resolve_math,
    resolve_compare,    resolve_select,        resolve_convert,     resolve_move,
    resolve_memory,     base::resolve_atomic,  base::resolve_stack, resolve_warp,
    resolve_mma,        resolve_matrix,        base::resolve_copy,  base::resolve_mbarrier,
    base::resolve_bulk, base::resolve_cluster, resolve_wgmma,       resolve_integer};

Handler resolve(const Form& f) {
  for (const auto family : kFamilies) {
    if (Handler h = family(f)) return h;
  }
  return nullptr;
}

#define SIM_TEXT_OF(X) #X
#define SIM_TEXT(X) SIM_TEXT_OF(X)

}  // namespace

const Isa kIsa = {SIM_TEXT(SIM_ISA), resolve, run};

}  // namespace sim::SIM_ISA
