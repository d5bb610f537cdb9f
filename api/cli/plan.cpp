// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe plan`: the pure functions behind context parallelism, from a file of cases to a file of
// answers.
#include <fstream>
#include <sstream>

#include "api/cli/options.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct PlanOptions {
  std::string kind, input, output;
};

int answer(const PlanOptions& options) {
  std::ifstream from(options.input, std::ios::binary);
  if (!from) refuse("--input " + options.input + " cannot be read");
  std::ostringstream text;
  text << from.rdbuf();
  const char* answers = nullptr;
  check(lathe_shard_plan(options.kind.c_str(), text.str().c_str(), &answers));
  std::ofstream to(options.output, std::ios::binary);
  to << answers << "\n";
  if (!to.flush()) fail("--output " + options.output + " cannot be written");
  return kDone;
}

}  // namespace

Action add_plan(CLI::App* app) {
  auto* verb = app->add_subcommand("plan", "shards, schedules and dispatches as data");
  const auto options = std::make_shared<PlanOptions>();
  verb->add_option("kind", options->kind, "what is asked, such as ring_schedule")->required();
  verb->add_option("--input", options->input, "JSON: {\"cases\": [{...}]}")->required();
  verb->add_option("--output", options->output, "JSON with an answer to each case")->required();
  return [options] { return answer(*options); };
}

}  // namespace lathe::cli
