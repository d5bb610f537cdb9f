// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe check`: run under all checkers of the simulator and tell what they found.
#include <cstdlib>

#include "api/cli/inputs/safetensors.h"
#include "api/cli/reports/line_file.h"
#include "api/cli/reports/profile.h"
#include "api/cli/reports/progress.h"
#include "api/cli/run.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct Findings {
  Json list = Json::array();
  Json launches = Json::array();
};

std::string position_text(const Json& entry, const char* name) {
  return comma_list(entry.value(name, Json::array()), [](const Json& item) { return item.dump(); });
}

// Every kernel's entry point has the same name, so the plan's kernels are named instead.
std::string finding_text(const Json& entry, const std::string& kernels) {
  std::string out = entry.value("check", "finding") + " " + entry.value("kind", "") + ": " +
                    entry.value("text", "");
  if (entry.value("kernel", "").empty()) return out;
  out += "\n    in " + kernels + ", cta (" + position_text(entry, "cta") + "), thread (" +
         position_text(entry, "thread") + "), PTX line " +
         std::to_string(entry.value("ptx_line", 0));
  const std::string source = entry.value("source", "");
  return source.empty() ? out : out + ", " + source;
}

std::string seed_text() {
  const char* seed = std::getenv("LATHE_SIM_SEED");
  return seed && *seed ? seed : "0";
}

void print_findings(const Findings& findings, const Report& report) {
  const std::string kernels =
      (report.kernels.size() > 1 ? "one of " : "") + comma_list(report.kernels, &KernelUse::name);
  for (const Json& entry : findings.list) {
    std::printf("%s\n", finding_text(entry, kernels).c_str());
  }
  std::printf("%zu findings in %zu launches (seed %s)\n", findings.list.size(),
              findings.launches.size(), seed_text().c_str());
}

// `lines`: of the profile; 0: none is wanted.
int check_operator(RunOptions options, size_t lines) {
  const Task task = load_task(options);
  Progress progress("checking " + options.op);
  const LineFile report_file("findings"), counters_file("counters");
  // The simulator reads its environment once, when the first context loads it.
  setenv("LATHE_SIM_CHECK", "all", 1);
  setenv("LATHE_SIM_REPORT", report_file.path().c_str(), 1);
  setenv("LATHE_SIM_COUNTERS", counters_file.path().c_str(), 1);
  setenv("LATHE_SIM_QUIET", "1", 1);
  if (lines > 0) setenv("LATHE_SIM_PROFILE", "1", 1);
  options.device.device = "sim";
  Context context = open_context(options.device);
  Report report(context.get());
  StageTimes times;
  TensorMap outputs;
  std::exception_ptr failure;
  try {
    outputs = execute(context.get(), task.problem, task.inputs, task.ranks, &report, &times);
  } catch (const Failure&) {
    failure = std::current_exception();
  }
  context.reset();  // leaks are found when everything should be gone
  constexpr const char* kWhat = "the simulator's report has";
  const Findings findings{report_file.lines(kWhat), counters_file.lines(kWhat)};
  if (failure && findings.list.empty()) std::rethrow_exception(failure);
  if (!failure) write_safetensors_file(options.output, outputs);
  if (options.json) {
    Json json = report.json();
    json["seed"] = seed_text();
    json["launches"] = findings.launches.size();
    json["findings"] = findings.list;
    if (lines > 0) json["profile"] = profile_of(findings.launches, lines);
    print_json(json);
  } else {
    print_findings(findings, report);
    if (lines > 0) print_profile(profile_of(findings.launches, lines));
  }
  return findings.list.empty() ? kDone : kFindings;
}

}  // namespace

Action add_check(CLI::App* app) {
  auto* verb = app->add_subcommand("check", "run an operator under the simulator's checkers");
  const auto options = std::make_shared<RunOptions>();
  add_run_flags(verb, options.get(), {"auto", "sim"});
  const auto lines = std::make_shared<size_t>(0);
  // The bare flag means 20 lines; a flag's value must be joined by "=", so that it is no input.
  verb->add_flag("--profile{20}", *lines,
                 "the PTX lines that execute most, and a cost model's view");
  return [options, lines] { return check_operator(*options, *lines); };
}

}  // namespace lathe::cli
