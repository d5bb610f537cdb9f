// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs ptxas over a module's text and reads what it says of a kernel.
#include "sim/driver/code/ptxas.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern char** environ;

namespace sim::driver {
namespace {

// A Descriptor closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

  bool write_all(const std::string& text) const {
    for (size_t at = 0; at < text.size();) {
      const ssize_t put = write(fd_, text.data() + at, text.size() - at);
      if (put <= 0) return false;
      at += static_cast<size_t>(put);
    }
    return lseek(fd_, 0, SEEK_SET) == 0;
  }
  std::string read_all() const {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0;
         (got = pread(fd_, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int fd_;
};

// Runs the program with `text` as its input and returns what it says; "" if it fails.
std::string ask(const std::string& program, const std::string& arch, const std::string& text) {
  const Descriptor in(memfd_create("ptx", MFD_CLOEXEC)), out(memfd_create("said", MFD_CLOEXEC));
  if (in.get() < 0 || out.get() < 0 || !in.write_all(text)) return "";
  posix_spawn_file_actions_t files;
  if (posix_spawn_file_actions_init(&files) != 0) return "";
  posix_spawn_file_actions_adddup2(&files, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, out.get(), STDERR_FILENO);
  std::string words[] = {program, "-v", "--gpu-name=" + arch, "-o", "/dev/null", "/dev/stdin"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                       words[4].data(), words[5].data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return "";
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) return "";
  return out.read_all();
}

// "Compiling entry function 'NAME' for 'sm_90'", and later "Used 40 registers".
int registers_said(const std::string& said, const std::string& kernel) {
  static constexpr char kUsed[] = "Used ";
  const size_t entry = said.find("entry function '" + kernel + "'");
  if (entry == std::string::npos) return 0;
  const size_t used = said.find(kUsed, entry);
  return used == std::string::npos ? 0 : std::atoi(said.c_str() + used + sizeof kUsed - 1);
}

}  // namespace

int assembled_registers(const Options& options, Function& function, const Profile& profile) {
  if (options.ptxas.empty()) return 0;
  if (!function.assembled) {
    const std::string said = ask(options.ptxas, profile.arch, function.code->text());
    function.assembled = registers_said(said, function.kernel->name);
  }
  return *function.assembled;
}

}  // namespace sim::driver
