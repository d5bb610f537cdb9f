// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles instructions on the bytes of a word, and on masks: dot products, prmt, bmsk,
// szext, vabsdiff4.
#include "sim/exec/isa/integer.h"

namespace sim::SIM_ISA {
namespace {

template <class A, class B>
void dp4a(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        for (int k = 0; k < 4; ++k) {
          c += uint32_t(int32_t(A(a >> (8 * k))) * int32_t(B(b >> (8 * k))));
        }
        return c;
      });
}
template <class A16, class B, bool High>
void dp2a(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        for (int k = 0; k < 2; ++k) {
          c += uint32_t(int32_t(A16(a >> (16 * k))) * int32_t(B(b >> (8 * k + (High ? 16 : 0)))));
        }
        return c;
      });
}

template <Prmt Mode>
void prmt(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(
      w, i, exec, [](uint32_t a, uint32_t b, uint32_t c) {
        const uint64_t v = uint64_t(b) << 32 | a;
        const uint32_t s = c & 3;
        uint32_t r = 0;
        for (uint32_t k = 0; k < 4; ++k) {
          uint32_t pick = c >> (4 * k) & 15;
          if (Mode == Prmt::f4e) pick = (s + k) & 7;
          if (Mode == Prmt::b4e) pick = (s - k) & 7;
          if (Mode == Prmt::rc8) pick = s;
          if (Mode == Prmt::ecl) pick = s > k ? s : k;
          if (Mode == Prmt::ecr) pick = s < k ? s : k;
          if (Mode == Prmt::rc16) pick = (s & 1) * 2 + (k & 1);
          auto byte = uint32_t(v >> (8 * (pick & 7))) & 255;
          if (pick & 8) byte = byte & 128 ? 255 : 0;
          r |= byte << (8 * k);
        }
        return r;
      });
}

template <bool Wrap>
void bmsk(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [](uint32_t a, uint32_t b) {
    const uint32_t pos = Wrap ? a & 31 : a, len = Wrap ? b & 31 : b;
    if (pos >= 32 || len == 0) return 0u;
    return static_cast<uint32_t>((len >= 32 ? ~0ull : (1ull << len) - 1) << pos);
  });
}
template <bool Signed, bool Wrap>
void szext(Warp& w, const Inst& i, uint32_t exec) {
  binary<uint32_t, uint32_t, uint32_t>(w, i, exec, [](uint32_t a, uint32_t b) {
    const uint32_t n = Wrap ? b & 31 : b;
    if (n >= 32) return a;
    if (n == 0) return 0u;
    const uint32_t kept = a & ((1u << n) - 1);
    return Signed && (a >> (n - 1) & 1) ? kept | ~((1u << n) - 1) : kept;
  });
}
void vabsdiff4(Warp& w, const Inst& i, uint32_t exec) {
  ternary<uint32_t, uint32_t, uint32_t, uint32_t>(w, i, exec, [](uint32_t a, uint32_t b, uint32_t) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k += 8) {
      const uint32_t x = a >> k & 255, y = b >> k & 255;
      r |= (x > y ? x - y : y - x) << k;
    }
    return r;
  });
}

}  // namespace

Handler resolve_bytes(const Form& f) {
  const bool a = f.types[0] == Type::s32, b = f.types[1] == Type::s32;
  switch (f.op) {
    case Op::dp4a:
      if (a) return b ? dp4a<int8_t, int8_t> : dp4a<int8_t, uint8_t>;
      return b ? dp4a<uint8_t, int8_t> : dp4a<uint8_t, uint8_t>;
    case Op::dp2a:
      if (a && b) return f.has(kHi) ? dp2a<int16_t, int8_t, true> : dp2a<int16_t, int8_t, false>;
      if (a) return f.has(kHi) ? dp2a<int16_t, uint8_t, true> : dp2a<int16_t, uint8_t, false>;
      if (b) return f.has(kHi) ? dp2a<uint16_t, int8_t, true> : dp2a<uint16_t, int8_t, false>;
      return f.has(kHi) ? dp2a<uint16_t, uint8_t, true> : dp2a<uint16_t, uint8_t, false>;
    case Op::prmt:
      static constexpr HandlerRow<Prmt> kRows[] = {
          {Prmt::none, prmt<Prmt::none>}, {Prmt::f4e, prmt<Prmt::f4e>},
          {Prmt::b4e, prmt<Prmt::b4e>},   {Prmt::rc8, prmt<Prmt::rc8>},
          {Prmt::ecl, prmt<Prmt::ecl>},   {Prmt::ecr, prmt<Prmt::ecr>},
          {Prmt::rc16, prmt<Prmt::rc16>}};
      return find_handler(f.prmt, kRows);
    case Op::bmsk:
      return f.has(kWrap) ? bmsk<true> : bmsk<false>;
    case Op::szext:
      if (f.types[0] == Type::s32) return f.has(kWrap) ? szext<true, true> : szext<true, false>;
      return f.has(kWrap) ? szext<false, true> : szext<false, false>;
    case Op::vabsdiff4:
      return f.types[0] == Type::u32 && !f.has(~0ull) ? vabsdiff4 : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
