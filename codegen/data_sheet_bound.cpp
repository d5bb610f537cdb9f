// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Bounds the time of a call by the rates of the device's data sheet.
#include <algorithm>

#include "codegen/device_facts.h"
#include "codegen/launch_shape.h"

namespace lathe {
namespace {

// From the measured cost of an empty launch on current devices: what a kernel takes at least.
constexpr double kLaunchMicroseconds = 2.0;

double microseconds(uint64_t work, double per_second) {
  return per_second > 0 ? 1e6 * static_cast<double>(work) / per_second : 0;
}

}  // namespace

DataSheetBound data_sheet_bound(const Cost& cost, uint64_t launches, const DeviceFacts& facts) {
  DataSheetBound out;
  out.memory_microseconds = microseconds(cost.bytes, facts.memory_bytes_per_second);
  out.tensor_microseconds = microseconds(cost.tensor_ops, facts.tensor_ops_per_second);
  out.launch_microseconds = kLaunchMicroseconds * static_cast<double>(launches);
  const double working = std::max(out.memory_microseconds, out.tensor_microseconds);
  if (out.tensor_microseconds > out.memory_microseconds) out.bound = "tensor";
  if (working == 0 && cost.bytes > 0) return out;
  out.microseconds = std::max(working, out.launch_microseconds);
  if (out.launch_microseconds >= working) out.bound = "launch";
  return out;
}

}  // namespace lathe
