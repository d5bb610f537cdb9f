// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run says this about itself: the object of --json.
#pragma once

#include <nlohmann/json.hpp>

#include "api/cli/device.h"

// Makes a struct of the library an object with these members of it, in this order.
#define LATHE_JSON_OBJECT(Type, ...)                                                          \
  inline void to_json(nlohmann::ordered_json& nlohmann_json_j, const Type& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))                  \
  }
LATHE_JSON_OBJECT(lathe_kernel_info, name, spec, family, family_reason, key, from, threads,
                  registers, smem_bytes, spill_bytes, stack_bytes, compile_ms)
LATHE_JSON_OBJECT(lathe_estimate, launches, bytes, minimum_bytes, flops, microseconds, bound,
                  tensor_ops, memory_microseconds, gpu, tensor_microseconds)
LATHE_JSON_OBJECT(lathe_tier_info, kind, path, entries, bytes, problem)
LATHE_JSON_OBJECT(lathe_tuned_report, changed, skipped, records, path)
LATHE_JSON_OBJECT(lathe_trim_report, removed, freed, temporaries, entries, bytes)

namespace lathe::cli {

using Json = nlohmann::ordered_json;

struct KernelUse {
  std::string name, key;
  std::string from;    // "compiler", "disk", "bundle", "memory"
  std::string family;  // "portable", "sm90"
  std::string ptx;     // if the report keeps it
};

struct Report {
  std::string device, device_name, arch;
  std::vector<KernelUse> kernels;
  bool keep_ptx = false;

  explicit Report(const lathe_context* context);
  // Kernels that several plans share are listed once, by where the first of them got it: what one
  // rank compiled and the others found in memory was compiled.
  void add(const lathe_plan* plan);
  void add(const std::vector<KernelUse>& uses);
  size_t compiled() const;
  size_t hits() const { return kernels.size() - compiled(); }
  Json json() const;
};

std::vector<KernelUse> kernel_uses(const lathe_plan* plan);
lathe_kernel_info kernel_info(const lathe_plan* plan, size_t index);

// Prints one object on standard output.
void print_json(const Json& json);
// Returns a text in the terms of printf.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* pattern, ...);

}  // namespace lathe::cli
