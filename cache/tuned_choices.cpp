// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which record answers a tuning key.
#include "cache/tuned_choices.h"

#include <algorithm>
#include <mutex>

#include "codegen/base/log.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

std::string name_of(const std::string& kernel, const std::string& problem_class) {
  return kernel + '|' + problem_class;
}

// Returns whether more time is at stake in `a` than in `b`, two tuned shapes of a class.
bool outweighs(const TunedRecord& a, const TunedRecord& b) {
  if (a.measured != b.measured) return a.measured;
  if (a.default_us != b.default_us) return a.default_us > b.default_us;
  return text_of(a) < text_of(b);
}

}  // namespace

TunedDevice tuned_device(const DeviceFacts& facts, const std::string& driver_name) {
  const auto published = facts_of_gpu(facts.gpu);
  const bool as_published = published.ok() && published->multiprocessors == facts.multiprocessors;
  const std::string& name = driver_name.empty() || as_published ? facts.gpu : driver_name;
  return {safe_word(name), facts.arch, facts.multiprocessors};
}

void TunedChoices::add_source(const std::string& name, const std::vector<TunedRecord>& records) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sources_.push_back({name, records});
  index();
}

void TunedChoices::replace_source(const std::string& name,
                                  const std::vector<TunedRecord>& records) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = std::find_if(sources_.begin(), sources_.end(),
                                  [&](const Source& source) { return source.name == name; });
  if (found == sources_.end()) return;
  found->records = records;
  index();
}

void TunedChoices::index() {
  by_class_.clear();
  for (const Source& source : sources_) {
    std::map<std::string, TunedRecord> own;
    for (const TunedRecord& record : source.records) {
      if (!device_.fits(record)) continue;
      const auto [at, fresh] = own.emplace(name_of(record.kernel, record.problem_class), record);
      if (!fresh && outweighs(record, at->second)) at->second = record;
    }
    by_class_.merge(own);  // keeps what earlier sources gave
  }
  silent_ = by_class_.empty();
}

size_t TunedChoices::choose(const TuningKey& tuning_key) const {
  std::string choice;
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = by_class_.find(name_of(tuning_key.kernel, tuning_key.problem_class));
    if (found == by_class_.end()) return 0;
    choice = found->second.choice;
  }
  const auto& candidates = tuning_key.candidates;
  const auto at = std::find(candidates.begin(), candidates.end(), choice);
  if (at == candidates.end()) {
    ++ignored_;
    log_message(LogLevel::info, text("the tuned choice ", in_quotes(choice), " of ",
                                     tuning_key.kernel, " is not offered and was ignored"));
    return 0;
  }
  ++used_;
  return static_cast<size_t>(at - candidates.begin());
}

std::vector<TunedChoices::Source> TunedChoices::sources() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return sources_;
}

std::vector<TunedRecord> TunedChoices::holding() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<TunedRecord> all;
  for (const auto& [name, record] : by_class_) all.push_back(record);
  return all;
}

}  // namespace lathe
