// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe warm`: compiles a manifest of problems into the cache, on a machine that needs no GPU.
#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "api/cli/options.h"
#include "api/cli/progress.h"
#include "api/cli/report.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct WarmOptions {
  std::string manifest, arch, cache_dir;
  std::string jobs;
  bool json = false;
};

struct Line {
  size_t number = 0;
  Problem problem;
};

// One problem for one architecture, and what became of it.
struct Work {
  const Line* line = nullptr;
  lathe_context* context = nullptr;
  std::string arch;
  uint64_t compiled = 0, hits = 0;
  std::string error;
};

TensorSpec parse_tensor(const std::string& name, const Json& value) {
  const bool good =
      value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_array();
  if (!good) refuse("tensor " + in_quotes(name) + " must be [dtype, [extents]]");
  const DtypeInfo* dtype = find_dtype_word(value[0].get<std::string>());
  if (!dtype) {
    refuse("tensor " + in_quotes(name) + ": dtype is " + in_quotes(value[0].get<std::string>()) +
           ", allowed: " + dtype_words());
  }
  TensorSpec spec{dtype->dtype, {}};
  for (const Json& extent : value[1]) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < -1) {
      refuse("tensor " + in_quotes(name) + ": extent is " + extent.dump() +
             ", allowed: whole numbers from -1 (varies) up");
    }
    spec.shape.push_back(extent.get<int64_t>());
  }
  return spec;
}

std::string parse_option(const std::string& name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number()) return value.dump();
  refuse("option " + in_quotes(name) + " is " + value.dump() + ", expected a text or a number");
}

// {"op": ..., "tensors": {"x": ["bf16", [1, -1, 4096]], ...}, "options": {...}}
Problem parse_problem(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse("this is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key != "op" && key != "tensors" && key != "options") {
      refuse("the field " + in_quotes(key) + " is unknown, known: op, tensors, options");
    }
  }
  if (!json.contains("op") || !json["op"].is_string()) refuse("op is missing or not a text");
  if (!json.contains("tensors") || !json["tensors"].is_object()) {
    refuse("tensors is missing or not an object");
  }
  Specs specs;
  for (const auto& [name, value] : json["tensors"].items()) {
    specs[name] = parse_tensor(name, value);
  }
  Settings settings;
  if (json.contains("options")) {
    if (!json["options"].is_object()) refuse("options is not an object");
    for (const auto& [name, value] : json["options"].items()) {
      settings.emplace_back(name, parse_option(name, value));
    }
  }
  Problem problem = make_problem(find_operator(json["op"].get<std::string>()), settings, specs);
  declare(problem);  // what the library objects to is a fault of this line
  return problem;
}

std::vector<Line> read_manifest(const std::string& path) {
  std::ifstream file(path);
  if (!file) refuse("manifest " + in_quotes(path) + " cannot be read");
  std::vector<Line> lines;
  std::string text;
  for (size_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      lines.push_back({number, parse_problem(text)});
    } catch (const Failure& failure) {
      refuse("manifest " + in_quotes(path) + " line " + std::to_string(number) + ": " +
             failure.what());
    }
  }
  return lines;
}

void warm_one(Work* work) {
  try {
    const ProblemHandle problem = declare(work->line->problem);
    check(lathe_warm(work->context, problem.get(), &work->compiled, &work->hits));
  } catch (const Failure& failure) {
    work->error = failure.what();
  }
}

void warm_all(std::vector<Work>* all, size_t jobs) {
  Progress progress("warming");
  progress.count(0, all->size());
  std::atomic<size_t> next = 0, done = 0;
  const auto worker = [&] {
    for (size_t i = next++; i < all->size(); i = next++) {
      warm_one(&(*all)[i]);
      progress.count(++done, all->size());
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(jobs, all->size()); ++i) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();
}

int report_work(const std::vector<Work>& all, const WarmOptions& options) {
  uint64_t compiled = 0, hits = 0, failed = 0;
  Json errors = Json::array();
  for (const Work& work : all) {
    compiled += work.compiled;
    hits += work.hits;
    if (work.error.empty()) continue;
    ++failed;
    say("line " + std::to_string(work.line->number) + " for " + work.arch + ": " + work.error);
    errors.push_back({{"line", work.line->number}, {"arch", work.arch}, {"error", work.error}});
  }
  if (options.json) {
    print_json({{"compiled", compiled}, {"hits", hits}, {"failed", failed}, {"errors", errors}});
  } else {
    std::printf("%zu problems: %llu kernels compiled, %llu found in the cache, %llu failed\n",
                all.size(), static_cast<unsigned long long>(compiled),
                static_cast<unsigned long long>(hits), static_cast<unsigned long long>(failed));
  }
  return failed == 0 ? kDone : kFailed;
}

int warm(const WarmOptions& options) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t jobs = options.jobs.empty()
                          ? cores
                          : static_cast<size_t>(parse_int("--jobs", options.jobs, 1, 1024));
  const std::vector<Line> lines = read_manifest(options.manifest);
  std::vector<Context> contexts;
  std::vector<Work> all;
  for (const std::string& arch : split(options.arch, ',')) {
    contexts.push_back(open_context({"none", arch, options.cache_dir}));
    const lathe_context_info about = context_info(contexts.back().get());
    if (about.cache_dir[0] == '\0') {
      fail("there is no cache to warm: " + std::string(about.cache_problem));
    }
    for (const Line& line : lines) all.push_back({&line, contexts.back().get(), arch, 0, 0, ""});
  }
  warm_all(&all, jobs);
  return report_work(all, options);
}

}  // namespace

Action add_warm(CLI::App* app) {
  auto* verb = app->add_subcommand("warm", "compile a manifest into the cache; needs no GPU");
  const auto options = std::make_shared<WarmOptions>();
  verb->add_option("MANIFEST", options->manifest,
                   "JSON Lines: {\"op\": ..., \"tensors\": {\"x\": [\"bf16\", [1, -1, 4096]], "
                   "...}, \"options\": {...}}")
      ->required();
  verb->add_option("--arch", options->arch, "architectures, such as sm_80,sm_90a")->required();
  verb->add_option("--cache-dir", options->cache_dir, "which cache to fill");
  verb->add_option("--jobs", options->jobs, "compile this many at once (default: the cores)");
  add_json_flag(verb, &options->json);
  return [options] { return warm(*options); };
}

}  // namespace lathe::cli
