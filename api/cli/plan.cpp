// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe plan` calls the pure functions behind context parallelism, from a file of cases to a file
// of answers.
#include <cstdio>

#include "api/cli/inputs/text.h"
#include "api/cli/options.h"
#include "api/cli/output.h"
#include "api/cli/reports/pieces_picture.h"
#include "api/cli/reports/schedule_picture.h"

namespace lathe::cli {
namespace {

struct PlanOptions {
  std::string kind, input, output, svg;
  bool picture = false;
};

// Returns what there is to draw of the cases that were not refused.
template <typename Drawn>
std::vector<Drawn> drawn_of(const std::string& asked, const char* answers,
                            Drawn (*read)(const Json& asked, const Json& answer)) {
  const Json cases = Json::parse(asked).at("cases"), results = Json::parse(answers).at("cases");
  std::vector<Drawn> out;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!results[i].contains("error")) out.push_back(read(cases[i], results[i]));
  }
  if (out.empty()) refuse("--svg and --picture: no case of --input has anything to draw");
  return out;
}

int answer(const PlanOptions& options) {
  const bool drawn = !options.svg.empty() || options.picture;
  const bool ring = options.kind == "ring_schedule", pieces = options.kind == "pieces";
  if (!options.svg.empty() && !ring && !pieces) {
    refuse("--svg draws ring_schedule and pieces, not " + in_quotes(options.kind));
  }
  if (options.picture && !ring) {
    refuse("--picture draws ring_schedule, not " + in_quotes(options.kind));
  }
  check_apart("--output", options.output, "--input", options.input);
  check_output("--output", options.output);
  if (!options.svg.empty()) {
    check_apart("--svg", options.svg, "--input", options.input);
    check_apart("--svg", options.svg, "--output", options.output);
    check_output("--svg", options.svg);
  }
  const std::string text = read_text("--input", options.input);
  const char* answers = nullptr;
  check(lathe_shard_plan(options.kind.c_str(), text.c_str(), &answers));
  const auto schedules =
      drawn && ring ? drawn_of(text, answers, read_schedule) : std::vector<Schedule>();
  std::string svg;
  if (drawn) {
    svg = ring ? picture_svg(schedules) : pieces_svg(drawn_of(text, answers, read_pieces));
  }
  write_output("--output", options.output, std::string(answers) + "\n");
  if (!options.svg.empty()) write_output("--svg", options.svg, svg);
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
  verb->add_option("--output", options->output,
                   "JSON with an answer to each case; a link is not followed")
      ->required();
  verb->add_option("--svg", options->svg,
                   "ring_schedule, pieces: draws them into this file; a link is not followed");
  verb->add_flag("--picture", options->picture, "ring_schedule: draws them in the terminal");
  return [options] { return answer(*options); };
}

}  // namespace lathe::cli
