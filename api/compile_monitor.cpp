// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The function and its user pointer change together, hence the lock, which no call holds.
#include "api/compile_monitor.h"

#include <cstring>
#include <map>
#include <mutex>

#include "api/boundary.h"
#include "api/cache/line_file.h"
#include "api/cache/manifest.h"
#include "cache/report.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"

namespace lathe {
namespace {

struct Monitor {
  std::mutex mutex;
  lathe_compile_sink sink = nullptr;
  void* user = nullptr;
};
Monitor& monitor() {
  static auto* const instance = new Monitor;  // a thread may compile while the process ends
  return *instance;
}

// Appends to the file that LATHE_COMPILE_LOG names now; failing to is one warning for each file.
void append_line(const std::string& line) {
  const auto path = environment("LATHE_COMPILE_LOG");
  if (!path) return;
  const std::string why = LineFile(*path).append(line);
  static std::mutex* const mutex = new std::mutex;
  static auto* const warned = new std::map<std::string, bool>;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (why.empty() || !warned->emplace(*path, true).second) return;
  log_message(LogLevel::warning,
              text("LATHE_COMPILE_LOG is '", *path, "', and a compile is not in it: ", why));
}

}  // namespace

std::string call_text(const lathe_problem& problem) {
  std::string out;
  const auto add = [&out](const auto&... parts) { out += text(out.empty() ? "" : ", ", parts...); };
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    const auto& extents = problem.opened ? declared.called : declared.extents;
    add(problem.op->tensors[i].name, " ", word(declared.dtype),
        extents_text(declared.shape.rank, extents.data()));
  }
  for (size_t i = 0; i < problem.op->options.size(); ++i) {
    const OptionInfo& option = problem.op->options[i];
    // The text of a mod is no part of a line.
    if (problem.options[i] && !takes_file(option)) add(option.name, "=", *problem.options[i]);
  }
  return text(problem.op->name, "(", out, ")");
}

void tell_compiled(const BuiltKernel& built, const std::string& arch, const lathe_problem* asker) {
  Monitor& all = monitor();
  std::unique_lock<std::mutex> lock(all.mutex);
  const lathe_compile_sink sink = all.sink;
  void* const user = all.user;
  lock.unlock();
  const bool logged = environment("LATHE_COMPILE_LOG").has_value();
  if (!sink && !logged) return;
  const std::string key = built.entry->key.digest.hex();
  const std::string call = asker ? one_line(call_text(*asker)) : "";
  const std::string line = asker ? problem_text(*asker) : "";
  const double milliseconds = report_of(built.entry->metadata).milliseconds;
  if (logged && asker) {
    append_line(text("compiled ", built.spec().kernel, " for ", arch, " in ", milliseconds,
                     " ms: key ", key, ", call ", call));
  }
  if (!sink) return;
  const lathe_compile_info about = {.size = sizeof(lathe_compile_info),
                                    .kernel = built.spec().kernel.c_str(),
                                    .arch = arch.c_str(),
                                    .key = key.c_str(),
                                    .spec = built.spec_text().c_str(),
                                    .call = call.c_str(),
                                    .line = line.c_str(),
                                    .milliseconds = milliseconds};
  sink(user, &about);
}

}  // namespace lathe

extern "C" void lathe_on_compile(lathe_compile_sink sink, void* user) {
  lathe::Monitor& all = lathe::monitor();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.sink = sink;
  all.user = user;
}
