// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The database of tuned choices as its users see it: what is there, adding to it, forgetting.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "api/boundary.h"
#include "api/tune/tune_choices.h"
#include "cache/tuned_file.h"
#include "collective/agreement.h"
#include "collective/small_gather.h"
#include "ops/group.h"

namespace lathe {
namespace {

TunedFile file_of(const lathe_context& context) {
  return TunedFile(*context.store, tuned_device_of(context).gpu);
}

const char* mark_of(const TunedRecord& record, const TunedDevice& device,
                    const std::vector<TunedRecord>& holding) {
  if (!device.fits(record)) return "other";
  if (std::ranges::find(holding, text_of(record), text_of) == holding.end()) return "hidden";
  return record.stale(lathe_version(), sources_digest()) ? "stale" : "holds";
}

// The texts of the report are lent: kept by the calling thread.
Status give_report(lathe_context& context, lathe_tuned_report report, const std::string& problem,
                   lathe_tuned_report* out) {
  if (!out) return {};
  thread_local std::string path_text, problem_text;
  const TunedFile file = file_of(context);
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

// Returns how many of the records after a change were not there before.
int64_t fresh_records(const std::vector<TunedRecord>& before,
                      const std::vector<TunedRecord>& after) {
  std::set<std::string> there;
  for (const TunedRecord& record : before) there.insert(text_of(record));
  return std::ranges::count_if(
      after, [&](const TunedRecord& record) { return !there.contains(text_of(record)); });
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
    changed += static_cast<uint64_t>(fresh_records(before, after));
    take_file(context, file.path(), after);
  }
  return changed;
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

// Returns the texts of the keys of what the sources have, or of those among `keys`.
std::vector<std::string> key_texts(const std::vector<EntrySource*>& sources,
                                   const std::vector<Digest>* keys) {
  std::vector<std::string> out;
  for (EntrySource* source : sources) {
    for (const Digest& key : source->keys()) {
      if (keys && std::ranges::find(*keys, key) == keys->end()) continue;
      if (const Result<Entry> entry = source->read(key); entry.ok()) out.push_back(entry->key.text);
    }
  }
  return out;
}

// Returns the record that would be used for each device and class.
std::vector<TunedRecord> deciding(const std::vector<TunedRecord>& records) {
  std::map<std::tuple<std::string, std::string, int>, std::vector<TunedRecord>> by_device;
  for (const TunedRecord& record : records) {
    by_device[{record.gpu, record.arch, record.multiprocessors}].push_back(record);
  }
  std::vector<TunedRecord> out;
  for (const auto& [device, own] : by_device) {
    TunedChoices choices(std::make_from_tuple<TunedDevice>(device));
    choices.add_source("", own);
    const auto holding = choices.holding();
    out.insert(out.end(), holding.begin(), holding.end());
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
  const std::vector<std::string> kernels = key_texts(sources, keys);
  for (const TunedRecord& record : records) {
    const bool made = std::ranges::any_of(kernels, [&](const std::string& key) {
      return value_of(key, "arch") == record.arch && is_choice_of(record, value_of(key, "spec"));
    });
    const std::string line = record.gpu + " | " + text_of(record);
    if (made && std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
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

// A gather, of which the others' bytes are not looked at: databases have some KB.
Status share_tuned(lathe_group& group) {
  constexpr uint64_t kMostBytes = uint64_t{4} << 20;
  constexpr const char* kWhat = "the agreement on tuned choices";
  const auto& tuned = group.context->tuned;
  std::string mine = tuned ? tuned_text(tuned->holding()) : std::string();
  uint64_t bytes = mine.size() > kMostBytes ? 0 : mine.size();
  LATHE_ASSIGN(const std::string sizes, small_gather(*group.group, &bytes, sizeof(bytes), kWhat));
  std::memcpy(&bytes, sizes.data(), sizeof(bytes));
  std::string text;
  if (bytes > 0) {
    mine.resize(bytes);
    LATHE_ASSIGN(text, small_gather(*group.group, mine.data(), bytes, kWhat));
    text.resize(bytes);
  }
  group.choices = nullptr, group.choices_digest = 0;
  if (text.empty()) return {};
  LATHE_ASSIGN(const TunedText read, parse_tuned(text));
  group.choices = std::make_shared<FixedChoices>(read.records);
  group.choices_digest = digest_of(std::string_view(text));
  return {};
}

}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_tuned_list(lathe_context* context, const char** lines, lathe_tuned_report* out) {
  return boundary({{context, "context"}, {lines, "lines"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    std::string all = list_text(*context);
    LATHE_TRY(give_report(*context, {}, file_of(*context).read().problem, out));
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->tuned_list = std::move(all);
    *lines = context->tuned_list.c_str();
    return {};
  });
}

lathe_status lathe_tuned_merge(lathe_context* context, const char* path, lathe_tuned_report* out) {
  return boundary({{context, "context"}, {path, "path"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    LATHE_ASSIGN(const TunedText given, read_tuned_file(path));
    LATHE_ASSIGN(const uint64_t changed, add_records(*context, given.records));
    return give_report(*context, {.skipped = given.skipped, .changed = changed}, given.problem,
                       out);
  });
}

lathe_status lathe_tuned_forget(lathe_context* context, const char* kernel,
                                lathe_tuned_report* out) {
  return boundary({{context, "context"}}, [&]() -> Status {
    if (out) LATHE_TRY(check_sized(out));
    const TunedFile file = file_of(*context);
    lathe_tuned_report report = {};
    LATHE_ASSIGN(const auto after, file.update([&](std::vector<TunedRecord> there) {
      report.changed = std::erase_if(there, [&](const TunedRecord& record) {
        return kernel == nullptr || record.kernel == kernel;
      });
      return there;
    }));
    take_file(*context, file.path(), after);
    return give_report(*context, report, "", out);
  });
}

lathe_status lathe_group_share_tuned(lathe_group* group) {
  return boundary({{group, "group"}}, [&]() -> Status {
    const Device::Scope scope(*group->context->device);
    LATHE_TRY(scope.status());
    return share_tuned(*group);
  });
}

}  // extern "C"
