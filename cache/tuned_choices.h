// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Answers the choices of kernels from the database. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cache/tuned.h"
#include "codegen/choice.h"

namespace lathe {

// Records of another of these are not used.
struct TunedDevice {
  std::string gpu, arch;
  int multiprocessors = 0;

  bool fits(const TunedRecord& record) const {
    return record.gpu == gpu && record.arch == arch && record.multiprocessors == multiprocessors;
  }
};
// `driver_name` empty: no device, and its facts by name. A GPU whose facts are not those that are
// published for its name is named as the driver does.
TunedDevice tuned_device(const DeviceFacts& facts, const std::string& driver_name);

class TunedChoices : public Choices {
 public:
  explicit TunedChoices(TunedDevice device) : device_(std::move(device)) {}

  // Behind those that were given before: the first source with a record of a class decides.
  void add_source(const std::string& name, const std::vector<TunedRecord>& records);
  // In place of those of a source; of one that was not added nothing is taken.
  void replace_source(const std::string& name, const std::vector<TunedRecord>& records);

  // 0 where nothing is known, or what was chosen is no longer offered, which is counted.
  size_t choose(const TuningKey& tuning_key) const override;
  bool silent() const override { return silent_; }

  struct Source {
    std::string name;
    std::vector<TunedRecord> records;
  };
  // All that was given, records of other devices too.
  std::vector<Source> sources() const;
  // Returns the records that hold for this device, one for each kernel and class.
  std::vector<TunedRecord> holding() const;
  const TunedDevice& device() const { return device_; }
  uint64_t used() const { return used_; }
  uint64_t ignored() const { return ignored_; }

 private:
  void index();  // with the mutex held

  const TunedDevice device_;
  mutable std::shared_mutex mutex_;
  std::vector<Source> sources_;                  // guarded by mutex_
  std::map<std::string, TunedRecord> by_class_;  // guarded by mutex_: kernel|class
  std::atomic<bool> silent_{true};               // by_class_ is empty
  mutable std::atomic<uint64_t> used_{0}, ignored_{0};
};

}  // namespace lathe
