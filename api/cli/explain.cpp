// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe explain`: which kernels would run, of which constants they are made, what they cost.
#include <algorithm>
#include <optional>

#include "api/cli/reports/explained.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/remarks.h"
#include "api/cli/reports/source_lines.h"

namespace lathe::cli {
namespace {

struct ExplainOptions {
  ProblemOptions problem;
  DeviceOptions device;
  std::string gpus;  // "h100,a100"
  bool formulas = false;
  bool clock = false;
  std::string picture;  // what the names of its files begin with
  bool json = false;
};

// Bytes and time need lengths; with an open extent there are none.
std::optional<lathe_estimate> estimate(const lathe_plan* plan, const Problem& problem) {
  const Specs specs = problem.all();
  std::map<std::string, DLTensor> tensors;
  for (const auto& [name, spec] : specs) {
    if (std::ranges::count(spec.shape, -1) > 0) return std::nullopt;
    tensors[name] = dlpack(spec);
  }
  return told<lathe_estimate>(lathe_plan_estimate, plan, slots_of(plan, tensors).data(),
                              static_cast<const lathe_shard*>(nullptr));
}

// The dims whose extents may differ from run to run without a new kernel, in the tensors' order.
Json varying_dims(const Problem& problem) {
  Json out = Json::array();
  for (const auto& tensor : tensors_of(*problem.op)) {
    const auto found = problem.tensors.find(tensor.name);
    if (found == problem.tensors.end()) continue;
    const lathe_tensor_info& info = found->second;
    for (int d = 0; d < info.rank; ++d) {
      const bool listed = std::ranges::find(out, info.dims[d]) != out.end();
      if (info.varies[d] && !listed) out.push_back(info.dims[d]);
    }
  }
  return out;
}

Json tensors_json(const Specs& specs) {
  Json out = Json::array();
  for (const auto& [name, spec] : specs) {
    out.push_back(name + " " + info(spec.dtype).word + shape_text(spec.shape));
  }
  return out;
}

// Says of a user's kernel which of its lines take the time.
void name_lines(const lathe_plan* plan, const std::string& op, Json* clock) {
  if (clock->is_null()) return;
  std::vector<std::string> ptx;
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    ptx.push_back(kernel_text(plan, i, LATHE_TEXT_PTX));
  }
  const SourceLines source(op, ptx);
  for (Json& kernel : clock->at("kernels")) {
    for (Json& line : kernel.at("lines")) source.name(&line);
  }
}

// Fills "counted", or says in "not_counted" why it is null, and "clock" where the clock knows the
// GPU.
void count_into(Json* report, const ExplainOptions& options, const lathe_plan* plan,
                const lathe_estimate& cost) {
  std::string& missing = (*report)["not_counted"].get_ref<std::string&>();
  if (options.formulas) {
    missing = "--formulas was given";
    return;
  }
  if (*cost.gpu == '\0') {
    missing = "nothing is known of this device";
    return;
  }
  // A GPU's name tells the pictures of several apart.
  const std::string picture = options.picture.empty() ? "" : options.picture + cost.gpu + "-";
  const Counts counts = count_launches(
      {options.problem, {"sim", (*report)["arch"], options.device.cache_dir}, picture}, cost.gpu);
  missing = counts.missing;
  if (!missing.empty()) return;
  (*report)["counted"] = counts_json(plan, counts.launches);
  if ((*report)["counted"].is_null()) {
    (*report)["not_counted"] = "the simulated device is given other kernels";
  }
  // A call of which the clock replayed some launches alone has no time by it.
  const bool whole = counts.clock.size() == counts.launches.size();
  Json clock = whole ? clock_json(plan, counts.clock, cost.gpu) : Json();
  name_lines(plan, options.problem.op, &clock);
  if (!clock.is_null()) (*report)["clock"].push_back(clock);
  if (options.clock && clock.is_null())
    refuse("--clock: the simulator's clock knows a100, h100 and h200, not ", cost.gpu);
}

Json explained(const ExplainOptions& options, const Problem& problem, Progress* progress) {
  const ProblemHandle handle = declare(problem);
  const Context context = open_context(options.device);
  const Plan plan = made<Plan>(lathe_plan_create, context.get(), handle.get());
  const Report about(context.get());
  Json report = {{"op", problem.op->name}, {"device", about.device}, {"arch", about.arch}};
  report["inputs"] = tensors_json(problem.inputs);
  report["outputs"] = tensors_json(problem.outputs);
  report["kernels"] = Json::array();
  for (size_t i = 0; i < lathe_plan_kernel_count(plan.get()); ++i) {
    report["kernels"].push_back(kernel_info(plan.get(), i));
    report["kernels"].back()["remarks"] = kernel_remarks(plan.get(), i);
  }
  report["varies"] = varying_dims(problem);
  report["estimate"] = nullptr;
  report["counted"] = nullptr;
  report["not_counted"] = "an extent is open";
  report["prediction"] = nullptr;
  const auto cost = estimate(plan.get(), problem);
  if (!cost) return report;
  report["estimate"] = *cost;
  progress->stage("counting for " + std::string(cost->gpu));
  count_into(&report, options, plan.get(), *cost);
  report["prediction"] = prediction_json(
      *cost, report["counted"], report.contains("clock") ? report["clock"].front() : Json());
  return report;
}

// One set of options for each GPU that is named.
std::vector<ExplainOptions> each_gpu(const ExplainOptions& options) {
  if (options.gpus.empty()) return {options};
  if (options.device.device != "none") {
    refuse("--device is ", in_quotes(options.device.device), ", allowed with --gpu: none");
  }
  std::vector<ExplainOptions> out;
  for (const std::string& gpu : split(options.gpus, ',')) {
    if (gpu.empty()) refuse("--gpu is ", in_quotes(options.gpus), ", expected NAME,NAME,...");
    out.push_back(options);
    out.back().device.arch = gpu;
  }
  return out;
}

void check_clocks(const std::vector<Json>& reports) {
  for (const Json& report : reports) {
    if (report.contains("clock")) continue;
    refuse("--clock needs what the simulator counts: ",
           report.at("not_counted").get<std::string>());
  }
}

int explain(const ExplainOptions& options) {
  const std::vector<ExplainOptions> each = each_gpu(options);
  const Problem problem = problem_from(options.problem);
  Progress progress("compiling");
  std::vector<Json> reports;
  for (const ExplainOptions& one : each) reports.push_back(explained(one, problem, &progress));
  if (reports.size() > 1 && reports.front()["estimate"].is_null()) {
    refuse("--gpu names several GPUs, which needs every extent (no -1)");
  }
  if (options.clock) check_clocks(reports);
  if (reports.size() == 1) {
    (options.json ? print_json : print_explained)(reports.front());
  } else if (options.json) {
    Json all = {{"op", problem.op->name}, {"gpus", reports}};
    for (const Json& report : reports) {
      if (options.clock) all["clock"].push_back(report.at("clock").front());
    }
    print_json(all);
  } else {
    print_side_by_side(reports);
  }
  for (const Json& report : reports) {
    if (options.json || !options.clock) break;
    print_clock(report.at("clock").front());
  }
  return kDone;
}

}  // namespace

Action add_explain(CLI::App* app) {
  auto* verb = app->add_subcommand("explain", "what would run, why, and what it costs");
  const auto options = std::make_shared<ExplainOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"none", "auto", "cuda", "sim"});
  verb->add_option("--gpu", options->gpus,
                   "GPUs by name, such as h100,h200,a100: how long it takes on each, side by side")
      ->excludes("--arch");
  verb->add_flag(
      "--formulas", options->formulas,
      "formulas and the GPU's data sheet alone, a bound from below; by default the simulator runs "
      "some thread blocks (with --input, on its data), counts, and its clock tells the time");
  verb->add_flag("--clock", options->clock,
                 "also tell why the clock's time is what it is: what each kernel keeps busy, and "
                 "what its warps wait for, at which lines")
      ->excludes("--formulas");
  verb->add_option(
          "--picture", options->picture,
          "with --clock: also draws the warps of each launch in time, in PICTUREh100-0.svg and, "
          "for Perfetto, PICTUREh100-0.json")
      ->needs("--clock");
  add_json_flag(verb, &options->json);
  return [options] { return explain(*options); };
}

}  // namespace lathe::cli
