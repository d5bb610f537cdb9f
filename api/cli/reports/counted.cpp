// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Explain asks this of the simulator, through `lathe count`, which it starts for that: a plan runs
// once on the simulator that the environment describes. The results are of no use, as only some
// thread blocks run.
#include "api/cli/reports/counted.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "api/cli/inputs/made_up.h"
#include "api/cli/inputs/safetensors.h"
#include "api/cli/options.h"
#include "api/cli/reports/line_file.h"
#include "api/cli/run.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

// A launch with these limits takes a second or two.
constexpr uint64_t kMostBlocks = 16, kInstructions = 6'000'000;
// Limits a launch whose blocks take turns at all tiles: past it nobody would wait.
constexpr uint64_t kLimit = 40'000'000;

std::vector<std::string> words_of(const CountRequest& request) {
  std::vector<std::string> words = {"lathe", "count", request.problem.op, "--arch", request.arch};
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (!request.problem.input.empty()) add("--input", request.problem.input);
  for (const std::string& tensor : request.problem.tensors) add("--tensor", tensor);
  for (const std::string& option : request.problem.set) add("--set", option);
  if (!request.cache_dir.empty()) add("--cache-dir", request.cache_dir);
  return words;
}

// The caller's settings of the simulator are about runs of its own, not about counts.
bool passes_on(const std::string& variable) {
  if (variable.starts_with("LATHE_RECORD=")) return false;
  if (!variable.starts_with("LATHE_SIM_")) return true;
  return variable.starts_with("LATHE_SIM_DIR=") || variable.starts_with("LATHE_SIM_ISA=") ||
         variable.starts_with("LATHE_SIM_THREADS=");
}

std::vector<std::string> environment_of(const CountRequest& request, const LineFile& counters) {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (passes_on(*variable)) out.push_back(*variable);
  }
  out.push_back("LATHE_SIM_GPU=" + request.gpu);
  out.push_back("LATHE_SIM_COUNTERS=" + counters.path());
  out.push_back("LATHE_SIM_SAMPLE_BLOCKS=" + std::to_string(kMostBlocks));
  out.push_back("LATHE_SIM_SAMPLE_INSTRUCTIONS=" + std::to_string(kInstructions));
  out.push_back("LATHE_SIM_INSTRUCTION_LIMIT=" + std::to_string(kLimit));
  out.push_back("LATHE_SIM_CHECK=memcheck");
  return out;
}

std::vector<char*> pointers(std::vector<std::string>* texts) {
  std::vector<char*> out;
  for (std::string& text : *texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Returns the wait status of this program with other words, its standard error in a file.
int run_self(std::vector<std::string> words, std::vector<std::string> environment,
             const LineFile& errors) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors.number(), STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                                pointers(&words).data(), pointers(&environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(std::string("a process cannot be started: ") + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail(std::string("a process is lost: ") + std::strerror(errno));
  }
  return status;
}

// Returns the sentence in what a failed process said that tells why.
std::string reason_in(const std::string& errors, int status, const std::string& gpu) {
  if (errors.find("LATHE_SIM_GPU is") != std::string::npos ||
      errors.find("LATHE_SIM_ARCH is") != std::string::npos) {
    return "the simulator has no " + gpu;
  }
  if (errors.find("synccheck timeout") != std::string::npos) {
    return "a launch takes more than " + std::to_string(kLimit) +
           " instructions of the simulator, however few thread blocks run";
  }
  if (errors.find("memcheck out_of_bounds") != std::string::npos) {
    return "a kernel goes by what thread blocks that were left out would have written";
  }
  if (!WIFEXITED(status)) return "the simulator died of signal " + std::to_string(WTERMSIG(status));
  std::istringstream lines(errors);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("lathe: ") && !line.starts_with("lathe: warning: ")) last = line.substr(7);
  }
  return last.empty() ? "the simulator gave no reason" : last;
}

struct CountOptions {
  ProblemOptions problem;
  DeviceOptions device;
};

void run_once(lathe_context* context, const lathe_plan* plan, const DeviceTensors& tensors) {
  const std::vector<const DLTensor*> slots = slots_of(plan, tensors);
  size_t bytes = 0;
  check(lathe_plan_workspace(plan, slots.data(), nullptr, &bytes));
  const DeviceBytes workspace(context, bytes);
  const Stream stream(context);
  check(lathe_plan_run(plan, slots.data(), workspace.data(), bytes, stream.get()));
  check(lathe_stream_synchronize(context, stream.get()));
}

int count(const CountOptions& options) {
  Problem problem = problem_from(options.problem);
  const bool given = !options.problem.input.empty();
  const TensorMap values =
      given ? read_safetensors(options.problem.input) : made_up_integers(problem);
  Specs specs = problem.inputs;
  specs.insert(problem.outputs.begin(), problem.outputs.end());
  problem = make_problem(problem.op, problem.settings, specs, &values);
  const ProblemHandle handle = declare(problem);
  const Context context = open_context(options.device);
  const Plan plan = made<Plan>(lathe_plan_create, context.get(), handle.get());
  run_once(context.get(), plan.get(), on_device(context.get(), problem, values));
  return kDone;
}

}  // namespace

Counts count_launches(const CountRequest& request) {
  const LineFile counters("counters"), errors("errors");
  const int status = run_self(words_of(request), environment_of(request, counters), errors);
  if (status != 0) return {Json::array(), reason_in(errors.text(), status, request.gpu)};
  return {counters.lines("the simulator's counters have"), ""};
}

Action add_count(CLI::App* app) {
  auto* verb = app->add_subcommand("count", "what explain asks the simulator")->group("");
  const auto options = std::make_shared<CountOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"sim"});
  return [options] { return count(*options); };
}

}  // namespace lathe::cli
