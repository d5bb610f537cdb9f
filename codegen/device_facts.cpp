// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists devices and their rates, from NVIDIA's published data sheets and the CUDA programming
// guide's table of technical specifications. Nothing here was measured.
#include "codegen/device_facts.h"

#include <algorithm>
#include <string_view>

#include "codegen/base/letters.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr int kKiB = 1024;
constexpr int kMiB = 1024 * 1024;

struct Gpu {
  const char* name;
  const char* driver_name;  // part of what the driver calls it; the longest that fits is the one
  const char* arch;
  int multiprocessors, shared_kib;  // of a multiprocessor; a block has one less
  int l2_mib;
  double clock_hz, memory_bytes_per_second, tensor_ops_per_second;
};

// The first of an architecture represents it. Tensor operations: the sheet's dense figure for
// float16 and bfloat16 with sums in float32, which on GeForce and on the L40 is half of that with
// sums in float16. Where a sheet gives a rate and no clock, the clock is what explains the rate.
constexpr Gpu kGpus[] = {
    // name, driver's name, arch, SMs, shared KiB, L2 MiB, clock, memory B/s, tensor op/s
    {"a100", "A100", "sm_80", 108, 164, 40, 1.41e9, 2.039e12, 312e12},
    {"a100-40gb", "A100-SXM4-40GB", "sm_80", 108, 164, 40, 1.41e9, 1.555e12, 312e12},
    {"a40", "A40", "sm_86", 84, 100, 6, 1.74e9, 0.696e12, 149.7e12},
    {"a10", "A10", "sm_86", 72, 100, 6, 1.695e9, 0.600e12, 125e12},
    {"rtx3090", "RTX 3090", "sm_86", 82, 100, 6, 1.695e9, 0.936e12, 71e12},
    {"l40s", "L40S", "sm_89", 142, 100, 96, 2.52e9, 0.864e12, 362.05e12},
    {"l40", "L40", "sm_89", 142, 100, 96, 2.49e9, 0.864e12, 181.05e12},
    {"l4", "L4", "sm_89", 58, 100, 48, 2.04e9, 0.300e12, 121e12},
    {"rtx4090", "RTX 4090", "sm_89", 128, 100, 72, 2.52e9, 1.008e12, 165.2e12},
    {"h100", "H100", "sm_90a", 132, 228, 50, 1.83e9, 3.35e12, 989.4e12},
    {"h100-pcie", "H100 PCIe", "sm_90a", 114, 228, 50, 1.62e9, 2.0e12, 756e12},
    {"h200", "H200", "sm_90a", 132, 228, 50, 1.83e9, 4.8e12, 989.4e12},
    {"b200", "B200", "sm_100", 148, 228, 126, 1.86e9, 8.0e12, 2250e12},
    {"rtx5090", "RTX 5090", "sm_120", 170, 100, 96, 2.407e9, 1.792e12, 209.5e12},
};

DeviceFacts facts_of(const Gpu& gpu) {
  return {.arch = gpu.arch,
          .gpu = gpu.name,
          .multiprocessors = gpu.multiprocessors,
          .shared_bytes_per_block = (gpu.shared_kib - 1) * kKiB,
          .shared_bytes_per_multiprocessor = gpu.shared_kib * kKiB,
          .l2_bytes = gpu.l2_mib * kMiB,
          .clock_hz = gpu.clock_hz,
          .memory_bytes_per_second = gpu.memory_bytes_per_second,
          .tensor_ops_per_second = gpu.tensor_ops_per_second};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), to_lower);
  return out;
}

// The part as a word of its own: "L4" is not in "NVIDIA L40S".
bool has_word(std::string_view name, std::string_view part) {
  const size_t at = name.find(part);
  if (at == name.npos) return false;
  const size_t end = at + part.size();
  return end == name.size() || !is_alphanumeric(name[end]);
}

}  // namespace

const std::vector<std::string>& supported_archs() {
  static const std::vector<std::string> archs = {"sm_80",  "sm_86",  "sm_89", "sm_90",
                                                 "sm_90a", "sm_100", "sm_120"};
  return archs;
}

Result<DeviceFacts> facts_of_arch(const std::string& arch) {
  // The same devices, without what only the name with the suffix has.
  const std::string_view device = arch == "sm_90" ? "sm_90a" : std::string_view(arch);
  for (const Gpu& gpu : kGpus) {
    if (device != gpu.arch) continue;
    DeviceFacts facts = facts_of(gpu);
    facts.arch = arch;
    return facts;
  }
  return Status(Code::unsupported,
                text("architecture ", in_quotes(arch), " is not supported; supported are ",
                     comma_list(supported_archs())));
}

std::vector<std::string> known_gpus() {
  std::vector<std::string> names;
  for (const Gpu& gpu : kGpus) names.push_back(gpu.name);
  return names;
}

Result<DeviceFacts> facts_of_gpu(const std::string& gpu) {
  for (const Gpu& each : kGpus) {
    if (lower(gpu) == each.name) return facts_of(each);
  }
  return Status(Code::unsupported, text("GPU ", in_quotes(gpu), " is not known; known are ",
                                        comma_list(known_gpus())));
}

void add_published_rates(const std::string& driver_name, DeviceFacts* facts) {
  const Gpu* found = nullptr;
  for (const Gpu& gpu : kGpus) {
    if (!has_word(driver_name, gpu.driver_name)) continue;
    const bool longer = !found || std::string_view(gpu.driver_name).size() >
                                      std::string_view(found->driver_name).size();
    if (longer) found = &gpu;
  }
  const Result<DeviceFacts> published =
      found ? Result<DeviceFacts>(facts_of(*found)) : facts_of_arch(facts->arch);
  if (!published.ok()) return;
  facts->gpu = published->gpu;
  facts->clock_hz = published->clock_hz;
  facts->memory_bytes_per_second = published->memory_bytes_per_second;
  facts->tensor_ops_per_second = published->tensor_ops_per_second;
}

Result<std::string> arch_of_capability(int major, int minor) {
  // Hopper's wgmma and TMA multicast exist under the name with the suffix only.
  if (major == 9 && minor == 0) return std::string("sm_90a");
  // Code for the first member of a generation runs on the later members, but for Hopper's.
  for (const int member : {minor, 0}) {
    const std::string arch = text("sm_", major, member);
    if (major != 9 && std::ranges::count(supported_archs(), arch) > 0) return arch;
  }
  return Status(Code::unsupported,
                text("devices of compute capability ", major, ".", minor,
                     " are not supported; supported are 8.x, 9.0, 10.x and 12.x"));
}

}  // namespace lathe
