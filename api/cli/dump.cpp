// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe dump` prints the emitted source, the PTX or the key text of the kernels of a problem.
#include <algorithm>
#include <cstdio>

#include "api/cli/options.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {
namespace {

struct DumpOptions {
  ProblemOptions problem;
  DeviceOptions device;
  std::string what = "source", kernel;
};

lathe_text text_of(const std::string& what) {
  if (what == "source") return LATHE_TEXT_SOURCE;
  if (what == "ptx") return LATHE_TEXT_PTX;
  if (what == "key") return LATHE_TEXT_KEY;
  refuse("--what is " + in_quotes(what) + ", allowed: source, ptx, key");
}

int dump(const DumpOptions& options) {
  const lathe_text which = text_of(options.what);
  const Problem problem = problem_from(options.problem);
  const ProblemHandle handle = declare(problem);
  const Context context = open_context(options.device);
  Progress progress("compiling");
  const Plan plan = made<Plan>(lathe_plan_create, context.get(), handle.get());
  const std::vector<KernelUse> kernels = kernel_uses(plan.get());
  bool found = false;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!options.kernel.empty() && kernels[i].name != options.kernel) continue;
    found = true;
    const char* text = nullptr;
    size_t size = 0;
    check(lathe_plan_kernel_text(plan.get(), i, which, &text, &size));
    // One kernel alone comes out as it is, to be compiled or compared.
    if (options.kernel.empty() && kernels.size() > 1) {
      std::printf("%s// ---- %s\n", i == 0 ? "" : "\n", kernels[i].name.c_str());
    }
    std::fwrite(text, 1, size, stdout);
    if (size == 0 || text[size - 1] != '\n') std::printf("\n");
  }
  if (!found) {
    refuse("--kernel is ", in_quotes(options.kernel),
           ", this problem has: ", comma_list(kernels, &KernelUse::name));
  }
  return kDone;
}

}  // namespace

Action add_dump(CLI::App* app) {
  auto* verb =
      app->add_subcommand("dump", "emitted source, PTX or key text of a problem's kernels");
  const auto options = std::make_shared<DumpOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"none", "auto", "cuda", "sim"});
  verb->add_option("--what", options->what, "source, ptx or key")->capture_default_str();
  verb->add_option("--kernel", options->kernel, "only the kernel of this name");
  return [options] { return dump(*options); };
}

}  // namespace lathe::cli
