// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The driver's tests load this PTX: what nvcc makes of three small kernels.
//
//   extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
//     int i = blockIdx.x * blockDim.x + threadIdx.x;
//     if (i < n) c[i] = a[i] + b[i];
//   }
//   __device__ int counter = 41;
//   extern "C" __global__ void bump(int by) { if (threadIdx.x == 0) counter += by; }
//   extern "C" __global__ void reverse(float* data) {  // of one block, through shared memory
//     extern __shared__ float tile[];
//     int i = threadIdx.x;
//     tile[i] = data[i];
//     __syncthreads();
//     data[i] = tile[blockDim.x - 1 - i];
//   }
#pragma once

#include <string>

#include "sim/tests/driver/driver_client.h"

namespace sim::tests {

// `target` is what the text is for, such as "sm_80".
inline std::string kernels(const std::string& target = "sm_80") {
  return ".version 8.0\n.target " + target + R"(
.address_size 64

	// .globl	add
.global .align 4 .u32 counter = 41;
.extern .shared .align 16 .b8 tile[];

.visible .entry add(
	.param .u64 add_param_0,
	.param .u64 add_param_1,
	.param .u64 add_param_2,
	.param .u32 add_param_3
)
{
	.reg .pred 	%p<2>;
	.reg .f32 	%f<4>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<11>;


	ld.param.u64 	%rd1, [add_param_0];
	ld.param.u64 	%rd2, [add_param_1];
	ld.param.u64 	%rd3, [add_param_2];
	ld.param.u32 	%r2, [add_param_3];
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r1, %r3, %r4, %r5;
	setp.ge.s32 	%p1, %r1, %r2;
	@%p1 bra 	$L__BB0_2;

	cvta.to.global.u64 	%rd4, %rd1;
	mul.wide.s32 	%rd5, %r1, 4;
	add.s64 	%rd6, %rd4, %rd5;
	cvta.to.global.u64 	%rd7, %rd2;
	add.s64 	%rd8, %rd7, %rd5;
	ld.global.f32 	%f1, [%rd8];
	ld.global.f32 	%f2, [%rd6];
	add.f32 	%f3, %f2, %f1;
	cvta.to.global.u64 	%rd9, %rd3;
	add.s64 	%rd10, %rd9, %rd5;
	st.global.f32 	[%rd10], %f3;

$L__BB0_2:
	ret;

}
	// .globl	bump
.visible .entry bump(
	.param .u32 bump_param_0
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<5>;


	ld.param.u32 	%r1, [bump_param_0];
	mov.u32 	%r2, %tid.x;
	setp.ne.s32 	%p1, %r2, 0;
	@%p1 bra 	$L__BB1_2;

	ld.global.u32 	%r3, [counter];
	add.s32 	%r4, %r3, %r1;
	st.global.u32 	[counter], %r4;

$L__BB1_2:
	ret;

}
	// .globl	reverse
.visible .entry reverse(
	.param .u64 reverse_param_0
)
{
	.reg .f32 	%f<3>;
	.reg .b32 	%r<10>;
	.reg .b64 	%rd<5>;


	ld.param.u64 	%rd1, [reverse_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r1, %tid.x;
	mul.wide.s32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.f32 	%f1, [%rd4];
	shl.b32 	%r2, %r1, 2;
	mov.u32 	%r3, tile;
	add.s32 	%r4, %r3, %r2;
	st.shared.f32 	[%r4], %f1;
	bar.sync 	0;
	mov.u32 	%r5, %ntid.x;
	not.b32 	%r6, %r1;
	add.s32 	%r7, %r5, %r6;
	shl.b32 	%r8, %r7, 2;
	add.s32 	%r9, %r3, %r8;
	ld.shared.f32 	%f2, [%r9];
	st.global.f32 	[%rd4], %f2;
	ret;

}

)";
}

// Makes the primary context of device 0 current and loads one of the kernels, without checks: for
// children of a test.
inline CUfunction load_kernel(const char* name) {
  CUcontext context = nullptr;
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_push_current(context);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  cuda().module_load_data(&module, kernels().c_str());
  cuda().module_get_function(&function, module, name);
  return function;
}

}  // namespace sim::tests
