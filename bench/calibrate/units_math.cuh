// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Latencies and rates of the arithmetic units and of shared memory.
#pragma once
#include "units_measure.cuh"

namespace units {

#define UNITS_OP(Name, Type, constraint, code)                               \
  struct Name {                                                              \
    using T = Type;                                                          \
    static __device__ __forceinline__ void step(T& x, T y, T z) {            \
      asm volatile(code : "+" constraint(x) : constraint(y), constraint(z)); \
    }                                                                        \
  };
UNITS_OP(Fma, float, "f", "fma.rn.f32 %0, %0, %1, %0;")
UNITS_OP(Add, float, "f", "add.rn.f32 %0, %0, %1;")
UNITS_OP(Mul, float, "f", "mul.rn.f32 %0, %0, %1;")
UNITS_OP(Max, float, "f", "max.f32 %0, %0, %1;")
UNITS_OP(Ex2, float, "f", "ex2.approx.ftz.f32 %0, %0;")
UNITS_OP(Lg2, float, "f", "lg2.approx.ftz.f32 %0, %0;")
UNITS_OP(Rsqrt, float, "f", "rsqrt.approx.ftz.f32 %0, %0;")
UNITS_OP(Fma64, double, "d", "fma.rn.f64 %0, %0, %1, %0;")
UNITS_OP(FmaHalf, uint32_t, "r", "fma.rn.f16x2 %0, %0, %1, %0;")
UNITS_OP(FmaBrain, uint32_t, "r", "fma.rn.bf16x2 %0, %0, %1, %0;")
UNITS_OP(Ex2Brain, uint32_t, "r", "ex2.approx.ftz.bf16x2 %0, %0;")
UNITS_OP(Mad, uint32_t, "r", "mad.lo.s32 %0, %0, %1, %0;")
UNITS_OP(Lop, uint32_t, "r", "lop3.b32 %0, %0, %1, %2, 0x6A;")
UNITS_OP(Shift, uint32_t, "r", "shf.l.wrap.b32 %0, %0, %1, 7;")
UNITS_OP(LopShift, uint32_t, "r", "lop3.b32 %0, %0, %1, %2, 0x6A;\n shf.l.wrap.b32 %0, %0, %1, 7;")
UNITS_OP(Shuffle, uint32_t, "r", "shfl.sync.bfly.b32 %0, %0, 1, 31, -1;")
UNITS_OP(Select, float, "f",
         "{\n .reg .pred p;\n setp.lt.f32 p, %0, %1;\n selp.f32 %0, %2, %0, p;\n}")
// ptxas drops two reciprocals in a row, so that another instruction lies between them.
UNITS_OP(RcpXor, uint32_t, "r",
         "{\n .reg .b32 t;\n mov.b32 t, %0;\n rcp.approx.ftz.f32 t, t;\n xor.b32 %0, t, %1;\n}")
// Conversions take the bits of their last result for a value of the other type.
UNITS_OP(ToInt, uint32_t, "r", "{\n .reg .b32 t;\n mov.b32 t, %0;\n cvt.rni.s32.f32 %0, t;\n}")
UNITS_OP(ToFloat, uint32_t, "r", "{\n .reg .b32 t;\n cvt.rn.f32.s32 t, %0;\n mov.b32 %0, t;\n}")
UNITS_OP(ToIntAndBack, float, "f",
         "{\n .reg .b32 t;\n cvt.rni.s32.f32 t, %0;\n cvt.rn.f32.s32 %0, t;\n}")
UNITS_OP(ToBrain, uint32_t, "r",
         "{\n .reg .b32 s, t;\n mov.b32 s, %0;\n mov.b32 t, %1;\n"
         " cvt.rn.bf16x2.f32 %0, s, t;\n}")
UNITS_OP(ToHalf, uint32_t, "r",
         "{\n .reg .b32 s, t;\n mov.b32 s, %0;\n mov.b32 t, %1;\n"
         " cvt.rn.f16x2.f32 %0, s, t;\n}")
#undef UNITS_OP

// Eight chains side by side.
template <class Op>
struct Eight {
  using T = typename Op::T;
  static constexpr int kChains = 8, kSteps = 8;
  static __device__ __forceinline__ void round(T (&x)[kChains], T y, T z) {
#pragma unroll
    for (int k = 0; k < 8; ++k) Op::step(x[k], y, z);
  }
};
template <class Op>
struct One {
  using T = typename Op::T;
  static constexpr int kChains = 1, kSteps = 1;
  static __device__ __forceinline__ void round(T (&x)[1], T y, T z) { Op::step(x[0], y, z); }
};
// `ratio` multiplications for each instruction of another unit, which has eight chains too.
template <class Op, int ratio>
struct Mixed {
  using T = float;
  static constexpr int kChains = 16, kSteps = 8 * (ratio + 1);
  static __device__ __forceinline__ void round(T (&x)[kChains], T y, T z) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int f = 0; f < ratio; ++f) Fma::step(x[(k * ratio + f) % 8], y, z);
      if constexpr (sizeof(typename Op::T) == 4 && !std::is_same_v<typename Op::T, float>) {
        uint32_t bits = __float_as_uint(x[8 + k]);
        Op::step(bits, __float_as_uint(y), __float_as_uint(z));
        x[8 + k] = __uint_as_float(bits);
      } else {
        Op::step(x[8 + k], y, z);
      }
    }
  }
};

template <class Round, int rounds>
__global__ void arithmetic(unsigned long long* cycles, uint32_t* sink, int repetitions,
                           float seed) {
  using T = typename Round::T;
  T x[Round::kChains];
  const T y = static_cast<T>(seed * (threadIdx.x + 1)), z = static_cast<T>(seed + threadIdx.x);
  for (int k = 0; k < Round::kChains; ++k) x[k] = static_cast<T>(seed * 3 + k + threadIdx.x);
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < rounds; ++k) Round::round(x, y, z);
  }
  watch.stop(cycles);
  T sum = 0;
  for (int k = 0; k < Round::kChains; ++k) sum += x[k];
  if (sum == static_cast<T>(77.125f)) *sink = 1;
}

template <class Op>
void dependent(const char* unit) {
  figure(unit, "dependent", "cycles", [=] {
    return per_repetition(
               [](int n) {
                 start({1, 32}, arithmetic<One<Op>, 128>, room.cycles, room.sink, n, 1.25f);
               },
               times(32)) /
           128;
  });
}

template <class Round>
void side_by_side(const char* unit, const char* what, int results = 1) {
  constexpr int kRounds = 256 / Round::kSteps;
  figure(unit, what, "results a cycle and SM", [=] {
    const double cycles = per_repetition(
        [](int n) {
          start({1, 512}, arithmetic<Round, kRounds>, room.cycles, room.sink, n, 1.25f);
        },
        times(32));
    return 512.0 * kRounds * Round::kSteps * results / cycles;
  });
}

// Lanes that lie `conflicts` + 1 words apart. `step` is 0, but the compiler does not know.
template <int kind>
__global__ void shared_rate(unsigned long long* cycles, uint32_t* sink, int repetitions, int stride,
                            uint32_t step) {
  extern __shared__ __align__(1024) uint32_t words[];
  for (int k = threadIdx.x; k < 32768 / 4; k += blockDim.x) words[k] = k;
  const int lane = threadIdx.x % 32;
  uint32_t at = address(words) + lane * stride;
  uint32_t sums[8] = {};
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int round = 0; round < 4; ++round) {
      uint32_t x[8][4];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        if constexpr (kind == 0) {
          asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(x[k][0]) : "r"(at));
        } else if constexpr (kind == 1) {
          asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(x[k][0]), "=r"(x[k][1]), "=r"(x[k][2]), "=r"(x[k][3])
                       : "r"(at));
        } else if constexpr (kind == 2) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(x[k][0]), "=r"(x[k][1]), "=r"(x[k][2]), "=r"(x[k][3])
                       : "r"(at + 512 * k));
        } else if constexpr (kind == 3) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(x[k][0]), "=r"(x[k][1]), "=r"(x[k][2]), "=r"(x[k][3])
                       : "r"(at + 512 * k));
        } else if constexpr (kind == 4) {
          asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(at), "r"(sums[k]));
        } else if constexpr (kind == 5) {
          asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %1};" ::"r"(at), "r"(sums[k]),
                       "r"(sums[k ^ 1]), "r"(sums[k ^ 2]));
        } else {
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %1};" ::"r"(
                           at + 512 * k),
                       "r"(sums[k]), "r"(sums[k ^ 1]), "r"(sums[k ^ 2]));
        }
      }
      if constexpr (kind < 4) {
#pragma unroll
        for (int k = 0; k < 8; ++k) sums[k] ^= x[k][0];
      }
      if constexpr (kind >= 1 && kind <= 3) {
#pragma unroll
        for (int k = 0; k < 8; ++k) sums[k] ^= x[k][1] ^ x[k][2] ^ x[k][3];
      }
      at += step;  // Nothing that was read before is known to be there again.
    }
  }
  watch.stop(cycles);
  uint32_t sum = at;
  for (const uint32_t one : sums) sum ^= one;
  if (sum == 0x12345671) *sink = sum;
}

template <int kind>
double shared_cycles(int stride) {  // of one instruction of each of sixteen warps
  return per_repetition(
             [=](int n) {
               start({1, 512, 32768}, shared_rate<kind>, room.cycles, room.sink, n, stride, 0u);
             },
             times(32)) /
         32;
}

template <int kind>
void shared_bytes(const char* what, int bytes) {
  figure("shared", what, "bytes a cycle and SM",
         [=] { return 512.0 * bytes / shared_cycles<kind>(bytes); });
}

// Each lane's word is its own address. Of ldmatrix, each lane gets the address of its own row.
template <int kind>
__global__ void shared_chain(unsigned long long* cycles, uint32_t* sink, int repetitions,
                             int stride) {
  extern __shared__ __align__(1024) uint32_t words[];
  uint32_t at = address(words) + threadIdx.x * stride;
  if (kind == 0) {
    words[threadIdx.x * stride / 4] = at;
  } else {
    words[threadIdx.x] = at;
  }
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 64; ++k) {
      if constexpr (kind == 0) {
        asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
      } else if constexpr (kind == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];" : "+r"(at));
      } else {
        uint32_t a, b, c;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%0];"
                     : "+r"(at), "=r"(a), "=r"(b), "=r"(c));
      }
    }
  }
  watch.stop(cycles);
  if (at == 7) *sink = at;
}

template <int kind>
void shared_latency(const std::string& what, int stride) {
  figure("shared", what, "cycles", [=] {
    return per_repetition(
               [=](int n) {
                 start({1, 32, 8192}, shared_chain<kind>, room.cycles, room.sink, n, stride);
               },
               times(32)) /
           64;
  });
}

inline void measure_math() {
  dependent<Fma>("fma.f32");
  dependent<Mul>("mul.f32");
  dependent<Add>("add.f32");
  dependent<Max>("max.f32");
  dependent<FmaHalf>("fma.f16x2");
  dependent<FmaBrain>("fma.bf16x2");
  dependent<Fma64>("fma.f64");
  dependent<Mad>("mad.lo.s32");
  dependent<Lop>("lop3");
  dependent<Shift>("shf");
  dependent<Ex2>("ex2");
  dependent<Lg2>("lg2");
  dependent<Rsqrt>("rsqrt");
  dependent<RcpXor>("rcp and xor");
  dependent<ToBrain>("cvt.rn.bf16x2.f32");
  dependent<ToInt>("cvt.rni.s32.f32");
  dependent<ToFloat>("cvt.rn.f32.s32");
  dependent<Shuffle>("shfl.bfly");
  dependent<Select>("setp and selp");
  side_by_side<Eight<Fma>>("fma.f32", "rate");
  side_by_side<Eight<Add>>("add.f32", "rate");
  side_by_side<Eight<Mul>>("mul.f32", "rate");
  side_by_side<Eight<Max>>("max.f32", "rate");
  side_by_side<Eight<FmaHalf>>("fma.f16x2", "rate of instructions");
  side_by_side<Eight<FmaBrain>>("fma.bf16x2", "rate of instructions");
  side_by_side<Eight<Fma64>>("fma.f64", "rate");
  side_by_side<Eight<Mad>>("mad.lo.s32", "rate");
  side_by_side<Eight<Lop>>("lop3", "rate");
  side_by_side<Eight<Shift>>("shf", "rate");
  side_by_side<Eight<LopShift>>("lop3 and shf", "rate of both", 2);
  side_by_side<Eight<Ex2>>("ex2", "rate");
  side_by_side<Eight<Ex2Brain>>("ex2.bf16x2", "rate of instructions");
  side_by_side<Eight<Lg2>>("lg2", "rate");
  side_by_side<Eight<Rsqrt>>("rsqrt", "rate");
  side_by_side<Eight<RcpXor>>("rcp", "rate; with an xor for each");
  side_by_side<Eight<ToInt>>("cvt.rni.s32.f32", "rate");
  side_by_side<Eight<ToFloat>>("cvt.rn.f32.s32", "rate");
  side_by_side<Eight<ToIntAndBack>>("cvt to s32 and back", "rate of both", 2);
  side_by_side<Eight<ToBrain>>("cvt.rn.bf16x2.f32", "rate of instructions");
  side_by_side<Eight<ToHalf>>("cvt.rn.f16x2.f32", "rate of instructions");
  side_by_side<Eight<Shuffle>>("shfl.bfly", "rate");
  side_by_side<Eight<Select>>("setp and selp", "rate of both", 2);
  side_by_side<Mixed<Ex2, 8>>("fma and ex2", "rate of both; 8 to 1");
  side_by_side<Mixed<Ex2, 4>>("fma and ex2", "rate of both; 4 to 1");
  side_by_side<Mixed<ToBrain, 4>>("fma and cvt.rn.bf16x2.f32", "rate of both; 4 to 1");
  side_by_side<Mixed<ToInt, 4>>("fma and cvt.rni.s32.f32", "rate of both; 4 to 1");
  side_by_side<Mixed<Max, 1>>("fma and max.f32", "rate of both; 1 to 1");
  side_by_side<Mixed<Mad, 1>>("fma and mad.lo.s32", "rate of both; 1 to 1");
  side_by_side<Mixed<Shift, 1>>("fma and shf", "rate of both; 1 to 1");
}

inline void measure_shared() {
  for (const int conflicts : {0, 1, 3, 7, 31}) {
    const int stride = 4 * (conflicts + 1);
    const std::string with = "; " + text(conflicts) + " conflicts";
    shared_latency<0>("dependent ld.shared" + with, stride);
    figure("shared", "eight ld.shared of sixteen warps" + with, "cycles",
           [=] { return 8 * shared_cycles<0>(stride); });
  }
  shared_latency<1>("dependent ldmatrix.x1", 16);
  shared_latency<2>("dependent ldmatrix.x4", 16);
  shared_bytes<0>("ld.shared.u32", 4);
  shared_bytes<1>("ld.shared.v4.u32", 16);
  shared_bytes<2>("ldmatrix.x4", 16);
  shared_bytes<3>("ldmatrix.x4.trans", 16);
  shared_bytes<4>("st.shared.u32", 4);
  shared_bytes<5>("st.shared.v4.u32", 16);
  shared_bytes<6>("stmatrix.x4", 16);
}

}  // namespace units
