// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// d = a * b + c by nvcuda::wmma, a warp for each product. A kernel's name is its type, its shape and
// the layouts of a, b and c; matrices_test.cpp runs all of them.
#include <mma.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
using namespace nvcuda;

using r = wmma::row_major;
using c = wmma::col_major;
using tf32 = wmma::precision::tf32;
using s4 = wmma::experimental::precision::s4;
using u4 = wmma::experimental::precision::u4;
using b1 = wmma::experimental::precision::b1;

template <class T>
constexpr wmma::layout_t kOrder = wmma::mem_row_major;
template <>
constexpr wmma::layout_t kOrder<c> = wmma::mem_col_major;

struct Plain {
  template <class D, class A, class B, class C>
  __device__ static void multiply(D& d, const A& a, const B& b, const C& x) {
    wmma::mma_sync(d, a, b, x);
  }
};
struct Saturating {
  template <class D, class A, class B, class C>
  __device__ static void multiply(D& d, const A& a, const B& b, const C& x) {
    wmma::mma_sync(d, a, b, x, true);
  }
};
template <wmma::experimental::bmmaBitOp kOp>
struct Bits {
  template <class D, class A, class B, class C>
  __device__ static void multiply(D& d, const A& a, const B& b, const C& x) {
    wmma::bmma_sync(d, a, b, x, kOp, wmma::experimental::bmmaAccumulateOpPOPC);
  }
};

// T is the fragments' type, M the type in memory. `lines` are the strides of a, b, and of c and d.
template <class Op, int m, int n, int k, class T, class M, class C, class D, class LA, class LB, class LC>
__device__ void product(const void* a, const void* b, const void* x, void* d, const int (&lines)[3]) {
  wmma::fragment<wmma::matrix_a, m, n, k, T, LA> fa;
  wmma::fragment<wmma::matrix_b, m, n, k, T, LB> fb;
  wmma::fragment<wmma::accumulator, m, n, k, C> fc;
  wmma::fragment<wmma::accumulator, m, n, k, D> fd;
  wmma::load_matrix_sync(fa, static_cast<const M*>(a), lines[0]);
  wmma::load_matrix_sync(fb, static_cast<const M*>(b), lines[1]);
  wmma::load_matrix_sync(fc, static_cast<const C*>(x), lines[2], kOrder<LC>);
  wmma::fill_fragment(fd, static_cast<D>(0));
  // Elements may be changed where they are, and nobody knows which they are.
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fc.x[i] + fc.x[i];
  Op::multiply(fd, fa, fb, fc);
  wmma::store_matrix_sync(static_cast<D*>(d), fd, lines[2], kOrder<LC>);
}

struct Lines {
  int of[3];
};
#define ONE(name, Op, m, n, k, T, M, C, D, LA, LB, LC)                                           \
  extern "C" __global__ void name##_##m##x##n##x##k##_##LA##LB##LC(const void* a, const void* b, \
                                                                   const void* x, void* d,       \
                                                                   Lines lines) {                \
    product<Op, m, n, k, T, M, C, D, LA, LB, LC>(a, b, x, d, lines.of);                          \
  }
#define LAYOUTS(name, Op, m, n, k, T, M, C, D)         \
  ONE(name, Op, m, n, k, T, M, C, D, r, r, r)          \
  ONE(name, Op, m, n, k, T, M, C, D, r, c, c)          \
  ONE(name, Op, m, n, k, T, M, C, D, c, r, r)          \
  ONE(name, Op, m, n, k, T, M, C, D, c, c, c)
#define SHAPES(name, Op, T, M, C, D)            \
  LAYOUTS(name, Op, 16, 16, 16, T, M, C, D)     \
  LAYOUTS(name, Op, 8, 32, 16, T, M, C, D)      \
  LAYOUTS(name, Op, 32, 8, 16, T, M, C, D)
#define SMALL(name, Op, k, T)                          \
  ONE(name, Op, 8, 8, k, T, void, int, int, r, c, r)   \
  ONE(name, Op, 8, 8, k, T, void, int, int, r, c, c)

SHAPES(f16_f16_f16, Plain, __half, __half, __half, __half)
SHAPES(f16_f16_f32, Plain, __half, __half, __half, float)
SHAPES(f16_f32_f16, Plain, __half, __half, float, __half)
SHAPES(f16_f32_f32, Plain, __half, __half, float, float)
SHAPES(bf16_f32_f32, Plain, __nv_bfloat16, __nv_bfloat16, float, float)
SHAPES(s8_s32_s32, Plain, signed char, signed char, int, int)
SHAPES(u8_s32_s32, Plain, unsigned char, unsigned char, int, int)
SHAPES(s8_s32_sat, Saturating, signed char, signed char, int, int)
SHAPES(u8_s32_sat, Saturating, unsigned char, unsigned char, int, int)
LAYOUTS(tf32_f32_f32, Plain, 16, 16, 8, tf32, float, float, float)
LAYOUTS(f64_f64_f64, Plain, 8, 8, 4, double, double, double, double)
SMALL(s4_s32_s32, Plain, 32, s4)
SMALL(u4_s32_s32, Plain, 32, u4)
SMALL(s4_s32_sat, Saturating, 32, s4)
SMALL(u4_s32_sat, Saturating, 32, u4)
SMALL(b1_s32_xor, Bits<wmma::experimental::bmmaBitOpXOR>, 128, b1)
SMALL(b1_s32_and, Bits<wmma::experimental::bmmaBitOpAND>, 128, b1)
