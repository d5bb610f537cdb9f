// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cp.async. Copies are eager: they happen at their issue; groups and waits have nothing left to do.
#include "sim/exec/isa/access.h"

namespace sim::SIM_ISA {
namespace {

// list: global base, offset, and for c = 1 the source size, for c = 2 the predicate that ignores
// it.
template <uint32_t Size>
void copy(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.function->list_data + i.aux;
  const uint64_t* base = cells<uint64_t>(w, list[0]);
  const uint64_t offset = cells<uint64_t>(w, list[1])[0];
  const uint32_t* sizes = i.c == 1 ? cells<uint32_t>(w, list[2]) : nullptr;
  const uint32_t ignore = i.c == 2 ? pred(w, list[2]) : 0;
  uint32_t full = 0, partial = 0;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint32_t n = ignore >> l & 1 ? 0 : sizes ? sizes[l] : Size;
    (n >= Size ? full : partial) |= 1u << l;
  }
  Access to, from;
  if (!prepare(to, w, i, exec, Size, Space::shared, Use::store)) return;
  for (int l = 0; l < 32; ++l) from.address[l] = base[l] + offset;
  if (full) {
    if (!prepare_addresses(from, w, i, full, Size, Space::global, Use::load)) return;
    for (uint32_t rest = full; rest; rest &= rest - 1) {
      const int l = __builtin_ctz(rest);
      memcpy(to.pointer[l], from.pointer[l], Size);
    }
  }
  // Part of the bytes: read one by one, so that no byte past the source is touched.
  for (uint32_t rest = partial; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    memset(to.pointer[l], 0, Size);
    const uint32_t n = ignore >> l & 1 ? 0 : sizes ? sizes[l] : Size;
    for (uint32_t k = 0; k < n; ++k) {
      Access byte;
      for (int m = 0; m < 32; ++m) byte.address[m] = base[m] + offset + k;
      if (!prepare_addresses(byte, w, i, 1u << l, 1, Space::global, Use::load)) return;
      to.pointer[l][k] = *byte.pointer[l];
    }
  }
}

void nothing(Warp&, const Inst&, uint32_t) {}

}  // namespace

Handler resolve_async(const Form& f) {
  if (f.op == Op::cp_commit || f.op == Op::cp_wait) return nothing;
  if (f.op != Op::cp_async) return nullptr;
  return f.vector == 4 ? copy<4> : f.vector == 8 ? copy<8> : f.vector == 16 ? copy<16> : nullptr;
}

}  // namespace sim::SIM_ISA
