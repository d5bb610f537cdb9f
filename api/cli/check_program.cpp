// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe check -- PROGRAM ARGUMENT...` runs any program that uses the CUDA driver or runtime on the
// simulator, under all its checkers, and says what they found, source line by source line. The
// simulator's libraries come first where the program's loader looks; nothing else of the program or
// its environment changes.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "api/cli/device.h"
#include "api/cli/options.h"
#include "api/cli/reports/explained.h"
#include "api/cli/reports/line_file.h"

namespace lathe::cli {
namespace {

struct ProgramCheck {
  std::vector<std::string> words;  // the program and its arguments
  std::string gpu = "h100";
  int seeds = 1;
  bool json = false, github = false, clock = false;
};

// Returns the folder of the simulator's libcuda.so.1. No device is opened: what this process asks
// of the simulator must not reach the program.
std::string simulator_folder() {
  for (const auto& row : doctor_rows()) {
    if (row[0] != "simulator") continue;
    if (row[1] != "found") fail("there is no simulator: ", row[2], "; ", row[3]);
    const std::string file = row[2].substr(0, row[2].rfind(' '));  // a version follows
    return std::filesystem::absolute(file).parent_path();
  }
  fail("the library does not say where the simulator is");
}

// Refuses a GPU that is not known, with the names of those that are.
void check_gpu(const std::string& gpu) {
  DeviceOptions options;
  options.device = "none", options.arch = gpu, options.cache_dir = "off";
  (void)open_context(options);
}

// A descendant may have closed all files that it did not open, so they are named by this process.
std::string path_of(const LineFile& file) {
  return text("/proc/", getpid(), "/fd/", file.number());
}

void put_before(const char* variable, const std::string& folder) {
  const char* others = std::getenv(variable);
  setenv(variable, (folder + (others && *others ? text(":", others) : "")).c_str(), 1);
}

// The environment of the program. Checkers that the user has chosen stay chosen.
void set_environment(const ProgramCheck& asked, const std::string& folder, const LineFile& findings,
                     const LineFile& launches, const LineFile& clock) {
  put_before("LD_LIBRARY_PATH", folder);
  setenv("LATHE_SIM_GPU", asked.gpu.c_str(), 1);
  setenv("LATHE_SIM_CHECK", "all", 0);
  setenv("LATHE_SIM_REPORT", path_of(findings).c_str(), 1);
  setenv("LATHE_SIM_COUNTERS", path_of(launches).c_str(), 1);
  setenv("LATHE_SIM_QUIET", "1", 1);
  if (asked.clock) setenv("LATHE_SIM_CLOCK", path_of(clock).c_str(), 1);
  setenv("LATHE_DEVICE", "sim", 1);  // for programs that are themselves lathe's
}

// Runs the program with this terminal and returns what waitpid says of its end. With --json its
// output goes to stderr, so that the object stands alone.
int run_once(const ProgramCheck& asked) {
  std::vector<char*> words;
  for (const std::string& word : asked.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (asked.json) posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  std::fflush(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, words[0], &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) refuse(in_quotes(asked.words[0]), " cannot be started: ", std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail(in_quotes(asked.words[0]), " is lost: ", std::strerror(errno));
  }
  return status;
}

// Findings that differ in their thread or seed alone are one, with the number of them.
Json distinct(const Json& findings) {
  Json out = Json::array();
  std::map<std::tuple<std::string, std::string, std::string, std::string, int>, size_t> known;
  for (const Json& each : findings) {
    const std::tuple key = {each.value("check", ""), each.value("kind", ""),
                            each.value("kernel", ""), each.value("source", ""),
                            each.value("ptx_line", 0)};
    const auto [at, is_new] = known.emplace(key, out.size());
    if (is_new) {
      out.push_back(each);
      out.back()["times"] = 0;
    }
    out[at->second]["times"] = out[at->second]["times"].get<int>() + 1;
  }
  return out;
}

// {"sum.cu", "9"}: where a finding is, from the current folder on if it is in it. The file is empty
// without line information.
std::pair<std::string, std::string> source_of(const Json& finding) {
  const std::string source = finding.value("source", "");
  const size_t colon = source.rfind(':');
  if (colon == std::string::npos) return {};
  std::string file = source.substr(0, colon);
  const std::string here = std::filesystem::current_path().string() + "/";
  if (file.starts_with(here)) file.erase(0, here.size());
  return {file, source.substr(colon + 1)};
}

std::string title_of(const Json& finding) {
  return finding.value("check", "") + " " + finding.value("kind", "");
}

std::string where_of(const Json& finding) {
  const std::string kernel = finding.value("kernel", "");
  if (kernel.empty()) return "";
  return text(" [", kernel, ", cta ", finding.value("cta", Json::array()).dump(), ", thread ",
              finding.value("thread", Json::array()).dump(), ", PTX line ",
              finding.value("ptx_line", 0), "]");
}

// The form of compilers, which editors know: FILE:LINE: error: TEXT.
void print_finding(const Json& finding) {
  const auto [file, line] = source_of(finding);
  const std::string place = file.empty() ? "(no line information)" : text(file, ":", line);
  const int times = finding["times"].get<int>();
  std::printf("%s: error: %s: %s%s%s\n", place.c_str(), title_of(finding).c_str(),
              finding.value("text", "").c_str(), where_of(finding).c_str(),
              times > 1 ? text(" (", times, " times)").c_str() : "");
}

// What a workflow command of GitHub may not hold as it is.
std::string github_escaped(const std::string& value, bool property) {
  std::string out;
  for (const char c : value) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    out += special ? formatted("%%%02X", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

void print_annotation(const Json& finding) {
  const auto [file, line] = source_of(finding);
  const std::string place =
      file.empty() ? "" : text("file=", github_escaped(file, true), ",line=", line, ",");
  std::printf("::error %stitle=%s::%s\n", place.c_str(),
              github_escaped(title_of(finding), true).c_str(),
              github_escaped(finding.value("text", "") + where_of(finding), false).c_str());
}

void print_launches(const Json& clocks) {
  for (const Json& launch : clocks) {
    std::printf("\n%s  %.2f us on %s by the clock, bound by %s\n",
                launch.value("kernel", "").c_str(), launch.value("microseconds", 0.0),
                launch.value("gpu", "").c_str(), launch.value("bound", "").c_str());
    print_clock_details(launch);
  }
}

std::string ended(int status) {
  if (WIFSIGNALED(status)) return text("signal ", WTERMSIG(status));
  return text("exit ", WEXITSTATUS(status));
}

int64_t first_seed() {
  const char* seed = std::getenv("LATHE_SIM_SEED");
  return seed && *seed ? parse_int("LATHE_SIM_SEED", seed, 0, INT64_MAX - 1000) : 0;
}

int check_program(const ProgramCheck& asked) {
  const LineFile findings_file("findings"), launches_file("launches"), clock_file("clock");
  check_gpu(asked.gpu);
  const std::string folder = simulator_folder();
  set_environment(asked, folder, findings_file, launches_file, clock_file);
  int status = 0;
  const int64_t first = first_seed();
  for (int i = 0; i < asked.seeds && status == 0; ++i) {
    setenv("LATHE_SIM_SEED", std::to_string(first + i).c_str(), 1);
    status = run_once(asked);
  }
  const Json findings = distinct(findings_file.lines("the simulator's report has"));
  const Json launches = launches_file.lines("the simulator's counters have");
  const Json clocks = clock_file.lines("the simulator's clock has");
  if (asked.json) {
    print_json({{"program", asked.words},
                {"gpu", asked.gpu},
                {"seeds", asked.seeds},
                {"ended", ended(status)},
                {"launches", launches.size()},
                {"findings", findings},
                {"clock", clocks}});
  } else {
    for (const Json& each : findings) asked.github ? print_annotation(each) : print_finding(each);
    print_launches(clocks);
    std::fprintf(stderr, "lathe: %zu findings in %zu launches, %s\n", findings.size(),
                 launches.size(), ended(status).c_str());
  }
  if (!findings.empty()) return kFindings;
  if (WIFSIGNALED(status)) fail(in_quotes(asked.words[0]), " died of signal ", WTERMSIG(status));
  if (launches.empty()) {
    fail(
        "no kernel was launched on the simulator, so nothing was checked. A program of nvcc needs "
        "its options -cudart shared and -gencode arch=compute_90a,code=compute_90a, and no RPATH "
        "to another libcuda.so.1");
  }
  return WEXITSTATUS(status);
}

}  // namespace

int check_program_command(int count, char** words, std::vector<std::string> program) {
  ProgramCheck asked;
  CLI::App app("run a program on the simulator, under all its checkers", "lathe check");
  app.add_option("--gpu", asked.gpu, "the GPU that is simulated: a100, h100, h200 and others")
      ->capture_default_str();
  app.add_option("--seeds", asked.seeds, "run it this many times, each with another schedule")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_flag("--clock", asked.clock, "also say how long each launch takes by the clock");
  auto* json = app.add_flag("--json", asked.json, "print one JSON object on standard output");
  app.add_flag("--github", asked.github, "print findings as annotations of a GitHub workflow")
      ->excludes(json);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    refuse(error.what(), " (see lathe check --help)");
  }
  asked.words = std::move(program);
  return check_program(asked);
}

}  // namespace lathe::cli
