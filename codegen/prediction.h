// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Predicts what a call would take at best, from what it moves and multiplies, how long its thread
// blocks take by themselves where that is known, and the published rates of a device. Otherwise a
// prediction knows nothing of latencies, of what does not overlap, nor of a product's instruction
// that cannot reach the published rate.
#pragma once

#include "codegen/device_facts.h"
#include "codegen/launch_shape.h"

namespace lathe {

struct Prediction {
  // 0 where the rate is not known
  double memory_microseconds = 0, tensor_microseconds = 0, chain_microseconds = 0;
  double launch_microseconds = 0;
  double microseconds = 0;       // the longest of them; 0 if the rate that matters is not known
  const char* bound = "memory";  // which: "memory", "tensor", "chain" or "launch"
};
Prediction predict(const Cost& cost, uint64_t launches, const DeviceFacts& facts);

}  // namespace lathe
