// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe dump` prints the emitted source, the PTX, the key text or the machine code of the kernels
// of a problem.
#include <algorithm>
#include <cstdio>

#include "api/cli/code/disassemble.h"
#include "api/cli/options.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/remarks.h"

namespace lathe::cli {
namespace {

struct DumpOptions {
  ProblemOptions problem;
  DeviceOptions device;
  std::string what = "source", kernel;
};

// Returns what makes the text of a kernel.
std::function<std::string(const lathe_plan*, size_t)> text_of(const std::string& what) {
  const auto text = [](lathe_text which) {
    return [which](const lathe_plan* plan, size_t i) { return kernel_text(plan, i, which); };
  };
  if (what == "source") return text(LATHE_TEXT_SOURCE);
  if (what == "ptx") return text(LATHE_TEXT_PTX);
  if (what == "key") return text(LATHE_TEXT_KEY);
  if (what == "sass") {
    // It is looked for before any time is spent on compiling.
    return [program = disassembler()](const lathe_plan* plan, size_t i) {
      return machine_code(program, plan, i);
    };
  }
  refuse("--what is " + in_quotes(what) + ", allowed: source, ptx, key, sass");
}

int dump(const DumpOptions& options) {
  const auto text = text_of(options.what);
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
    const std::string shown = text(plan.get(), i);
    // One kernel alone comes out as it is, to be compiled or compared.
    if (options.kernel.empty() && kernels.size() > 1) {
      std::printf("%s// ---- %s\n", i == 0 ? "" : "\n", kernels[i].name.c_str());
    }
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    if (!shown.ends_with('\n')) std::printf("\n");
  }
  if (!found) {
    refuse("--kernel is ", in_quotes(options.kernel),
           ", this problem has: ", comma_list(kernels, &KernelUse::name));
  }
  return kDone;
}

}  // namespace

Action add_dump(CLI::App* app) {
  auto* verb = app->add_subcommand(
      "dump", "emitted source, PTX, key text or machine code of a problem's kernels");
  const auto options = std::make_shared<DumpOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"none", "auto", "cuda", "sim"});
  verb->add_option("--what", options->what,
                   "source, ptx, key, or sass: the machine code, by nvdisasm")
      ->capture_default_str();
  verb->add_option("--kernel", options->kernel, "only the kernel of this name");
  return [options] { return dump(*options); };
}

}  // namespace lathe::cli
