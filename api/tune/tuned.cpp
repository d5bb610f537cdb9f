// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The database of tuned choices as its users see it: what is there, adding to it, forgetting.
#include <algorithm>
#include <map>

#include "api/boundary.h"
#include "api/tune/tune_choices.h"
#include "cache/tuned_file.h"

namespace lathe {
namespace {

TunedDevice device_of(const lathe_context& context) {
  return tuned_device(context.facts, context.device ? context.device->name() : "");
}

const char* mark_of(const TunedRecord& record, const TunedDevice& device,
                    const std::vector<TunedRecord>& holding) {
  if (!device.fits(record)) return "other";
  const bool holds = std::any_of(holding.begin(), holding.end(), [&](const TunedRecord& each) {
    return text_of(each) == text_of(record);
  });
  if (!holds) return "hidden";
  return record.stale(lathe_version(), sources_digest()) ? "stale" : "holds";
}

// The texts of the report are lent: kept by the calling thread.
void give_report(lathe_context& context, lathe_tuned_report report, const std::string& problem,
                 lathe_tuned_report* out) {
  thread_local std::string path_text, problem_text;
  const TunedFile file(*context.store, device_of(context).gpu);
  path_text = file.path(), problem_text = problem;
  report.path = path_text.c_str(), report.problem = problem_text.c_str();
  if (context.tuned) {
    report.used = context.tuned->used(), report.ignored = context.tuned->ignored();
    for (const auto& source : context.tuned->sources()) report.records += source.records.size();
  }
  give_sized(report, out);
}

// As the file has them now, so that later plans of the context are made by them.
void take_file(lathe_context& context, const std::string& path,
               const std::vector<TunedRecord>& records) {
  if (context.tuned) context.tuned->replace_source(path, records);
}

uint64_t differences(const std::vector<TunedRecord>& before,
                     const std::vector<TunedRecord>& after) {
  std::map<std::string, int> places;
  for (const TunedRecord& record : before) places[text_of(record)] = 1;
  uint64_t fresh = 0;
  for (const TunedRecord& record : after) fresh += places.count(text_of(record)) == 0 ? 1 : 0;
  return fresh;
}

Status merge(lathe_context& context, const char* path, lathe_tuned_report* out) {
  LATHE_ASSIGN(const TunedText given, read_tuned_file(path));
  std::map<std::string, std::vector<TunedRecord>> by_gpu;
  for (const TunedRecord& record : given.records) by_gpu[record.gpu].push_back(record);
  lathe_tuned_report report = {};
  report.skipped = given.skipped;
  for (const auto& [gpu, records] : by_gpu) {
    const TunedFile file(*context.store, gpu);
    std::vector<TunedRecord> before;
    LATHE_ASSIGN(const auto after, file.update([&](std::vector<TunedRecord> there) {
      before = there;
      there.insert(there.end(), records.begin(), records.end());
      return there;
    }));
    report.changed += differences(before, after);
    if (gpu == device_of(context).gpu) take_file(context, file.path(), after);
  }
  if (out) give_report(context, report, given.problem, out);
  return {};
}

Status forget(lathe_context& context, const char* kernel, lathe_tuned_report* out) {
  const TunedFile file(*context.store, device_of(context).gpu);
  lathe_tuned_report report = {};
  LATHE_ASSIGN(const auto after, file.update([&](std::vector<TunedRecord> there) {
    const size_t before = there.size();
    const auto goes = [&](const TunedRecord& record) {
      return kernel == nullptr || record.kernel == kernel;
    };
    there.erase(std::remove_if(there.begin(), there.end(), goes), there.end());
    report.changed = before - there.size();
    return there;
  }));
  take_file(context, file.path(), after);
  if (out) give_report(context, report, "", out);
  return {};
}

std::string list_text(const lathe_context& context) {
  std::string lines;
  if (!context.tuned) return lines;
  const auto holding = context.tuned->holding();
  for (const TunedChoices::Source& source : context.tuned->sources()) {
    for (const TunedRecord& record : source.records) {
      lines += text(mark_of(record, context.tuned->device(), holding), '\t', source.name, '\t',
                    text_of(record), '\n');
    }
  }
  return lines;
}

}  // namespace
}  // namespace lathe

using lathe::boundary;
using lathe::require;
using lathe::Status;

extern "C" {

lathe_status lathe_tuned_list(lathe_context* context, const char** lines, lathe_tuned_report* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    LATHE_TRY(require(lines, "lines"));
    if (out) LATHE_TRY(lathe::check_sized(out));
    std::string all = lathe::list_text(*context);
    const lathe::TunedFile file(*context->store, lathe::device_of(*context).gpu);
    if (out) lathe::give_report(*context, {}, file.read().problem, out);
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->tuned_list = std::move(all);
    *lines = context->tuned_list.c_str();
    return {};
  });
}

lathe_status lathe_tuned_merge(lathe_context* context, const char* path, lathe_tuned_report* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    LATHE_TRY(require(path, "path"));
    if (out) LATHE_TRY(lathe::check_sized(out));
    return lathe::merge(*context, path, out);
  });
}

lathe_status lathe_tuned_forget(lathe_context* context, const char* kernel,
                                lathe_tuned_report* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    if (out) LATHE_TRY(lathe::check_sized(out));
    return lathe::forget(*context, kernel, out);
  });
}

}  // extern "C"
