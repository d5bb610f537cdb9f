// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says what an access means for the order of memory: strong or weak, its scope, what it
// releases.
#pragma once

#include "sim/ptx/form.h"

namespace sim {

enum class Scope : uint8_t { none, cta, cluster, gpu, sys };

struct Order {
  Scope scope = Scope::none;  // none: a weak access
  bool acquire = false, release = false;
  bool reads_back = false;  // the result depends on what was there: ld, atom
  bool rmw = false;         // continues the release sequence of its location
  bool read_only = false;   // ld.nc
};

inline Order order_of(const Form& f) {
  Order o;
  const bool rmw = f.op == Op::atom || f.op == Op::red;
  if (f.op != Op::ld && f.op != Op::st && !rmw) return o;
  o.rmw = rmw;
  o.reads_back = f.op == Op::ld || f.op == Op::atom;
  o.read_only = f.has(kNc);
  const bool strong = rmw || f.has(kRelaxed | kAcquire | kRelease | kAcqRel);
  if (f.has(kVolatile | kMmio)) {
    o.scope = Scope::sys;
  } else if (strong) {
    o.scope = f.scope ? static_cast<Scope>(f.scope) : Scope::gpu;
  }
  o.acquire = f.has(kAcquire | kAcqRel) && o.reads_back;
  o.release = f.has(kRelease | kAcqRel) && f.op != Op::ld;
  return o;
}

// A thread learns from such an instruction what other blocks have done: it may wait for them, or
// take over work from them.
inline bool sees_blocks(const Form& f) {
  const bool global = f.space() == Space::global || f.space() == Space::generic;
  return global && (f.op == Op::atom || (f.op == Op::ld && order_of(f).scope != Scope::none));
}

// Takes a number from a counter, as blocks do that share out work.
inline bool is_ticket(const Form& f) {
  return f.op == Op::atom && f.atomic == Atomic::add && f.vector == 1 &&
         f.space() == Space::global && is_integer(f.type());
}

// Results of such an instruction depend on which block comes first.
inline bool depends_on_blocks(const Form& f) {
  const bool global = f.space() == Space::global || f.space() == Space::generic;
  return sees_blocks(f) || f.op == Op::heap_malloc ||
         (global && f.op == Op::red && is_float(f.type()));
}

}  // namespace sim
