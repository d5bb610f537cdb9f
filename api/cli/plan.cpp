// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe plan`: the pure functions behind context parallelism, from a file of cases to a file of
// answers.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "api/cli/options.h"
#include "api/cli/schedule_picture.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct PlanOptions {
  std::string kind, input, output, svg;
  bool picture = false;
};

void write_text(const char* option, const std::string& path, const std::string& text) {
  std::ofstream to(path, std::ios::binary);
  to << text;
  if (!to.flush()) fail(std::string(option) + " " + path + " cannot be written");
}

// Of the cases that were not refused.
std::vector<Schedule> schedules_of(const std::string& asked, const char* answers) {
  const Json cases = Json::parse(asked).at("cases"), results = Json::parse(answers).at("cases");
  std::vector<Schedule> out;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!results[i].contains("error")) out.push_back(read_schedule(cases[i], results[i]));
  }
  if (out.empty()) refuse("--svg and --picture: no case of --input has a schedule to draw");
  return out;
}

int answer(const PlanOptions& options) {
  const bool drawn = !options.svg.empty() || options.picture;
  if (drawn && options.kind != "ring_schedule") {
    refuse("--svg and --picture draw ring_schedule, not " + options.kind);
  }
  std::ifstream from(options.input, std::ios::binary);
  if (!from) refuse("--input " + options.input + " cannot be read");
  std::ostringstream text;
  text << from.rdbuf();
  const char* answers = nullptr;
  check(lathe_shard_plan(options.kind.c_str(), text.str().c_str(), &answers));
  const auto schedules = drawn ? schedules_of(text.str(), answers) : std::vector<Schedule>();
  write_text("--output", options.output, std::string(answers) + "\n");
  if (!options.svg.empty()) write_text("--svg", options.svg, picture_svg(schedules));
  for (size_t i = 0; options.picture && i < schedules.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : "\n", picture_text(schedules[i], 0).c_str());
  }
  return kDone;
}

}  // namespace

Action add_plan(CLI::App* app) {
  auto* verb = app->add_subcommand("plan", "shards, schedules and dispatches as data");
  const auto options = std::make_shared<PlanOptions>();
  verb->add_option("kind", options->kind, "what is asked, such as ring_schedule")->required();
  verb->add_option("--input", options->input, "JSON: {\"cases\": [{...}]}")->required();
  verb->add_option("--output", options->output, "JSON with an answer to each case")->required();
  verb->add_option("--svg", options->svg, "ring_schedule: draws the schedules into this file");
  verb->add_flag("--picture", options->picture, "ring_schedule: draws them in the terminal");
  return [options] { return answer(*options); };
}

}  // namespace lathe::cli
