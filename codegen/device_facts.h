// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the numbers of a device that choices depend on: from the driver, or by name where there is
// no GPU.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

class Choices;  // codegen/choice.h

// One form of a kernel that the compiler made slow for the problem at hand: another is to be
// chosen. A kernel may have further forms, which take fewer registers.
struct RejectedKernel {
  std::string kernel, spec, reason;  // `spec`: its text
};

struct DeviceFacts {
  std::string arch;  // "sm_90a": what is passed to NVRTC
  std::string gpu;   // "h100": whose published rates the last three are; empty: of nobody
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  // the opt-in limit
  int shared_bytes_per_multiprocessor = 0;
  int registers_per_multiprocessor = 65536;
  int l2_bytes = 0;
  // Which kernels a plan may take: "portable" ones alone, or those of every family ("auto",
  // "sm90"); and the reason that others get.
  std::string family = "portable", family_reason = "LATHE_FAMILY is portable";
  double clock_hz = 0;                     // boost
  double memory_bytes_per_second = 0;      // published peak, for estimates
  double tensor_ops_per_second = 0;        // the same: dense 16-bit products, sums in float32
  std::shared_ptr<const Choices> choices;  // of tiles, measured on it; null: none
  std::vector<RejectedKernel> rejected;    // for the problem that is being planned

  // Returns why no kernel of one architecture alone is to be chosen; empty: they may be.
  std::string family_refusal() const { return family == "portable" ? family_reason : ""; }
  // Returns why a kernel that has `forms` is not to be chosen; empty if one of them is left.
  std::string rejection(std::string_view kernel, int forms = 1) const {
    for (const RejectedKernel& each : rejected) {
      if (each.kernel == kernel && --forms == 0) return each.reason;
    }
    return {};
  }
  // Returns the form to be tried next: how many were rejected.
  int form(std::string_view kernel) const {
    int count = 0;
    for (const RejectedKernel& each : rejected) count += each.kernel == kernel;
    return count;
  }
  // Rejects a form of a kernel, once where several specs have it: the first `known` entries are of
  // forms before it. A spec that was chosen although it is rejected stays: its step has no other.
  void reject(const std::string& kernel, const std::string& spec, const std::string& reason,
              size_t known) {
    for (size_t i = 0; i < rejected.size(); ++i) {
      if (rejected[i].spec == spec || (i >= known && rejected[i].kernel == kernel)) return;
    }
    rejected.push_back({kernel, spec, reason});
  }
};

// Returns the architectures lathe compiles for, in the order of the support matrix.
const std::vector<std::string>& supported_archs();

// Facts of a representative device of an architecture; fails naming the archs there are.
Result<DeviceFacts> facts_of_arch(const std::string& arch);

// The GPUs whose data sheets are known, by name ("h200"); fails naming those there are.
std::vector<std::string> known_gpus();
Result<DeviceFacts> facts_of_gpu(const std::string& gpu);

// The rates that are published for a device of this name, as the driver calls it; of the
// representative of facts.arch if the name is unknown. The other facts stay.
void add_published_rates(const std::string& driver_name, DeviceFacts* facts);

// Returns "sm_90a" for 9.0 and so on: the name under which a device of this compute capability
// compiles.
Result<std::string> arch_of_capability(int major, int minor);

}  // namespace lathe
