// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles a thread's stack: addresses in the running frame, alloca; and the device's
// library: printing, malloc, free. The file is compiled once.
#include "sim/exec/handlers.h"

namespace sim::SIM_ISA {
namespace {

void frame(Warp& w, const Inst& i, uint32_t exec) {
  const auto offset = static_cast<uint64_t>(i.imm);
  each<uint64_t>(w, i.d, exec, [&](int l) { return w.frame[l] + offset; });
}

// a: bytes; imm: alignment. The memory goes with the function's frame.
void allocate(Warp& w, const Inst& i, uint32_t exec) {
  const uint64_t* bytes = cells<uint64_t>(w, i.a);
  uint64_t* d = cells<uint64_t>(w, i.d);
  const uint64_t depot = view(*w.worker).depot_bytes, align = static_cast<uint64_t>(i.imm);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    const uint64_t at = (w.top[l] + align - 1) / align * align;
    if (at > depot || bytes[l] > depot - at) {
      const auto wanted = static_cast<uint32_t>(bytes[l] < 0xFFFFFFFF ? bytes[l] : 0xFFFFFFFF);
      return report(w, i, Fault::stack_overflow, static_cast<unsigned>(l),
                    depot - w.code->local_bytes, wanted, Space::local, true);
    }
    for (uint64_t k = static_cast<uint64_t>(l) * depot + at, n = bytes[l]; n--; ++k) {
      w.local_defined[k / 64] &= ~(1ull << (k % 64));
      w.local[k] = 0x7F;
    }
    w.top[l] = static_cast<uint32_t>(at + bytes[l]);
    d[l] = at;
  }
}

void stacksave(Warp& w, const Inst& i, uint32_t exec) {
  each<uint64_t>(w, i.d, exec, [&](int l) { return static_cast<uint64_t>(w.top[l]); });
}

void stackrestore(Warp& w, const Inst& i, uint32_t exec) {
  const uint64_t* to = cells<uint64_t>(w, i.a);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    if (to[l] < w.frame[l] || to[l] > w.top[l]) {
      return report(w, i, Fault::out_of_bounds, static_cast<unsigned>(l), to[l], 1, Space::local,
                    true);
    }
    w.top[l] = static_cast<uint32_t>(to[l]);
  }
}

void vprintf(Warp& w, const Inst& i, uint32_t exec) {
  const uint64_t* format = cells<uint64_t>(w, i.a);
  const uint64_t* arguments = cells<uint64_t>(w, i.b);
  uint32_t* d = cells<uint32_t>(w, i.d);
  for (uint32_t rest = exec; rest && !w.stop; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    d[l] = static_cast<uint32_t>(print(w, i, l, format[l], arguments[l]));
  }
}

void heap_malloc(Warp& w, const Inst& i, uint32_t exec) {
  const uint64_t* bytes = cells<uint64_t>(w, i.a);
  uint64_t* d = cells<uint64_t>(w, i.d);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    d[l] = heap_allocate(w, static_cast<unsigned>(l), bytes[l]);
  }
}

void heap_free(Warp& w, const Inst& i, uint32_t exec) {
  const uint64_t* address = cells<uint64_t>(w, i.a);
  for (uint32_t rest = exec; rest && !w.stop; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    heap_release(w, i, static_cast<unsigned>(l), address[l]);
  }
}

}  // namespace

Handler resolve_stack(const Form& f) {
  static constexpr HandlerRow<Op> kRows[] = {
      {Op::frame, frame},         {Op::alloca_, allocate},
      {Op::stacksave, stacksave}, {Op::stackrestore, stackrestore},
      {Op::vprintf, vprintf},     {Op::heap_malloc, heap_malloc},
      {Op::heap_free, heap_free}};
  return find_handler(f.op, kRows);
}

}  // namespace sim::SIM_ISA
