// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes what the walks of chunked KDA by warpgroups with roles share: warpgroups that prepare
// records of 16 tokens, and one or two that walk. Kernels for sm_90a.
#pragma once

#include <string>

#include "ops/kernel.h"
#include "ops/kernel_problems.h"
#include "ops/token_map.h"
#include "templates/params/kda_chunked.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/kda_warpgroups.h"

namespace lathe {

constexpr int kKdaNarrow = 128, kKdaWide = 256;  // columns of K

// Says why no kernel for sm_90a with so many columns of K reads such rows by tensor maps; empty:
// the kernel decides.
std::string kda_rows_refusal(const KdaProblem& problem, const DeviceFacts& facts,
                             const char* kernel, int most_keys = kKdaNarrow);
// Says why no walk forward covers a problem or a device; empty: the kernel decides.
std::string kda_warpgroups_refusal(const KdaProblem& problem, const DeviceFacts& facts,
                                   const char* kernel);

// Says what a walk does beside walking. `smem`: the template's struct of its shared memory.
struct KdaWarpgroupsWalk {
  const char* smem;
  bool outputs;  // forward it reads queries and gives o
  bool saves;    // it keeps what the backward reads
  bool forward = true, back = false;
  int beside = 0;  // bytes of shared memory beside those of the walk, a multiple of 16
};
// Returns a walk with the constants of the portable one.
KernelSpec kda_warpgroups_spec(const Template& from, const KdaProblem& problem,
                               const KernelSpec& portable, const KdaWarpgroupsWalk& walk);

// Returns the columns of V of a block.
int64_t kda_warpgroups_columns(const KernelSpec& spec);
// Returns the tensor operations of a thread block for 16 tokens.
int64_t kda_warpgroups_ops(const KdaProblem& problem, int64_t columns, bool outputs);
// Returns those of a walk back, which makes y of so many squares: two, or none.
int64_t kda_warpgroups_back_ops(const KdaProblem& problem, int64_t columns, int64_t squares);

// Says which rows a kernel has maps of, beside those of keys and of gates of 16 bits.
struct KdaMapped {
  bool values = true, queries = false;
  MappedRows gradients = {};  // of o; without data: none
};
// Returns the rows of the gradient of o.
MappedRows kda_output_grads(const KdaInputs& in, const void* d_o, const AttentionStrides& strides);
// Encodes the maps that a kernel has, in the order of its recipes.
Status encode_kda_maps(const KernelSlot& kernel, bool packed, const KdaInputs& in,
                       const KdaMapped& mapped, KdaMaps* maps);

}  // namespace lathe
