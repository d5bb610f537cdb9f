// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe demo`: a short tour on the device there is. Every result is compared with a computation in
// double, made here.
#include <algorithm>
#include <cstdio>

#include "api/cli/demo/demo_cases.h"
#include "api/cli/execute.h"
#include "api/cli/options.h"
#include "api/cli/reports/progress.h"

namespace lathe::cli {
namespace {

struct DemoOptions {
  DeviceOptions device;
  bool json = false;
  int ranks = 0;  // 0: the tour of operators
};

struct Outcome {
  Report report;
  StageTimes times;
  std::vector<Verdict> verdicts;
  std::string failure;  // "" if it ran

  bool good() const { return failure.empty() && std::ranges::all_of(verdicts, &Verdict::good); }
};

Outcome run_case(lathe_context* context, const DemoCase& item) {
  Outcome out{Report(context), {}, {}, ""};
  try {
    const TensorMap outputs =
        execute(context, item.problem, item.inputs, {item.ranks}, &out.report, &out.times);
    out.verdicts = compare(item.problem, outputs, reference(item.problem, item.inputs));
  } catch (const Failure& failure) {
    out.failure = failure.what();
  }
  return out;
}

// Packed tokens have sequences, others a batch.
std::string shape_of(const Problem& problem) {
  const bool packed = problem.inputs.count("cu_seqlens") + problem.inputs.count("cu_seqlens_q") > 0;
  std::string text;
  for (const std::string dim :
       {"B", "N", "T", "Sq", "Sk", "Tq", "Tk", "H", "HV", "HK", "K", "V", "D", "DV", "W"}) {
    const auto found = problem.extents.find(dim);
    const bool other = dim == (packed ? "B" : "N");
    if (other || found == problem.extents.end() || found->second < 0) continue;
    text += (text.empty() ? "" : " ") + dim + "=" + std::to_string(found->second);
  }
  return text;
}

void print_case(const DemoCase& item, const Outcome& outcome) {
  std::printf("%s  %s: %s\n", outcome.good() ? "ok  " : "FAIL", item.problem.op->name,
              item.title.c_str());
  if (!outcome.failure.empty()) {
    std::printf("      %s\n", outcome.failure.c_str());
    return;
  }
  const Verdict& worst = worst_of(outcome.verdicts);
  std::printf("      %-42s %zu kernels: %zu compiled, %zu from the cache\n",
              shape_of(item.problem).c_str(), outcome.report.kernels.size(),
              outcome.report.compiled(), outcome.report.hits());
  std::printf("      prepare %8.1f ms   copy in %6.1f ms   run %8.1f ms   copy out %6.1f ms\n",
              outcome.times.prepare, outcome.times.upload, outcome.times.run,
              outcome.times.download);
  std::printf("      %zu results against float64; worst is %s: error %.2g, allowed %.2g\n",
              outcome.verdicts.size(), worst.output.c_str(), worst.error, worst.bound);
  for (const Verdict& verdict : outcome.verdicts) {
    if (verdict.good) continue;
    std::printf("      FAIL %s: error %.3g, allowed %.2g\n", verdict.output.c_str(), verdict.error,
                verdict.bound);
  }
}

Json case_json(const DemoCase& item, const Outcome& outcome) {
  Json json = outcome.report.json();
  json["op"] = item.problem.op->name;
  json["title"] = item.title;
  json["ok"] = outcome.good();
  json["ms"] = outcome.times;
  json["errors"] = Json::object();
  for (const Verdict& verdict : outcome.verdicts) {
    json["errors"][verdict.output] = {{"error", verdict.error}, {"bound", verdict.bound}};
  }
  if (!outcome.failure.empty()) json["failure"] = outcome.failure;
  return json;
}

void print_welcome(const lathe_context* context) {
  const lathe_context_info about = context_info(context);
  std::printf("lathe %s on %s (%s), kernels for %s\n", lathe_version(), about.device_name,
              device_word(about.device), about.arch);
  std::printf("kernels are kept in %s\n\n",
              about.cache_dir[0] ? about.cache_dir : "memory only, see the warning");
}

int demo(const DemoOptions& options) {
  const Context context = open_context(options.device);
  if (!options.json) print_welcome(context.get());
  if (options.ranks > 0) return demo_ranks(context.get(), options.ranks, options.json);
  Report total(context.get());
  Json cases = Json::array();
  bool good = true;
  double run_ms = 0;
  for (const DemoCase& item : demo_cases()) {
    Outcome outcome = [&] {
      const Progress progress(std::string(item.problem.op->name) + ": " + item.title);
      return run_case(context.get(), item);
    }();
    if (item.known && outcome.report.compiled() > 0) {
      outcome.failure = "a new length compiled a kernel, which must never happen";
    }
    good = good && outcome.good();
    run_ms += outcome.times.run;
    total.add(outcome.report.kernels);
    cases.push_back(case_json(item, outcome));
    if (!options.json) print_case(item, outcome);
    std::fflush(stdout);
  }
  if (options.json) {
    Json json = total.json();
    json["ok"] = good;
    json["cases"] = cases;
    print_json(json);
  } else {
    std::printf("\n%s: %zu kernels, %zu compiled now, %zu from the cache; %.1f ms on the device\n",
                good ? "all results are right" : "NOT all results are right", total.kernels.size(),
                total.compiled(), total.hits(), run_ms);
  }
  return good ? kDone : kFailed;
}

}  // namespace

Action add_demo(CLI::App* app) {
  auto* verb = app->add_subcommand("demo", "a short tour on the device there is");
  const auto options = std::make_shared<DemoOptions>();
  add_device_flags(verb, &options->device, {"auto", "cuda", "sim"});
  add_json_flag(verb, &options->json);
  verb->add_option("--ranks", options->ranks,
                   "instead: two layers with their tokens over so many ranks, 1 to 8, against one")
      ->check(CLI::Range(1, 8));
  return [options] { return demo(*options); };
}

}  // namespace lathe::cli
