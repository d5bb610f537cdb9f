// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe check` runs under all checkers of the simulator and tells what they found.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

#include "api/cli/inputs/safetensors.h"
#include "api/cli/reference/reference.h"
#include "api/cli/reports/explained.h"
#include "api/cli/reports/line_file.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/source_lines.h"
#include "api/cli/run.h"

namespace lathe::cli {
namespace {

struct Findings {
  Json list = Json::array();
  Json launches = Json::array();
};

std::string position_text(const Json& entry, const char* name) {
  return comma_list(entry.value(name, Json::array()), [](const Json& item) { return item.dump(); });
}

// "\n        FILE:9: sum += part[i];", where the line of a user's kernel is known.
std::string line_text(const Json& place) {
  if (!place.contains("source_text")) return {};
  const std::string where = place.value("called_from", place.value("source", ""));
  return text("\n        ", where, ": ", place.value("source_text", ""));
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
  if (!source.empty()) out += ", " + source;
  return out + line_text(entry) + line_text(entry.value("other", Json::object()));
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

constexpr const char* kCounts[] = {
    "executions",      "thread_instructions", "global_requests",   "global_bytes", "global_sectors",
    "shared_requests", "shared_bytes",        "shared_wavefronts", "tensor_ops",   "barrier_waits"};

unsigned long long count_at(const Json& entry, const char* name) {
  return entry.value(name, uint64_t{0});
}

// Kernels share the name of their entry point, so a line is told by its text and place as well.
using Place = std::tuple<std::string, std::string, int, std::string>;

Place place_of(const std::string& kernel, const Json& line) {
  return {kernel, line.value("source", ""), line.value("ptx_line", 0), line.value("text", "")};
}

std::string launch_shape(const Json& launch) {
  const Json grid = launch.value("grid", Json::array()),
             block = launch.value("block", Json::array());
  return grid.dump() + " x " + block.dump();
}

// From the simulator's lines about launches: {"launches": n, "predicted": [...], "lines": [...]};
// the lines that execute most come first, `most` of them.
Json profile_of(const Json& launches, size_t most) {
  std::map<Place, Json> lines;
  Json predicted = Json::array();
  for (const Json& launch : launches) {
    const std::string kernel = launch.value("kernel", "");
    if (launch.contains("predicted")) {
      Json each = launch["predicted"];
      each["kernel"] = kernel;
      each["shape"] = launch_shape(launch);
      predicted.push_back(std::move(each));
    }
    for (const Json& line : launch.value("lines", Json::array())) {
      Json& sum = lines.emplace(place_of(kernel, line), line).first->second;
      if (sum.contains("kernel")) {
        for (const char* name : kCounts) sum[name] = count_at(sum, name) + count_at(line, name);
      }
      sum["kernel"] = kernel;
    }
  }
  std::vector<Json> sorted;
  uint64_t all = 0;
  for (auto& [place, line] : lines) {
    all += count_at(line, "executions");
    sorted.push_back(std::move(line));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Json& a, const Json& b) {
    return count_at(a, "executions") > count_at(b, "executions");
  });
  if (sorted.size() > most) sorted.resize(most);
  for (Json& line : sorted) {
    const double share = static_cast<double>(count_at(line, "executions"));
    line["share"] = all == 0 ? 0.0 : share / static_cast<double>(all);
  }
  return {{"launches", launches.size()},
          {"warp_instructions", all},
          {"predicted", std::move(predicted)},
          {"lines", std::move(sorted)}};
}

// Prints the least times by a data sheet: for a GPU that the clock does not know.
void print_bounds(const Json& profile) {
  for (const Json& each : profile["predicted"]) {
    std::printf("%s %s: at least %.2f us by the data sheet of %s (%llu cycles), bound: %s\n",
                each.value("kernel", "").c_str(), each.value("shape", "").c_str(),
                each.value("seconds", 0.0) * 1e6, each.value("gpu", "").c_str(),
                count_at(each, "cycles"), each.value("bound", "").c_str());
  }
}

void print_profile(const Json& profile) {
  std::printf("%6s %12s %12s %12s %14s  %s\n", "share", "executions", "sectors", "wavefronts",
              "tensor ops", "line");
  for (const Json& line : profile["lines"]) {
    const std::string source = line.value("source", "");
    std::printf("%5.1f%% %12llu %12llu %12llu %14llu  %d: %s%s%s\n", 100 * line.value("share", 0.0),
                count_at(line, "executions"), count_at(line, "global_sectors"),
                count_at(line, "shared_wavefronts"), count_at(line, "tensor_ops"),
                line.value("ptx_line", 0), line.value("text", "").c_str(),
                source.empty() ? "" : "  ", source.c_str());
  }
}

// The clock replays some blocks of each launch; its lines are in the order of the launches.
void print_clocks(const Json& clocks) {
  size_t number = 0;
  for (const Json& launch : clocks) {
    std::printf("\nlaunch %zu  %.2f us on %s by the clock, bound by %s\n", number++,
                launch.value("microseconds", 0.0), launch.value("gpu", "").c_str(),
                launch.value("bound", "").c_str());
    print_clock_details(launch);
  }
}

struct CheckOptions {
  size_t lines = 0;  // of the profile; 0: none is wanted
  bool reference = false;
  double tolerance = 0;
};

// Refuses --reference of an operator that has none, before anything runs.
void check_reference(const CheckOptions& check, const Problem& problem) {
  if (check.tolerance != 0 && !check.reference) {
    refuse("--tolerance is given, but --reference is not");
  }
  if (!check.reference || problem.op->reference != nullptr) return;
  refuse("--reference is given, but ", problem.op->name,
         " names none; allowed is reference = \"FILE.py\" in the description of a kernel");
}

int check_operator(RunOptions options, const CheckOptions& check) {
  const size_t lines = check.lines;
  const Task task = load_task(options);
  check_reference(check, task.problem);
  Progress progress("checking " + options.op);
  const LineFile report_file("findings"), counters_file("counters"), clock_file("clock");
  // The simulator reads its environment once, when the first context loads it.
  setenv("LATHE_SIM_CHECK", "all", 1);
  setenv("LATHE_SIM_REPORT", report_file.path().c_str(), 1);
  setenv("LATHE_SIM_COUNTERS", counters_file.path().c_str(), 1);
  setenv("LATHE_SIM_QUIET", "1", 1);
  if (lines > 0) {
    setenv("LATHE_SIM_PROFILE", "1", 1);
    setenv("LATHE_SIM_CLOCK", clock_file.path().c_str(), 1);
  }
  options.device.device = "sim";
  Context context = open_context(options.device);
  Report report(context.get());
  report.keep_ptx = true;
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
  Findings findings{report_file.lines(kWhat), counters_file.lines(kWhat)};
  std::vector<std::string> ptx;
  for (const KernelUse& each : report.kernels) ptx.push_back(each.ptx);
  const SourceLines source(options.op, ptx);
  for (Json& each : findings.list) source.name(&each);
  for (Json& launch : findings.launches) {
    if (!launch.contains("lines")) continue;
    for (Json& each : launch["lines"]) source.name(&each);
  }
  if (failure && findings.list.empty()) std::rethrow_exception(failure);
  if (!failure) write_safetensors_file(options.output, outputs);
  Json reference = Json::array();
  if (!failure && check.reference) {
    reference =
        compare_with_reference(options.op, task.problem, task.inputs, outputs, check.tolerance);
  }
  if (options.json) {
    Json json = report.json();
    json["seed"] = seed_text();
    json["launches"] = findings.launches.size();
    json["findings"] = findings.list;
    if (check.reference) json["reference"] = reference;
    if (lines > 0) {
      json["profile"] = profile_of(findings.launches, lines);
      json["profile"]["clock"] = clock_file.lines("the simulator's clock has");
    }
    print_json(json);
  } else {
    print_findings(findings, report);
    if (check.reference) print_reference(task.problem.op->reference, reference);
    if (lines > 0) {
      const Json profile = profile_of(findings.launches, lines);
      const Json clocks = clock_file.lines("the simulator's clock has");
      if (clocks.empty()) print_bounds(profile);
      print_profile(profile);
      print_clocks(clocks);
    }
  }
  return findings.list.empty() && is_good(reference) ? kDone : kFindings;
}

}  // namespace

Action add_check(CLI::App* app) {
  auto* verb = app->add_subcommand("check",
                                   "run an operator under the simulator's checkers; check -- "
                                   "PROGRAM ARGUMENT...: any program");
  const auto options = std::make_shared<RunOptions>();
  add_run_flags(verb, options.get(), {"auto", "sim"});
  const auto check = std::make_shared<CheckOptions>();
  verb->add_flag("--reference", check->reference,
                 "also compare the outputs with the function of Python that the kernel's "
                 "description names");
  verb->add_option("--tolerance", check->tolerance,
                   "the largest relative error that --reference lets pass; else what the dtype's "
                   "rounding lets expect")
      ->check(CLI::PositiveNumber);
  // The bare flag means 20 lines; a flag's value must be joined by "=", so that it is no input.
  verb->add_flag("--profile{20}", check->lines,
                 "the PTX lines that execute most, and how long each launch takes by the clock");
  return [options, check] { return check_operator(*options, *check); };
}

}  // namespace lathe::cli
