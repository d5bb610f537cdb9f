// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The devices that can be simulated.
#include "sim/exec/launch.h"

namespace sim {
namespace {

Profile ampere_a100() {
  Profile p;
  p.arch = "sm_80";
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

// Consumer-sized parts: fewer threads and less shared memory per multiprocessor.
Profile small(const char* arch, const char* name, int minor, int multiprocessors, int blocks) {
  Profile p;
  p.arch = arch;
  p.name = name;
  p.major = 8;
  p.minor = minor;
  p.multiprocessors = multiprocessors;
  p.threads_per_multiprocessor = 1536;
  p.blocks_per_multiprocessor = blocks;
  p.shared_per_multiprocessor = 102400;
  p.shared_per_block_optin = 101376;
  p.clusters = false;
  return p;
}

Profile ampere_a10() {
  Profile p = small("sm_86", "NVIDIA A10", 6, 72, 16);
  p.l2_bytes = 6291456;
  p.memory_bytes = 24ull << 30;
  p.memory_bytes_per_second = 6.0e11;
  p.clock_hz = 1.695e9;
  return p;
}

Profile ada_l40s() {
  Profile p = small("sm_89", "NVIDIA L40S", 9, 142, 24);
  p.l2_bytes = 100663296;
  p.memory_bytes = 48ull << 30;
  p.memory_bytes_per_second = 8.64e11;
  p.clock_hz = 2.52e9;
  return p;
}

Profile hopper_h100(const char* arch) {
  Profile p;  // the defaults are this device
  p.arch = arch;
  p.name = "NVIDIA H100 80GB HBM3";
  p.memory_bytes = 80ull << 30;
  p.memory_bytes_per_second = 3.35e12;
  p.clock_hz = 1.98e9;
  return p;
}

}  // namespace

const Profile* find_profile(const std::string& arch) {
  static const Profile kProfiles[] = {ampere_a100(), ampere_a10(), ada_l40s(), hopper_h100("sm_90"),
                                      hopper_h100("sm_90a")};
  for (const Profile& p : kProfiles) {
    if (p.arch == arch) return &p;
  }
  return nullptr;
}

}  // namespace sim
