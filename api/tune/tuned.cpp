// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The database of tuned choices as its users see it: what is there, adding to it, forgetting.
#include <algorithm>
#include <map>
#include <sstream>

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
Status give_report(lathe_context& context, lathe_tuned_report report, const std::string& problem,
                   lathe_tuned_report* out) {
  if (!out) return {};
  thread_local std::string path_text, problem_text;
  const TunedFile file(*context.store, device_of(context).gpu);
  path_text = file.path(), problem_text = problem;
  report.path = path_text.c_str(), report.problem = problem_text.c_str();
  if (context.tuned) {
    report.used = context.tuned->used(), report.ignored = context.tuned->ignored();
    for (const auto& source : context.tuned->sources()) report.records += source.records.size();
  }
  return give_sized(report, out);
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

// Adds records, of whatever GPUs, to the files of the user's directory; gives how many are new.
Result<uint64_t> add_records(lathe_context& context, const std::vector<TunedRecord>& all) {
  std::map<std::string, std::vector<TunedRecord>> by_gpu;
  for (const TunedRecord& record : all) by_gpu[record.gpu].push_back(record);
  uint64_t changed = 0;
  for (const auto& [gpu, records] : by_gpu) {
    const TunedFile file(*context.store, gpu);
    std::vector<TunedRecord> before;
    LATHE_ASSIGN(const auto after, file.update([&](std::vector<TunedRecord> there) {
      before = there;
      there.insert(there.end(), records.begin(), records.end());
      return there;
    }));
    changed += differences(before, after);
    take_file(context, file.path(), after);
  }
  return changed;
}

Status merge(lathe_context& context, const char* path, lathe_tuned_report* out) {
  LATHE_ASSIGN(const TunedText given, read_tuned_file(path));
  lathe_tuned_report report = {};
  report.skipped = given.skipped;
  LATHE_ASSIGN(report.changed, add_records(context, given.records));
  return give_report(context, report, given.problem, out);
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
  return give_report(context, report, "", out);
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

struct MadeKernel {
  std::string arch, spec;
};

std::vector<MadeKernel> kernels_of(const std::vector<EntrySource*>& sources,
                                   const std::vector<Digest>* keys) {
  std::vector<MadeKernel> out;
  for (EntrySource* source : sources) {
    for (const Digest& key : source->keys()) {
      if (keys && std::find(keys->begin(), keys->end(), key) == keys->end()) continue;
      const Result<Entry> entry = source->read(key);
      if (!entry.ok()) continue;
      out.push_back({std::string(value_of(entry->key.text, "arch")),
                     std::string(value_of(entry->key.text, "spec"))});
    }
  }
  return out;
}

// Returns the record that would be used for each device and class.
std::vector<TunedRecord> deciding(const std::vector<TunedRecord>& records) {
  std::map<std::string, std::pair<TunedDevice, std::vector<TunedRecord>>> by_device;
  for (const TunedRecord& record : records) {
    auto& [device, own] =
        by_device[text(record.gpu, '|', record.arch, '|', record.multiprocessors)];
    device = {record.gpu, record.arch, record.multiprocessors};
    own.push_back(record);
  }
  std::vector<TunedRecord> out;
  for (const auto& [name, each] : by_device) {
    TunedChoices choices(each.first);
    choices.add_source("", each.second);
    const auto own = choices.holding();
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

}  // namespace

std::vector<std::string> tuned_lines(lathe_context& context,
                                     const std::vector<EntrySource*>& sources,
                                     const std::vector<Digest>* keys) {
  std::vector<std::string> lines;
  if (!context.tuned) return lines;
  // The records that hold here come first: a bundle has one of two records for one class.
  std::vector<TunedRecord> records = context.tuned->holding();
  const auto others = deciding(all_tuned(*context.store));
  records.insert(records.end(), others.begin(), others.end());
  if (records.empty()) return lines;
  const std::vector<MadeKernel> kernels = kernels_of(sources, keys);
  for (const TunedRecord& record : records) {
    const bool made = std::any_of(kernels.begin(), kernels.end(), [&](const MadeKernel& kernel) {
      return kernel.arch == record.arch && is_choice_of(record, kernel.spec);
    });
    const std::string line = record.gpu + " | " + text_of(record);
    if (made && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

Status take_tuned_lines(lathe_context& context, const std::string& information) {
  constexpr std::string_view kName = "tuned=", kBar = " | ";
  std::vector<TunedRecord> records;
  std::istringstream in(information);
  for (std::string line; std::getline(in, line);) {
    const size_t bar = line.find(kBar);
    if (!line.starts_with(kName) || bar == line.npos) continue;
    const auto record = parse_tuned_record(std::string_view(line).substr(bar + kBar.size()));
    if (record.ok()) records.push_back(*record);
  }
  LATHE_TRY(add_records(context, records));
  return {};
}

}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_tuned_list(lathe_context* context, const char** lines, lathe_tuned_report* out) {
  return boundary({{context, "context"}, {lines, "lines"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    std::string all = list_text(*context);
    const TunedFile file(*context->store, device_of(*context).gpu);
    LATHE_TRY(give_report(*context, {}, file.read().problem, out));
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->tuned_list = std::move(all);
    *lines = context->tuned_list.c_str();
    return {};
  });
}

lathe_status lathe_tuned_merge(lathe_context* context, const char* path, lathe_tuned_report* out) {
  return boundary({{context, "context"}, {path, "path"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    return merge(*context, path, out);
  });
}

lathe_status lathe_tuned_forget(lathe_context* context, const char* kernel,
                                lathe_tuned_report* out) {
  return boundary({{context, "context"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    return forget(*context, kernel, out);
  });
}

}  // extern "C"
