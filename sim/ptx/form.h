// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What an opcode with its modifiers means: plain data that the parser makes and the handler tables
// read. Modifiers are a set; only types and state spaces keep their order.
#pragma once

#include <cstdint>

namespace sim {

enum class Op : uint16_t {
  none,
  add,
  addc,
  sub,
  subc,
  mul,
  mad,
  madc,
  mul24,
  mad24,
  div,
  rem,
  abs,
  neg,
  min,
  max,
  sad,
  popc,
  clz,
  bfind,
  brev,
  bfe,
  bfi,
  fns,
  dp4a,
  dp2a,
  lop3,
  and_,
  or_,
  xor_,
  not_,
  cnot,
  shl,
  shr,
  shf,
  bmsk,
  szext,
  vabsdiff4,
  fma,
  rcp,
  sqrt,
  rsqrt,
  ex2,
  lg2,
  sin,
  cos,
  tanh,
  copysign,
  testp,
  setp,
  set,
  selp,
  slct,
  mov,
  cvt,
  cvta,
  prmt,
  isspacep,
  ld,
  st,
  prefetch,
  cp_async,
  cp_commit,
  cp_wait,
  atom,
  red,
  discard,
  createpolicy,
  shfl,
  vote,
  match,
  redux,
  activemask,
  elect,
  bar,
  bar_warp,
  bra,
  brx,
  ret,
  exit,
  trap,
  brkpt,
  call,
  nanosleep,
  pmevent,
  fence,
  griddepcontrol,
  // Asynchronous copies, their barriers, clusters.
  mbarrier_init,
  mbarrier_inval,
  mbarrier_expect_tx,
  mbarrier_complete_tx,
  mbarrier_arrive,
  mbarrier_arrive_drop,
  mbarrier_test_wait,
  mbarrier_try_wait,
  mbarrier_pending_count,
  cp_mbarrier_arrive,
  bulk_copy,
  bulk_reduce,
  bulk_prefetch,
  tensor_copy,
  tensor_reduce,
  tensor_prefetch,
  bulk_commit,
  bulk_wait,
  st_async,
  red_async,
  tensormap_replace,
  tensormap_copy,
  cluster_arrive,
  cluster_wait,
  mapa,
  getctarank,
  setmaxnreg,
  alloca_,
  stacksave,
  stackrestore,
  vprintf,
  // Made by the decoder, never written in PTX.
  special,
  pack,
  unpack,
  widen,
  narrow,
  ld_param,
  join,
  // Matrix instructions.
  mma,
  ldmatrix,
  stmatrix,
  movmatrix,
  wgmma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  touch,  // made by the decoder: what it names is about to be read or written
  frame
};

enum class Type : uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
  tf32,
  e4m3x2,
  e5m2x2,
  u16x2,
  s16x2,
  // Factors of matrix instructions, never of registers.
  e4m3,
  e5m2,
  s4,
  u4,
  b1
};

enum class Space : uint8_t { generic, global, shared, local, constant, param, cluster };
enum class Round : uint8_t { none, rn, rz, rm, rp, rna, rni, rzi, rmi, rpi };
enum class Compare : uint8_t {
  none,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  lo,
  ls,
  hi,
  hs,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan
};
enum class Bool : uint8_t { none, and_, or_, xor_ };

// Modifiers without an order of their own.
enum Mod : uint64_t {
  kFtz = 1ull << 0,
  kSat = 1ull << 1,
  kRelu = 1ull << 2,
  kNanMod = 1ull << 3,
  kXorsign = 1ull << 4,
  kApprox = 1ull << 5,
  kFull = 1ull << 6,
  kHi = 1ull << 7,
  kLo = 1ull << 8,
  kWide = 1ull << 9,
  kCc = 1ull << 10,
  kShiftamt = 1ull << 11,
  kLeft = 1ull << 12,
  kRight = 1ull << 13,
  kWrap = 1ull << 14,
  kClamp = 1ull << 15,
  kTo = 1ull << 16,
  kSync = 1ull << 17,
  kArrive = 1ull << 18,
  kRed = 1ull << 19,
  kAligned = 1ull << 20,
  kUni = 1ull << 21,
  kUp = 1ull << 22,
  kDown = 1ull << 23,
  kBfly = 1ull << 24,
  kIdx = 1ull << 25,
  kAll = 1ull << 26,
  kAny = 1ull << 27,
  kBallot = 1ull << 28,
  kVolatile = 1ull << 29,
  kRelaxed = 1ull << 30,
  kAcquire = 1ull << 31,
  kRelease = 1ull << 32,
  kAcqRel = 1ull << 33,
  kSc = 1ull << 34,
  kNc = 1ull << 35,
  kCacheHint = 1ull << 36,
  kCache = 1ull << 37,
  kScope = 1ull << 38,
  kSatfinite = 1ull << 39,
  kNoftz = 1ull << 40,
  kPopc = 1ull << 41,
  kWeak = 1ull << 42,
  kPackMod = 1ull << 43,
  kCluster = 1ull << 44,
  kWaitAll = 1ull << 46,
  kWaitGroup = 1ull << 47,
  kLaunchDependents = 1ull << 48,
  kWaitMod = 1ull << 49,
  kFractional = 1ull << 50,
  kMmio = 1ull << 51,
  kUnified = 1ull << 52,
  kMbarrierInit = 1ull << 53,
  kEntry = 1ull << 54
};

// Of Form::detail, for the asynchronous family.
enum AsyncMod : uint32_t {
  kNoinc = 1u << 0,
  kExpectTx = 1u << 1,
  kNoComplete = 1u << 2,
  kParity = 1u << 3,
  kMulticast = 1u << 4,
  kBulkGroup = 1u << 5,   // completes by a bulk group
  kCompleteTx = 1u << 6,  // completes on an mbarrier
  kReadOnly = 1u << 7,    // wait_group.read
  kByteMask = 1u << 8,    // .cp_mask
  kIncrease = 1u << 9,    // setmaxnreg.inc
  kClusterScope = 1u << 10,
  kFenceAsync = 1u << 11,  // fence.proxy.async
  kFenceInit = 1u << 12,   // fence.mbarrier_init
  kFenceTensorMap = 1u << 13
};

// What tensormap.replace replaces.
enum class MapField : uint8_t {
  none,
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  element_type,
  interleave,
  swizzle,
  fill_mode
};

enum class Atomic : uint8_t { none, add, min, max, and_, or_, xor_, inc, dec, exch, cas };
enum class Prmt : uint8_t { none, f4e, b4e, rc8, ecl, ecr, rc16 };
enum class TestP : uint8_t { none, finite, infinite, number, notanumber, normal, subnormal };

struct Form {
  Op op = Op::none;
  Type types[4] = {Type::none, Type::none, Type::none, Type::none};
  uint8_t type_count = 0;
  Space spaces[2] = {Space::generic, Space::generic};
  uint8_t space_count = 0;
  uint8_t vector = 1;
  Round round = Round::none;
  Compare compare = Compare::none;
  Bool combine = Bool::none;
  Atomic atomic = Atomic::none;
  Prmt prmt = Prmt::none;
  MapField field = MapField::none;
  TestP testp = TestP::none;
  uint64_t mods = 0;
  uint16_t m = 0, n = 0, k = 0;  // shape of a matrix instruction
  uint32_t detail = 0;           // modifiers of one family alone: TensorMod or AsyncMod
  uint8_t scope = 0;             // 1 cta, 2 cluster, 3 gpu, 4 sys; 0: not written

  bool has(uint64_t mod) const { return (mods & mod) != 0; }
  Type type() const { return types[0]; }
  Type last_type() const { return type_count ? types[type_count - 1] : Type::none; }
  Space space() const { return spaces[0]; }
};

constexpr unsigned type_bytes(Type t) {
  switch (t) {
    case Type::b8:
    case Type::u8:
    case Type::s8:
      return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
    case Type::e4m3x2:
    case Type::e5m2x2:
      return 2;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 8;
    case Type::b128:
      return 16;
    case Type::none:
    case Type::pred:
      return 0;
    default:
      return 4;
  }
}
constexpr bool is_signed(Type t) {
  return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64;
}
constexpr bool is_integer(Type t) { return t >= Type::b8 && t <= Type::s64; }
constexpr bool is_half(Type t) { return t >= Type::f16 && t <= Type::bf16x2; }
constexpr bool is_float(Type t) { return t == Type::f32 || t == Type::f64 || is_half(t); }

}  // namespace sim
