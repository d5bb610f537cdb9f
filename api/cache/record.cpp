// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cache/record.h"

#include <map>

#include "api/cache/manifest.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {

Recorder::Recorder(std::string path, const FileSystem& fs) : file_(std::move(path), fs) {}

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
  const std::string line = problem_text(problem);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!noted_.insert(digest(line).bytes).second) return;
  const std::string why = file_.append(line);
  if (!why.empty()) warn(why);
}

void Recorder::warn(const std::string& why) {
  if (warned_) return;
  warned_ = true;
  log_message(LogLevel::warning,
              text("LATHE_RECORD is '", file_.path(), "', and a problem is not in it: ", why,
                   "; plans are made all the same"));
}

}  // namespace lathe
