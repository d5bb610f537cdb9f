// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Explain asks this of the simulator, through `lathe count`, which it starts for that: a plan runs
// once on the simulator that the environment describes. The results are of no use, as only some
// thread blocks run.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "api/cli/execute.h"
#include "api/cli/inputs/made_up.h"
#include "api/cli/inputs/safetensors.h"
#include "api/cli/reports/explained.h"
#include "api/cli/reports/line_file.h"

namespace lathe::cli {
namespace {

// A launch with these limits takes a second or two.
constexpr uint64_t kMostBlocks = 16, kInstructions = 6'000'000;
// Limits a launch whose blocks take turns at all tiles: past it nobody would wait.
constexpr uint64_t kLimit = 40'000'000;

std::vector<std::string> words_of(const CountOptions& options) {
  const ProblemOptions& problem = options.problem;
  const DeviceOptions& device = options.device;
  std::vector<std::string> words = {"lathe", "count", problem.op, "--arch", device.arch};
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (!problem.input.empty()) add("--input", problem.input);
  for (const std::string& tensor : problem.tensors) add("--tensor", tensor);
  for (const std::string& option : problem.set) add("--set", option);
  if (problem.alignment != kBestAlignment) add("--alignment", std::to_string(problem.alignment));
  if (!device.cache_dir.empty()) add("--cache-dir", device.cache_dir);
  return words;
}

// The caller's settings of the simulator are about runs of its own, not about counts.
bool passes_on(const std::string& variable) {
  if (variable.starts_with("LATHE_RECORD=")) return false;
  if (!variable.starts_with("LATHE_SIM_")) return true;
  return variable.starts_with("LATHE_SIM_DIR=") || variable.starts_with("LATHE_SIM_ISA=") ||
         variable.starts_with("LATHE_SIM_THREADS=") || variable.starts_with("LATHE_SIM_PTXAS=") ||
         variable.starts_with("LATHE_SIM_NVDISASM=");
}

std::vector<std::string> environment_of(const std::string& gpu, const LineFile& counters,
                                        const LineFile& clock, const std::string& picture) {
  std::vector<std::string> out = {"LATHE_SIM_GPU=" + gpu,
                                  "LATHE_SIM_COUNTERS=" + counters.path(),
                                  "LATHE_SIM_CLOCK=" + clock.path(),
                                  text("LATHE_SIM_SAMPLE_BLOCKS=", kMostBlocks),
                                  text("LATHE_SIM_SAMPLE_INSTRUCTIONS=", kInstructions),
                                  text("LATHE_SIM_INSTRUCTION_LIMIT=", kLimit),
                                  "LATHE_SIM_CHECK=memcheck"};
  if (!picture.empty()) out.push_back("LATHE_SIM_CLOCK_PICTURE=" + picture);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (passes_on(*variable)) out.push_back(*variable);
  }
  return out;
}

// Returns the wait status of this program with other words, its standard error in a file.
int run_self(const std::vector<std::string>& words, const std::vector<std::string>& environment,
             const LineFile& errors) {
  std::vector<const char*> arguments = pointers(words), variables = pointers(environment);
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors.number(), STDERR_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, const_cast<char**>(arguments.data()),
                  const_cast<char**>(variables.data()));
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("a process cannot be started: ", std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("a process is lost: ", std::strerror(errno));
  }
  return status;
}

// Returns the sentence in what a failed process said that tells why.
std::string reason_in(const std::string& errors, int status, const std::string& gpu) {
  const std::pair<const char*, std::string> known[] = {
      {"LATHE_SIM_GPU is", "the simulator has no " + gpu},
      {"LATHE_SIM_ARCH is", "the simulator has no " + gpu},
      {"synccheck timeout", text("a launch takes more than ", kLimit, " instructions of the ",
                                 "simulator, however few thread blocks run")},
      {"memcheck out_of_bounds",
       "a kernel goes by what thread blocks that were left out would have written"}};
  for (const auto& [words, reason] : known) {
    if (errors.find(words) != errors.npos) return reason;
  }
  if (!WIFEXITED(status)) return text("the simulator died of signal ", WTERMSIG(status));
  std::istringstream lines(errors);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("lathe: ") && !line.starts_with("lathe: warning: ")) last = line.substr(7);
  }
  return last.empty() ? "the simulator gave no reason" : last;
}

int count(const CountOptions& options) {
  Problem problem = problem_from(options.problem);
  const bool given = !options.problem.input.empty();
  const TensorMap values =
      given ? read_safetensors(options.problem.input) : made_up_integers(problem);
  problem = make_problem(problem.op, problem.settings, problem.all(), &values);
  problem.alignment = options.problem.alignment;
  const Context context = open_context(options.device);
  PartRun run(context.get(), problem);
  run.prepare();
  run.upload(values);
  run.run();
  return kDone;
}

}  // namespace

Counts count_launches(const CountOptions& options, const std::string& gpu) {
  const LineFile counters("counters"), errors("errors"), clock("clock");
  const auto environment = environment_of(gpu, counters, clock, options.picture);
  const int status = run_self(words_of(options), environment, errors);
  if (status != 0) return {Json::array(), Json::array(), reason_in(errors.text(), status, gpu)};
  return {counters.lines("the simulator's counters have"), clock.lines("the simulator's clock has"),
          ""};
}

Action add_count(CLI::App* app) {
  auto* verb = app->add_subcommand("count", "what explain asks the simulator")->group("");
  const auto options = std::make_shared<CountOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"sim"});
  return [options] { return count(*options); };
}

}  // namespace lathe::cli
