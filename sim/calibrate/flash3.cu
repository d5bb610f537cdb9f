// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs FlashAttention-3 as its own host code would, for attention of one head width on sm_90a:
//
//   nvcc -DWIDTH=128 -DCAUSAL=0 -DBACKWARD=0 -DELEMENT=half_t flash3.cu; a.out BATCH LENGTH HEADS
//
// The kernels and the code that launches them are of the folder hopper of a checkout of
// Dao-AILab/flash-attention; this file fills their parameters.
#include "flash_params.cuh"
#include "static_switch.h"
// The other kernels that these switches choose from need not be compiled.
constexpr bool wanted_HasQV_ = false, wanted_GQA = false, wanted_Deterministic_ = false;
// Kernels with clusters need an even number of tiles along a sequence, which it is; others ask
// for clusters in vain.
constexpr bool kClusters = WIDTH >= 128 && !CAUSAL;
constexpr bool wanted_Use_cluster = true;
#undef BOOL_SWITCH
#define BOOL_SWITCH(condition, NAME, ...)                               \
  [&] {                                                                 \
    constexpr static bool NAME = wanted_##NAME;                         \
    if (bool(condition) != NAME) fail(#NAME " is not as it is wanted"); \
    return __VA_ARGS__();                                               \
  }()
#undef CAUSAL_LOCAL_SWITCH
#define CAUSAL_LOCAL_SWITCH(causal, local, IS_CAUSAL, IS_LOCAL, ...)    \
  [&] {                                                                 \
    constexpr static bool IS_CAUSAL = CAUSAL, IS_LOCAL = false;         \
    if ((causal) != IS_CAUSAL || (local)) fail("the mask is not as it is wanted"); \
    return __VA_ARGS__();                                               \
  }()
#undef CLUSTER_SWITCH
#define CLUSTER_SWITCH(condition, NAME, ...) BOOL_SWITCH(!kClusters || (condition), NAME, __VA_ARGS__)

#if BACKWARD
#include "flash_bwd_launch_template.h"
#else
#include "flash_fwd_launch_template.h"
// Only other kernels call these.
void prepare_varlen_num_blocks(Flash_fwd_params&, cudaStream_t, bool, int, int, bool) {}
#endif

// The rows of the backward's tile, as the host code has them.
constexpr int kRows = WIDTH == 64 ? 128 : WIDTH == 128 && !CAUSAL ? 80 : 64;

int main(int count, char** words) {
  if (count != 4) fail("usage: BATCH LENGTH HEADS");
  Flash_bwd_params params = {};
  describe(&params, {std::atoi(words[1]), std::atoi(words[2]), std::atoi(words[3]), WIDTH, CAUSAL, kRows});
  const size_t rows = size_t(params.b) * params.h * params.seqlen_q_rounded;
  params.v_dim_stride = 1;
  params.dv = params.dv_rounded = WIDTH;
  params.window_size_left = params.seqlen_k - 1;
  params.window_size_right = CAUSAL ? 0 : params.seqlen_q - 1;
  params.num_splits = 1;
  params.tile_count_semaphore = static_cast<int*>(device_memory(sizeof(int)));
  params.softmax_lse_log2_ptr = device_memory(sizeof(float) * rows);
  params.dq_semaphore = static_cast<int*>(device_memory(sizeof(int) * rows));
  params.arch = 90;
  if (cudaDeviceGetAttribute(&params.num_sm, cudaDevAttrMultiProcessorCount, 0) != cudaSuccess) {
    fail("the number of multiprocessors is not known");
  }
#define RUN_OF_WIDTH(width) run_mha_bwd_hdim##width
#define RUN(width) RUN_OF_WIDTH(width)
  const auto no_tile_was_taken = [&] {
    if (cudaMemsetAsync(params.tile_count_semaphore, 0, sizeof(int)) != cudaSuccess) fail("no zero");
  };
  fill<cutlass::ELEMENT>(params);
  once_or_timed(no_tile_was_taken, [&] {
#if BACKWARD
    RUN(WIDTH)<90, cutlass::ELEMENT, false>(params, nullptr);
#else
    run_mha_fwd_<90, cutlass::ELEMENT, WIDTH, WIDTH, false, false, false, false>(params, nullptr);
#endif
  });
  const cudaError_t result = cudaDeviceSynchronize();
  if (result != cudaSuccess) fail(cudaGetErrorString(result));
  return 0;
}
