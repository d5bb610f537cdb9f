// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reference/reference.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "api/cli/inputs/safetensors.h"
#include "api/cli/reports/line_file.h"

namespace lathe::cli {

// compare.py, which the build embeds.
extern const char kReferenceScript[];

namespace {

// A folder of files for the child, which goes with this.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lathe-reference-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("no folder can be made: ", std::strerror(errno));
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// {"eps": 1e-05, "mode": "sum"}: all options, as the kernel has them.
std::string options_json(const Problem& problem) {
  Json out = Json::object();
  for (const lathe_operator_option& option : options_of(*problem.op)) {
    const std::string value = setting(problem, option.name);
    // Numbers of an option are numbers of JSON.
    const Json number = Json::parse(value, nullptr, false);
    const bool is_word = option.type == LATHE_OPTION_STRING || number.is_discarded();
    out[option.name] = is_word ? Json(value) : number;
  }
  return out.dump();
}

int run_python(std::vector<std::string> words, const LineFile& out, const LineFile& errors) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors.number(), STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, list[0], &files, nullptr, list.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    fail("--reference needs python3, which cannot be started: ", std::strerror(error),
         " (remedy: apt-get install python3 python3-numpy)");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("python3 is lost: ", std::strerror(errno));
  }
  return status;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// "rms_norm" of "rms_norm@3fa9c0d1e2f3a4b5".
std::string function_of(const lathe_operator_info& op) {
  const std::string name = op.name;
  return name.substr(0, name.find('@'));
}

}  // namespace

Json compare_with_reference(const std::string& kernel_file, const Problem& problem,
                            const TensorMap& inputs, const TensorMap& outputs, double tolerance) {
  const std::string file = std::filesystem::path(kernel_file).parent_path() / problem.op->reference;
  if (access(file.c_str(), R_OK) != 0) {
    refuse("reference is ", in_quotes(problem.op->reference), ", and ", in_quotes(file),
           " cannot be read: ", std::strerror(errno));
  }
  const Folder folder;
  write_safetensors_file(folder.file("inputs"), inputs);
  write_safetensors_file(folder.file("outputs"), outputs);
  const LineFile rows("reference"), errors("errors");
  const int status = run_python(
      {"python3", "-c", kReferenceScript, file, function_of(*problem.op), folder.file("inputs"),
       folder.file("outputs"), options_json(problem), formatted("%.17g", tolerance)},
      rows, errors);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fputs(errors.text().c_str(), stderr);
    fail("the reference ", file, " failed: ", last_line(errors.text()));
  }
  return rows.lines("the reference has");
}

bool is_good(const Json& rows) {
  for (const Json& row : rows) {
    if (!row.at("good").get<bool>()) return false;
  }
  return true;
}

void print_reference(const std::string& file, const Json& rows) {
  for (const Json& row : rows) {
    const bool good = row.at("good").get<bool>();
    std::printf(
        "%s by %s: largest relative error %.1e, allowed %.1e%s",
        row.at("name").get<std::string>().c_str(), file.c_str(),
        row.at("largest_error").is_null() ? HUGE_VAL : row.at("largest_error").get<double>(),
        row.at("allowed").get<double>(), good ? "\n" : ": WRONG");
    if (good) continue;
    std::printf(" at %s: %s, expected %s\n", row.at("at").dump().c_str(),
                row.at("found").get<std::string>().c_str(),
                row.at("expected").get<std::string>().c_str());
  }
}

}  // namespace lathe::cli
