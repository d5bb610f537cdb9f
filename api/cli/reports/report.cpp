// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes reports as JSON.
#include "api/cli/reports/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "api/cli/reports/remarks.h"

namespace lathe::cli {
namespace {

// The costlier source wins when plans share a kernel.
int cost_of(const std::string& from) {
  if (from == "compiler") return 3;
  if (from == "disk") return 2;
  return from == "bundle" ? 1 : 0;
}

}  // namespace

Report::Report(const lathe_context* context) {
  const lathe_context_info about = context_info(context);
  device = device_word(about.device);
  device_name = about.device_name;
  arch = about.arch;
}

void Report::add(const lathe_plan* plan) {
  std::vector<KernelUse> uses = kernel_uses(plan);
  for (size_t i = 0; keep_ptx && i < uses.size(); ++i) {
    uses[i].ptx = kernel_text(plan, i, LATHE_TEXT_PTX);
  }
  add(uses);
}

void Report::add(const std::vector<KernelUse>& uses) {
  for (const KernelUse& use : uses) {
    const auto known = std::find_if(kernels.begin(), kernels.end(),
                                    [&](const KernelUse& old) { return old.key == use.key; });
    if (known == kernels.end()) {
      kernels.push_back(use);
    } else if (cost_of(use.from) > cost_of(known->from)) {
      known->from = use.from;
    }
  }
}

size_t Report::compiled() const {
  return static_cast<size_t>(std::count_if(
      kernels.begin(), kernels.end(), [](const KernelUse& use) { return use.from == "compiler"; }));
}

Json Report::json() const {
  Json out = {{"device", device}, {"device_name", device_name}, {"arch", arch}};
  out["kernels"] = Json::array();
  for (const KernelUse& use : kernels) {
    out["kernels"].push_back(
        {{"name", use.name}, {"key", use.key}, {"from", use.from}, {"family", use.family}});
  }
  out["compiled"] = compiled();
  out["hits"] = hits();
  return out;
}

std::vector<KernelUse> kernel_uses(const lathe_plan* plan) {
  std::vector<KernelUse> out;
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    const lathe_kernel_info kernel = kernel_info(plan, i);
    out.push_back({kernel.name, kernel.key, kernel.from, kernel.family});
  }
  return out;
}

lathe_kernel_info kernel_info(const lathe_plan* plan, size_t index) {
  return told<lathe_kernel_info>(lathe_plan_kernel, plan, index);
}

void print_json(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

std::string formatted(const char* pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  std::string out(static_cast<size_t>(std::vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  std::vsnprintf(out.data(), out.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return out;
}

}  // namespace lathe::cli
