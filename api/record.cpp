// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One open, one write and one close for each new line: what is appended by one write stays in one
// piece between processes, and no descriptor lives on in children.
#include "api/record.h"

#include <cerrno>
#include <cstring>
#include <map>

#include "api/manifest.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

// Without a bound a call that is interrupted over and over would be a hang.
template <typename Call>
auto patiently(Call call) {
  auto result = call();
  for (int i = 0; i < 1000 && result < 0 && errno == EINTR; ++i) result = call();
  return result;
}

}  // namespace

Recorder::Recorder(std::string path, const FileSystem& fs) : path_(std::move(path)), fs_(fs) {}

std::shared_ptr<Recorder> Recorder::from_environment() {
  const auto path = environment("LATHE_RECORD");
  if (!path) return nullptr;
  static std::mutex* const mutex = new std::mutex;
  static auto* const all = new std::map<std::string, std::shared_ptr<Recorder>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::shared_ptr<Recorder>& found = (*all)[*path];
  if (!found) found = std::make_shared<Recorder>(*path);
  return found;
}

void Recorder::note(const lathe_problem& problem) {
  const Result<std::string> line = problem_text(problem);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!line.ok()) return warn(line.status().text());
  if (!noted_.insert(digest(*line).bytes).second) return;
  const std::string why = append(*line + "\n");
  if (!why.empty()) warn(why);
}

std::string Recorder::append(const std::string& line) const {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int file = patiently([&] { return fs_.open(path_.c_str(), flags, 0600); });
  if (file < 0) return std::strerror(errno);
  struct stat about = {};
  std::string why;
  if (patiently([&] { return fs_.fstat(file, &about); }) != 0) {
    why = std::strerror(errno);
  } else if (!S_ISREG(about.st_mode)) {
    why = "it is no regular file";
  } else {
    const ssize_t written = patiently([&] { return fs_.write(file, line.data(), line.size()); });
    if (written < 0) why = std::strerror(errno);
    if (written >= 0 && static_cast<size_t>(written) < line.size()) {
      why = text("only ", written, " of ", line.size(), " bytes were written");
    }
  }
  if (fs_.close(file) != 0 && errno != EINTR && why.empty()) why = std::strerror(errno);
  return why;
}

void Recorder::warn(const std::string& why) {
  if (warned_) return;
  warned_ = true;
  log_message(LogLevel::warning, text("LATHE_RECORD is '", path_, "', and a problem is not in it: ",
                                      why, "; plans are made all the same"));
}

}  // namespace lathe
