// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/tune/tuned_bundle.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "cache/tuned_file.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

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

// Of each device and class the record that would be used there.
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
  // What holds here comes first: of two records for one class a bundle has one.
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
  std::map<std::string, std::vector<TunedRecord>> by_gpu;
  std::istringstream in(information);
  for (std::string line; std::getline(in, line);) {
    const size_t bar = line.find(kBar);
    if (!line.starts_with(kName) || bar == line.npos) continue;
    const auto record = parse_tuned_record(std::string_view(line).substr(bar + kBar.size()));
    if (record.ok()) by_gpu[record->gpu].push_back(*record);
  }
  for (const auto& [gpu, records] : by_gpu) {
    const TunedFile file(*context.store, gpu);
    LATHE_ASSIGN(const auto after, file.update([&](std::vector<TunedRecord> there) {
      there.insert(there.end(), records.begin(), records.end());
      return there;
    }));
    if (context.tuned) context.tuned->replace_source(file.path(), after);
  }
  return {};
}

}  // namespace lathe
