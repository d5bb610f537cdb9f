// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/code/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "api/cli/failure.h"

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) fail("no pipe can be made: ", std::strerror(errno));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int from() const { return ends_[0]; }
  int to() const { return ends_[1]; }
  void close_end(int which) {
    if (ends_[which] >= 0) close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

pid_t start(const std::string& file, const std::vector<std::string>& arguments, const Pipe& out,
            const Pipe& errors) {
  std::vector<char*> words = {const_cast<char*>(file.c_str())};
  for (const std::string& each : arguments) words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.to(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors.to(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int error = posix_spawn(&child, file.c_str(), &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail(in_quotes(file), " cannot be started: ", std::strerror(error));
  return child;
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<long long>(left, 0));
}

// Reads both ends until the program has closed them; says which limit it exceeded.
std::string read_all(std::array<Pipe*, 2> from, std::array<std::string*, 2> to,
                     const ProgramLimits& limits, Clock::time_point end) {
  while (from[0]->from() >= 0 || from[1]->from() >= 0) {
    std::array<pollfd, 2> waits = {pollfd{from[0]->from(), POLLIN, 0},
                                   pollfd{from[1]->from(), POLLIN, 0}};
    const int ready = poll(waits.data(), waits.size(), milliseconds_until(end));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return text("it took more than ", limits.milliseconds, " ms");
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      char bytes[1 << 16];
      const ssize_t got = read(waits[i].fd, bytes, sizeof bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        from[i]->close_end(0);
        continue;
      }
      to[i]->append(bytes, static_cast<size_t>(got));
      if (to[i]->size() > limits.bytes)
        return text("it printed more than ", limits.bytes, " bytes");
    }
  }
  return {};
}

// Returns how the process ended, or why it was killed.
std::string wait_for(pid_t child, std::string problem, const ProgramLimits& limits,
                     Clock::time_point end) {
  int status = 0;
  for (pid_t ended = 0; problem.empty() && ended == 0;) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) return text("it is lost: ", std::strerror(errno));
    if (ended > 0) break;
    ended = 0;
    if (milliseconds_until(end) == 0)
      problem = text("it took more than ", limits.milliseconds, " ms");
    poll(nullptr, 0, 1);
  }
  if (!problem.empty()) {
    kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return problem;
  }
  if (WIFSIGNALED(status)) return text("it died of signal ", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : text("its exit status is ", WEXITSTATUS(status));
}

}  // namespace

ProgramResult run_program(const std::string& file, const std::vector<std::string>& arguments,
                          const ProgramLimits& limits) {
  Pipe out, errors;
  const auto end = Clock::now() + std::chrono::milliseconds(limits.milliseconds);
  const pid_t child = start(file, arguments, out, errors);
  out.close_end(1);
  errors.close_end(1);
  ProgramResult result;
  const std::string problem = read_all({&out, &errors}, {&result.out, &result.errors}, limits, end);
  result.problem = wait_for(child, problem, limits, end);
  return result;
}

}  // namespace lathe::cli
