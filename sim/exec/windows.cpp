// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles process-wide facts: reserved address windows, the choice of instruction set,
// time.
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "sim/exec/launch.h"
#include "sim/exec/warp.h"

namespace sim {

namespace base {
extern const Isa kIsa;
}
#ifdef SIM_HAVE_X86_LEVELS
namespace avx2 {
extern const Isa kIsa;
}
namespace avx512 {
extern const Isa kIsa;
}
#endif

namespace {

Windows reserve() {
  const uint64_t bytes = kSharedWindow + kLocalWindow + kParamWindow;
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Windows w;
  // Without a reservation: addresses that no user-space mapping can have.
  w.shared = at == MAP_FAILED ? 1ull << 62 : reinterpret_cast<uint64_t>(at);
  w.local = w.shared + kSharedWindow;
  w.param = w.local + kLocalWindow;
  w.end = w.param + kParamWindow;
  return w;
}

// Lists what this machine can run, the best last.
std::vector<const Isa*> available() {
  std::vector<const Isa*> out = {&base::kIsa};
#ifdef SIM_HAVE_X86_LEVELS
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  if (v3) out.push_back(&avx2::kIsa);
  if (v4) out.push_back(&avx512::kIsa);
#endif
  return out;
}

// Returns the instruction set that LATHE_SIM_ISA names; null if it names none of them.
const Isa* named() {
  const char* wanted = std::getenv("LATHE_SIM_ISA");
  const std::vector<const Isa*> all = available();
  if (wanted == nullptr || *wanted == '\0') return all.back();
  for (const Isa* each : all) {
    if (std::strcmp(wanted, each->name) == 0) return each;
  }
  return nullptr;
}

}  // namespace

const Windows& windows() {
  static const Windows kWindows = reserve();
  return kWindows;
}

const Isa& isa() {
  static const Isa* const kChosen = named();
  return kChosen ? *kChosen : *available().back();
}

std::string isa_refused() {
  if (named() != nullptr) return "";
  std::string allowed;
  for (const Isa* each : available())
    allowed += (allowed.empty() ? "" : ", ") + std::string(each->name);
  return allowed + " (what this build has and this machine runs)";
}

uint64_t global_timer() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint64_t next_random(uint64_t& state) {
  state += 0x9E3779B97F4A7C15ull;
  return mix(state);
}

}  // namespace sim
