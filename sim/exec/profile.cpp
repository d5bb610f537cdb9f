// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file lists the devices that can be simulated.
#include <array>

#include "sim/exec/launch.h"

namespace sim {
namespace {

// An A100 is the base of the sm_8x parts, an H100 of the sm_90 ones (the defaults of Profile).
Profile ampere_a100() {
  Profile p;
  p.arch = "sm_80";
  p.gpu = "a100";
  p.name = "NVIDIA A100-SXM4-80GB";
  p.major = 8;
  p.multiprocessors = 108;
  p.shared_per_multiprocessor = 167936;
  p.shared_per_block_optin = 166912;
  p.l2_bytes = 41943040;
  p.clusters = false;
  p.memory_bytes = 80ull << 30;
  p.memory_bytes_per_second = 2.039e12;
  p.clock_hz = 1.41e9;
  return p;
}

// Parts with fewer threads and less shared memory per multiprocessor.
struct Small {
  const char *gpu, *name;
  int minor, multiprocessors, blocks, l2_bytes;
  uint64_t memory_gib;
  double memory_bytes_per_second, clock_hz;
};

Profile small(const Small& s) {
  Profile p;
  p.arch = "sm_8" + std::to_string(s.minor);
  p.gpu = s.gpu;
  p.name = s.name;
  p.major = 8;
  p.minor = s.minor;
  p.multiprocessors = s.multiprocessors;
  p.threads_per_multiprocessor = 1536;
  p.blocks_per_multiprocessor = s.blocks;
  p.shared_per_multiprocessor = 102400;
  p.shared_per_block_optin = 101376;
  p.l2_bytes = s.l2_bytes;
  p.clusters = false;
  p.memory_bytes = s.memory_gib << 30;
  p.memory_bytes_per_second = s.memory_bytes_per_second;
  p.clock_hz = s.clock_hz;
  return p;
}

Profile hopper(const char* gpu, const char* name, uint64_t memory_gib, double bytes_per_second) {
  Profile p;
  p.arch = "sm_90a";
  p.gpu = gpu;
  p.name = name;
  p.memory_bytes = memory_gib << 30;
  p.memory_bytes_per_second = bytes_per_second;
  p.clock_hz = 1.98e9;
  return p;
}

// The first of an architecture is the one LATHE_SIM_ARCH means.
const std::array<Profile, 9>& profiles() {
  static const std::array<Profile, 9> kProfiles = {
      ampere_a100(),
      small({"a10", "NVIDIA A10", 6, 72, 16, 6291456, 24, 6.0e11, 1.695e9}),
      small({"a40", "NVIDIA A40", 6, 84, 16, 6291456, 48, 6.96e11, 1.74e9}),
      small({"l40s", "NVIDIA L40S", 9, 142, 24, 100663296, 48, 8.64e11, 2.52e9}),
      small({"l4", "NVIDIA L4", 9, 58, 24, 50331648, 24, 3.0e11, 2.04e9}),
      small({"rtx3090", "NVIDIA GeForce RTX 3090", 6, 82, 16, 6291456, 24, 9.36e11, 1.695e9}),
      small({"rtx4090", "NVIDIA GeForce RTX 4090", 9, 128, 24, 75497472, 24, 1.008e12, 2.52e9}),
      hopper("h100", "NVIDIA H100 80GB HBM3", 80, 3.35e12),
      hopper("h200", "NVIDIA H200", 141, 4.8e12),
  };
  return kProfiles;
}

}  // namespace

const Profile* find_profile(const std::string& arch) {
  for (const Profile& p : profiles()) {
    if (p.arch == arch) return &p;
  }
  if (arch != "sm_90") return nullptr;
  static const Profile kPlain = [] {  // the same device, without what only sm_90a has
    Profile p = *find_profile("sm_90a");
    p.arch = "sm_90";
    return p;
  }();
  return &kPlain;
}

const Profile* find_gpu(const std::string& gpu) {
  for (const Profile& p : profiles()) {
    if (p.gpu == gpu) return &p;
  }
  return nullptr;
}

std::string gpu_names() {
  std::string names;
  for (const Profile& p : profiles()) names += (names.empty() ? "" : ", ") + p.gpu;
  return names;
}

}  // namespace sim
