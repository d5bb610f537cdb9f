// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/tools.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

extern char** environ;

namespace sim::clock {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool runs(const fs::path& file) {
  return ::access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file);
}

// Folders with programs: the search path, the tool kit, and those of wheels beside a compiler
// library that LATHE_NVRTC names.
std::vector<fs::path> folders() {
  std::vector<fs::path> all;
  std::stringstream path(environment("PATH"));
  for (std::string one; std::getline(path, one, ':');) all.emplace_back(one);
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string home = environment(name); !home.empty())
      all.push_back(fs::path(home) / "bin");
  }
  all.emplace_back("/usr/local/cuda/bin");
  if (const std::string nvrtc = environment("LATHE_NVRTC"); !nvrtc.empty()) {
    const fs::path wheel = fs::path(nvrtc).parent_path().parent_path();  // nvidia/cu13
    all.push_back(wheel / "bin");
    all.push_back(wheel.parent_path() / "cuda_nvcc" / "bin");
    all.push_back(wheel.parent_path() / "cuda_nvdisasm" / "bin");
  }
  return all;
}

// A variable names the program; "none" does without.
fs::path find_program(const char* name, const char* variable) {
  const std::string given = environment(variable);
  if (given == "none") return {};
  if (!given.empty()) return runs(given) ? fs::path(given) : fs::path();
  std::error_code ignored;
  for (const fs::path& folder : folders()) {
    if (fs::exists(folder / name, ignored) && runs(folder / name)) return folder / name;
  }
  return {};
}

// Runs a program with its output in a file; returns its exit status, -1 if it did not start.
int run(const std::vector<std::string>& command, const fs::path& output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A folder that is gone with all that is in it when the object ends.
struct Folder {
  fs::path path;
  Folder() {
    const std::string base = environment("TMPDIR").empty() ? "/tmp" : environment("TMPDIR");
    std::string name = base + "/lathe-clock-XXXXXX";
    if (::mkdtemp(name.data())) path = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

std::string version_of(const fs::path& program, const Folder& folder) {
  run({program.string(), "--version"}, folder.path / "version");
  const std::string text = contents(folder.path / "version");
  const size_t at = text.find("release ");
  if (at == std::string::npos) return "";
  return " " + text.substr(at + 8, text.find(',', at) - at - 8);
}

Listing make(const std::string& ptx, const std::string& arch) {
  Listing out;
  const fs::path assembler = find_program("ptxas", "LATHE_SIM_PTXAS");
  const fs::path lister = find_program("nvdisasm", "LATHE_SIM_NVDISASM");
  if (assembler.empty() || lister.empty()) {
    out.why = assembler.empty() ? "ptxas is not found" : "nvdisasm is not found";
    return out;
  }
  const Folder folder;
  if (folder.path.empty()) {
    out.why = "no folder for temporary files";
    return out;
  }
  std::ofstream(folder.path / "unit.ptx", std::ios::binary) << ptx;
  const std::string unit = (folder.path / "unit.ptx").string();
  const std::string code = (folder.path / "unit.cubin").string();
  const int assembled =
      run({assembler.string(), "-arch=" + arch, "-lineinfo", "-v", unit, "-o", code},
          folder.path / "log");
  out.log = contents(folder.path / "log");
  if (assembled != 0) {
    out.why = "ptxas refuses the PTX for " + arch + ": " + out.log.substr(0, out.log.find('\n'));
    return out;
  }
  if (run({lister.string(), "--print-line-info-ptx", "--print-instruction-encoding", "--print-code",
           code},
          folder.path / "listing") != 0) {
    out.why = "nvdisasm fails: " + contents(folder.path / "listing").substr(0, 200);
    return out;
  }
  out.text = contents(folder.path / "listing");
  out.made_by = "ptxas" + version_of(assembler, folder) + ", nvdisasm" + version_of(lister, folder);
  return out;
}

}  // namespace

std::string find_assembler() { return find_program("ptxas", "LATHE_SIM_PTXAS").string(); }

Listing list_machine_code(const std::string& ptx, const std::string& arch) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::string, Listing>;
  const std::string key = arch + '\n' + ptx;
  const std::lock_guard lock(mutex);
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  return known->emplace(key, make(ptx, arch)).first->second;
}

}  // namespace sim::clock
