// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How the kernels by warpgroups share out a multiprocessor's registers: the producer's warpgroup
// gives some up, so that each consumer has more. ptxas compiles a kernel for 65536 / kThreads of
// them, and setmaxnreg moves them when the roles begin.
#pragma once
#include "common/registers.cuh"

namespace lathe {

// Registers of a thread, by its role.
struct RegisterSplit {
  int producer, consumer;
};

// Two consumers beside one producer: the forward and latent decoding. With 24 the compiler of CUDA
// 12.0 spills what a producer holds, in four of five kernels.
#if __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 3
constexpr RegisterSplit kTwoConsumers = {40, 232};
#else
constexpr RegisterSplit kTwoConsumers = {24, 240};
#endif
// Three consumers of the forward.
constexpr RegisterSplit kThreeConsumers = {32, 160};
// A block step, whose producer also walks the attention ranges.
constexpr RegisterSplit kWalkingProducer = {56, 224};
// Two consumers beside a producer that finds tiles and pages.
constexpr RegisterSplit kPagedProducer = {56, 224};
// Two consumers of the backward: with 232 their products spill under every compiler.
constexpr RegisterSplit kBackwardConsumers = {24, 240};

}  // namespace lathe
