// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One representative device per architecture, from NVIDIA's published data sheets and the CUDA
// programming guide's table of technical specifications.
#include "codegen/device_facts.h"

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr int kKiB = 1024;
constexpr int kMiB = 1024 * 1024;

const std::vector<DeviceFacts>& table() {
  static const std::vector<DeviceFacts> facts = {
      // arch, SMs, shared memory per block and per SM, registers per SM, L2, memory bandwidth
      {"sm_80", 108, 163 * kKiB, 164 * kKiB, 65536, 40 * kMiB, 1.555e12},  // A100 40 GB
      {"sm_86", 84, 99 * kKiB, 100 * kKiB, 65536, 6 * kMiB, 0.696e12},     // A40
      {"sm_89", 142, 99 * kKiB, 100 * kKiB, 65536, 96 * kMiB, 0.864e12},   // L40S
      {"sm_90", 132, 227 * kKiB, 228 * kKiB, 65536, 50 * kMiB, 3.35e12},   // H100 SXM
      {"sm_90a", 132, 227 * kKiB, 228 * kKiB, 65536, 50 * kMiB, 3.35e12},  // H100 SXM
      {"sm_100", 148, 227 * kKiB, 228 * kKiB, 65536, 126 * kMiB, 8.0e12},  // B200
      {"sm_120", 170, 99 * kKiB, 100 * kKiB, 65536, 96 * kMiB, 1.792e12},  // RTX 5090
  };
  return facts;
}

}  // namespace

const std::vector<std::string>& supported_archs() {
  static const std::vector<std::string> archs = [] {
    std::vector<std::string> names;
    for (const DeviceFacts& facts : table()) names.push_back(facts.arch);
    return names;
  }();
  return archs;
}

Result<DeviceFacts> facts_of_arch(const std::string& arch) {
  std::string known;
  for (const DeviceFacts& facts : table()) {
    if (facts.arch == arch) return facts;
    known += (known.empty() ? "" : ", ") + facts.arch;
  }
  return Status(Code::unsupported,
                text("architecture '", arch, "' is not supported; supported are ", known));
}

Result<std::string> arch_of_capability(int major, int minor) {
  // Hopper's wgmma and TMA multicast exist under the name with the suffix only.
  if (major == 9 && minor == 0) return std::string("sm_90a");
  // Code for the first member of a generation runs on the later members.
  const std::string exact = text("sm_", major, minor);
  for (const std::string& arch : supported_archs()) {
    if (arch == exact) return exact;
  }
  if (major == 8) return std::string("sm_80");
  if (major == 10) return std::string("sm_100");
  if (major == 12) return std::string("sm_120");
  return Status(Code::unsupported,
                text("devices of compute capability ", major, ".", minor,
                     " are not supported; supported are 8.x, 9.0, 10.x and 12.x"));
}

}  // namespace lathe
