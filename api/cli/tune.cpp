// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe tune`: which tile is the fastest for a problem on this device, and the database of that.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "api/cli/inputs/made_up.h"
#include "api/cli/inputs/safetensors.h"
#include "api/cli/interrupt.h"
#include "api/cli/manifest.h"
#include "api/cli/options.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {
namespace {

struct TuneOptions {
  ProblemOptions problem;
  DeviceOptions device;
  std::string repeats = "0", candidates = "0", seconds = "0";
  std::string gpu, merge, forget, manifest;
  std::vector<std::string> extents;
  bool show = false, dry_run = false, json = false;
};

struct Watch {
  Progress* progress;
  const Interrupt* interrupt;
};

// Interrupted once, tuning ends after the candidate at hand.
int tell_progress(void* user, const char* what, size_t done, size_t total) {
  const Watch& watch = *static_cast<Watch*>(user);
  watch.progress->stage(what);
  watch.progress->count(done, total, done);
  return watch.interrupt->asked();
}

// Returns all tensors of a problem; the inputs hold what the file does, or noise.
std::map<std::string, DeviceTensor> on_device(lathe_context* context, const Problem& problem,
                                              const std::string& input) {
  std::map<std::string, DeviceTensor> tensors;
  for (const auto* specs : {&problem.inputs, &problem.outputs}) {
    for (const auto& [name, spec] : *specs) tensors.try_emplace(name, context, spec);
  }
  const TensorMap values = input.empty() ? noise_inputs(problem) : read_safetensors(input);
  for (const auto& [name, value] : values) tensors.at(name).upload(value.data, nullptr);
  return tensors;
}

std::string number_text(int value) { return value < 0 ? "?" : std::to_string(value); }

void print_candidate(const lathe_tune_candidate& each, int width) {
  const int spills =
      each.spill_bytes < 0 || each.stack_bytes < 0 ? -1 : each.spill_bytes + each.stack_bytes;
  std::printf("  %-*s %9s %7s %6s", width, each.choice, number_text(each.registers).c_str(),
              number_text(each.smem_bytes).c_str(), number_text(spills).c_str());
  if (each.microseconds > 0) {
    std::printf(" %10.2f %6.1f %%  %s\n", each.microseconds, 100 * each.spread, each.verdict);
  } else {
    std::printf(" %10s %8s  %s%s%s\n", "-", "-", each.verdict, *each.reason ? ": " : "",
                each.reason);
  }
}

void print_report(const lathe_tune_report& report, bool dry_run) {
  int width = 40;  // of the widest choice
  for (const lathe_tune_candidate& each : std::span(report.candidates, report.count)) {
    width = std::max(width, static_cast<int>(std::strlen(each.choice)));
  }
  for (size_t i = 0; i < report.count; ++i) {
    const lathe_tune_candidate& each = report.candidates[i];
    const bool first = i == 0 || report.candidates[i - 1].problem_class != each.problem_class ||
                       report.candidates[i - 1].kernel != each.kernel;
    if (first) {
      std::printf("%s, %s\n  %-*s %9s %7s %6s %10s %8s  verdict\n", each.kernel, each.problem_class,
                  width, "choice", "registers", "smem", "spills", "time us", "spread");
    }
    print_candidate(each, width);
  }
  if (report.kernels == 0) {
    std::printf("no kernel of this problem has a choice\n");
    return;
  }
  std::printf("a run takes %.2f us, %.2f us by the rules: %zu of %zu kernels improved on %s%s\n",
              report.us, report.default_us, report.improved, report.kernels, report.gpu,
              report.by_model ? ", by the simulator's clock" : "");
  if (*report.stored_in) {
    std::printf("stored in %s\n", report.stored_in);
  } else {
    std::printf("not stored%s\n", dry_run ? " (--dry-run)" : "");
  }
}

Json report_json(const Problem& problem, const lathe_context* context,
                 const lathe_tune_report& report) {
  const Report about(context);
  Json json = {{"op", problem.op->name},
               {"device", about.device},
               {"arch", about.arch},
               {"gpu", report.gpu},
               {"by", report.by_model ? "model" : "events"},
               {"us", report.us},
               {"default_us", report.default_us},
               {"kernels", report.kernels},
               {"improved", report.improved},
               {"stored_in", report.stored_in}};
  json["candidates"] = Json::array();
  for (const lathe_tune_candidate& each : std::span(report.candidates, report.count)) {
    json["candidates"].push_back({{"kernel", each.kernel},
                                  {"class", each.problem_class},
                                  {"choice", each.choice},
                                  {"verdict", each.verdict},
                                  {"reason", each.reason},
                                  {"registers", each.registers},
                                  {"smem_bytes", each.smem_bytes},
                                  {"spill_bytes", each.spill_bytes},
                                  {"stack_bytes", each.stack_bytes},
                                  {"us", each.microseconds},
                                  {"spread", each.spread}});
  }
  return json;
}

lathe_tune_options tune_options(const TuneOptions& options) {
  lathe_tune_options how = LATHE_TUNE_OPTIONS_INIT;
  how.repeats = static_cast<int>(parse_int("--repeats", options.repeats, 0, 100000));
  how.candidates = static_cast<int>(parse_int("--candidates", options.candidates, 0, 1000));
  how.seconds = static_cast<double>(parse_int("--seconds", options.seconds, 0, 86400));
  how.store = options.dry_run ? 0 : 1;
  return how;
}

std::vector<TuneProblem> problems_of(const TuneOptions& options) {
  if (!options.manifest.empty()) return problems_of_manifest(options.manifest, options.extents);
  std::vector<TuneProblem> one;
  one.push_back(problem_of_flags(options.problem, options.extents));
  return one;
}

// False if it was interrupted.
bool tune_one(lathe_context* context, const TuneOptions& options, const TuneProblem& one,
              const Interrupt& interrupt, lathe_tune_options how, Json* lines) {
  const auto tensors = on_device(context, one.problem, options.problem.input);
  const auto slots =
      slots_of(made<Plan>(lathe_plan_create, context, one.handle.get()).get(), tensors);
  const auto report = [&] {
    Progress progress("compiling");
    Watch watch = {&progress, &interrupt};
    how.progress = tell_progress, how.user = &watch;
    return told<lathe_tune_report>(lathe_tune, context, one.handle.get(), slots.data(), &how);
  }();
  if (report.cancelled) return false;
  if (options.json) {
    lines->push_back(report_json(one.problem, context, report));
  } else {
    if (!one.where.empty()) std::printf("%s: %s\n", one.where.c_str(), one.problem.op->name);
    print_report(report, options.dry_run);
  }
  return true;
}

int tune(const TuneOptions& options) {
  if (options.problem.op.empty() && options.manifest.empty()) {
    refuse("OP is not given; without it one of --manifest, --show, --merge and --forget is needed");
  }
  const lathe_tune_options how = tune_options(options);
  const std::vector<TuneProblem> all = problems_of(options);
  // The simulator answers in model time only if it keeps one; a launch then lasts as its clock
  // says.
  setenv("LATHE_SIM_TIMELINE", "/dev/null", 0);
  setenv("LATHE_SIM_CLOCK", "/dev/null", 0);
  const Interrupt interrupt;
  const Context context = open_context(options.device);
  Json lines = Json::array();
  for (const TuneProblem& one : all) {
    if (tune_one(context.get(), options, one, interrupt, how, &lines)) continue;
    say("interrupted; of " + (one.where.empty() ? "this" : one.where) + " nothing was stored");
    return kInterrupted;
  }
  if (options.json) print_json(options.manifest.empty() && lines.size() == 1 ? lines[0] : lines);
  return kDone;
}

// Opens the database of a GPU by name, or of the device.
Context open_database(const TuneOptions& options) {
  if (options.gpu.empty()) return open_context(options.device);
  return open_context({"none", options.gpu, options.device.cache_dir});
}

int show(const TuneOptions& options) {
  const Context context = open_database(options);
  const char* lines = nullptr;
  const auto report = told<lathe_tuned_report>(lathe_tuned_list, context.get(), &lines);
  Json records = Json::array();
  for (const auto& fields : rows_of(lines, 3)) {
    if (options.json) {
      records.push_back({{"mark", fields[0]}, {"source", fields[1]}, {"record", fields[2]}});
    } else {
      std::printf("%-6s  %s\n", fields[0].c_str(), fields[2].c_str());
    }
  }
  if (options.json) {
    print_json({{"path", report.path}, {"problem", report.problem}, {"records", records}});
  } else if (report.records == 0) {
    std::printf("no tuned choices in %s\n", *report.path ? report.path : "memory");
  }
  if (*report.problem) say(report.problem);
  return *report.problem ? kFindings : kDone;
}

int change(const TuneOptions& options) {
  const Context context = open_database(options);
  const bool merges = !options.merge.empty();
  const std::string& given = merges ? options.merge : options.forget;
  const auto report =
      told<lathe_tuned_report>(merges ? lathe_tuned_merge : lathe_tuned_forget, context.get(),
                               given == "all" && !merges ? nullptr : given.c_str());
  if (options.json) {
    print_json(report);
  } else {
    std::printf("%llu records %s; %llu in %s\n", llu(report.changed),
                merges ? "added or replaced" : "forgotten", llu(report.records), report.path);
  }
  if (report.skipped == 0) return kDone;
  say(text(report.skipped, " lines of ", in_quotes(options.merge),
           " were skipped, the first: ", report.problem));
  return kFindings;
}

int run(const TuneOptions& options) {
  const int verbs = (options.show ? 1 : 0) + (options.merge.empty() ? 0 : 1) +
                    (options.forget.empty() ? 0 : 1) + (options.problem.op.empty() ? 0 : 1) +
                    (options.manifest.empty() ? 0 : 1);
  if (verbs > 1) refuse("OP, --manifest, --show, --merge and --forget exclude each other");
  if (options.show) return show(options);
  if (!options.merge.empty() || !options.forget.empty()) return change(options);
  if (!options.gpu.empty()) refuse("--gpu goes with --show, --merge and --forget alone");
  return tune(options);
}

}  // namespace

Action add_tune(CLI::App* app) {
  auto* verb = app->add_subcommand(
      "tune", "measure the tiles a problem's kernels could have, and keep the fastest");
  const auto options = std::make_shared<TuneOptions>();
  add_problem_flags(verb, &options->problem);
  verb->get_option("OP")->required(false);
  add_device_flags(verb, &options->device, {"auto", "cuda", "sim"});
  verb->add_option("--manifest", options->manifest, "tune each problem of a manifest instead");
  verb->add_option("--extent", options->extents,
                   "an extent that is open, LETTER=NUMBER, such as T=8192; may be repeated")
      ->allow_extra_args(false);
  verb->add_option("--repeats", options->repeats, "runs of each candidate (default: 20)");
  verb->add_option("--candidates", options->candidates, "at most so many a kernel (default: all)");
  verb->add_option("--seconds", options->seconds, "that one run may take (default: 30)");
  verb->add_flag("--dry-run", options->dry_run, "store nothing");
  verb->add_flag("--show", options->show, "print what is stored");
  verb->add_option("--merge", options->merge, "add the records of a file");
  verb->add_option("--forget", options->forget, "remove the records of a kernel, or all");
  verb->add_option("--gpu", options->gpu, "whose records, by name, such as h200");
  add_json_flag(verb, &options->json);
  return [options] { return run(*options); };
}

}  // namespace lathe::cli
