// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a call of kda on a device from counts of a small part of it: one head of one
// sequence at two lengths, by which every count is a straight line in the length, and heads and
// sequences are alike. sim/model tells what the device's rates allow, bench/chain how long a thread
// block takes by itself; the longer of the two is the prediction.
#pragma once

#include <string>
#include <vector>

#include "bench/operators/kda_work.h"

struct lathe_context;

namespace bench {

// A launch of a call, all of its counts those of the whole call.
struct KdaLaunchCounts {
  std::string kernel;
  double blocks = 0, threads = 0;
  int registers = 0, spill_bytes = 0, shared_bytes = 0;
  double issue = 0;         // instructions of all warps, copies of registers left out
  double memory_bytes = 0;  // each sector once
  double asked_bytes = 0;   // of the second cache
  double wavefronts = 0;    // of shared memory
  double conflicts = 0, local_requests = 0, tensor_ops = 0;
  std::vector<std::pair<std::string, double>> classes;  // warp instructions
  std::vector<double> chain;  // cycles of a thread block, by warps of a scheduler: 1, 2, ...
};
// Counts under the simulator, with LATHE_SIM_PROFILE=1; in size.segments, 0 being 1.
std::vector<KdaLaunchCounts> kda_counts(lathe_context* context, const KdaSize& size);

struct KdaPrediction {
  double microseconds = 0;
  double busy_microseconds = 0;   // what the device's rates allow
  double chain_microseconds = 0;  // thread blocks, one after another
  std::string bound;              // of the longest launch: a resource of sim/model, or "chain"
};
// Returns into how many segments a call of this size is cut on a device.
int64_t kda_chosen_segments(const KdaSize& size, const std::string& gpu);
// Returns bytes a second of the GPU's memory, as published.
double memory_rate(const std::string& gpu);
KdaPrediction kda_predict(const std::vector<KdaLaunchCounts>& launches, const std::string& gpu);

}  // namespace bench
