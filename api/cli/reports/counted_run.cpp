// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe count`, which `lathe explain` starts: a plan runs once on the simulator that the
// environment describes. What comes out of it is of no use, as only some thread blocks run.
#include "api/cli/inputs/made_up.h"
#include "api/cli/inputs/safetensors.h"
#include "api/cli/options.h"
#include "api/cli/run.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct CountOptions {
  ProblemOptions problem;
  DeviceOptions device;
};

void run_once(lathe_context* context, const lathe_plan* plan, const DeviceTensors& tensors) {
  const std::vector<const DLTensor*> slots = slots_of(plan, tensors);
  size_t bytes = 0;
  check(lathe_plan_workspace(plan, slots.data(), nullptr, &bytes));
  const DeviceBytes workspace(context, bytes);
  const Stream stream(context);
  check(lathe_plan_run(plan, slots.data(), workspace.data(), bytes, stream.get()));
  check(lathe_stream_synchronize(context, stream.get()));
}

int count(const CountOptions& options) {
  Problem problem = problem_from(options.problem);
  const bool given = !options.problem.input.empty();
  const TensorMap values =
      given ? read_safetensors(options.problem.input) : made_up_integers(problem);
  Specs specs = problem.inputs;
  specs.insert(problem.outputs.begin(), problem.outputs.end());
  problem = make_problem(problem.op, problem.settings, specs, &values);
  const ProblemHandle handle = declare(problem);
  const Context context = open_context(options.device);
  const Plan plan = made<Plan>(lathe_plan_create, context.get(), handle.get());
  run_once(context.get(), plan.get(), on_device(context.get(), problem, values));
  return kDone;
}

}  // namespace

Action add_count(CLI::App* app) {
  auto* verb = app->add_subcommand("count", "what explain asks the simulator")->group("");
  const auto options = std::make_shared<CountOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"sim"});
  return [options] { return count(*options); };
}

}  // namespace lathe::cli
