// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe run` runs one operator on safetensors files.
#include "api/cli/run.h"

#include <cstdio>

#include "api/cli/inputs/safetensors.h"
#include "api/cli/output.h"
#include "api/cli/reports/progress.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

// Writes "kda ran on the simulator (sm_90a) in 12 ms: 2 kernels, 1 compiled (310 ms to prepare), 1
// from the cache"
std::string summary(const std::string& op, const Report& report, const StageTimes& times) {
  const auto ms = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, value < 10 ? "%.2f ms" : "%.0f ms", value);
    return std::string(text);
  };
  const size_t kernels = report.kernels.size();
  const std::string device = report.device == "sim" ? "the simulator" : report.device_name;
  std::string out = op + " ran on " + device + " (" + report.arch + ") in " + ms(times.run) + ": " +
                    std::to_string(kernels) + (kernels == 1 ? " kernel, " : " kernels, ");
  if (report.compiled() > 0) {
    out += std::to_string(report.compiled()) + " compiled (" + ms(times.prepare) + " to prepare), ";
  }
  return out + std::to_string(report.hits()) + " from the cache";
}

int run(const RunOptions& options) {
  Progress progress("reading");
  const Task task = load_task(options);
  progress.stage("compiling and running " + options.op);
  const Context context = open_context(options.device);
  Report report(context.get());
  StageTimes times;
  const TensorMap outputs =
      execute(context.get(), task.problem, task.inputs, task.ranks, &report, &times);
  write_safetensors_file(options.output, outputs);
  if (options.json) print_json(report.json());
  if (!options.quiet) say(summary(options.op, report, times));
  return kDone;
}

}  // namespace

void add_run_flags(CLI::App* verb, RunOptions* options, const std::vector<std::string>& devices) {
  add_operator(verb, &options->op);
  verb->add_option("--input", options->input, "safetensors file with the inputs")->required();
  verb->add_option("--output", options->output, "safetensors file to write; a link is not followed")
      ->required();
  add_set_flag(verb, &options->set);
  add_rank_flags(verb, &options->ranks);
  add_device_flags(verb, &options->device, devices);
  add_json_flag(verb, &options->json);
}

Task load_task(const RunOptions& options) {
  Task task;
  const auto* op = find_operator(options.op);
  task.ranks = parse_ranks(options.ranks, op);
  const Settings settings = parse_settings(options.set);
  check_apart("--output", options.output, "--input", options.input);
  check_output("--output", options.output);
  task.inputs = read_safetensors(options.input);
  Specs specs;
  for (const auto& [name, tensor] : task.inputs) specs[name] = tensor.spec;
  task.problem = make_problem(op, settings, specs, &task.inputs);
  for (const auto& [name, tensor] : task.inputs) {
    if (task.problem.tensors.at(name).read) continue;
    refuse("tensor " + in_quotes(name) + " is an output of " + op->name +
           ", the input file must not hold it");
  }
  declare(task.problem);  // the library's own objections, before any device is opened
  return task;
}

Action add_run(CLI::App* app) {
  auto* verb = app->add_subcommand("run", "run one operator on safetensors files");
  const auto options = std::make_shared<RunOptions>();
  add_run_flags(verb, options.get(), {"auto", "cuda", "sim"});
  verb->add_flag("-q,--quiet", options->quiet, "do not say on standard error what ran where");
  return [options] { return run(*options); };
}

}  // namespace lathe::cli
