// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs FlashAttention-2 as its own host code would, for attention of one head width:
//
//   nvcc -DWIDTH=128 -DCAUSAL=0 -DBACKWARD=0 -DELEMENT=half_t flash2.cu; a.out BATCH LENGTH HEADS
//
// The kernels and the code that launches them are of a checkout of Dao-AILab/flash-attention; this
// file fills their parameters. Tensors are [batch, length, heads, width] in float16.
#include "flash_params.cuh"
#include "static_switch.h"
// Every shape here has whole tiles and nobody wants the probabilities: the other kernels that these
// switches choose from need not be compiled.
constexpr bool wanted_IsEvenMNConst = true, wanted_ReturnSoftmaxConst = false;
constexpr bool wanted_Split = false, wanted_Append_KV = false;
#undef BOOL_SWITCH
#define BOOL_SWITCH(condition, NAME, ...)                           \
  [&] {                                                             \
    constexpr static bool NAME = wanted_##NAME;                     \
    if ((condition) != NAME) fail(#NAME " is not as it is wanted"); \
    return __VA_ARGS__();                                           \
  }()

#if BACKWARD
#include "flash_bwd_launch_template.h"
#else
#include "flash_fwd_launch_template.h"
#endif

int main(int count, char** words) {
  if (count != 4) fail("usage: BATCH LENGTH HEADS");
  FLASH_NAMESPACE::Flash_bwd_params params = {};
  describe(&params, {std::atoi(words[1]), std::atoi(words[2]), std::atoi(words[3]), WIDTH, CAUSAL, 128});
  params.h_h_k_ratio = 1;
  params.scale_softmax_log2 = params.scale_softmax * float(M_LOG2E);
  params.scale_softmax_rp_dropout = params.scale_softmax;
  params.window_size_left = -1;
  params.window_size_right = CAUSAL ? 0 : -1;
#define RUN_OF_WIDTH(direction, width) run_mha_##direction##_hdim##width
#define RUN(direction, width) FLASH_NAMESPACE::RUN_OF_WIDTH(direction, width)
  fill<cutlass::ELEMENT>(params);
  once_or_timed([] {}, [&] {
#if BACKWARD
    RUN(bwd, WIDTH)<cutlass::ELEMENT, CAUSAL>(params, nullptr);
#else
    RUN(fwd, WIDTH)<cutlass::ELEMENT, CAUSAL>(params, nullptr);
#endif
  });
  const cudaError_t result = cudaDeviceSynchronize();
  if (result != cudaSuccess) fail(cudaGetErrorString(result));
  return 0;
}
