// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tuned choices on disk: <root>/v1/tuned/<gpu>.txt of a store, and files that the user names.
// Trusted and published as entries are.
#pragma once

#include <functional>

#include "cache/store/store.h"
#include "cache/tuned.h"

namespace lathe {

struct TunedFileText {
  std::vector<TunedRecord> records;
  std::string problem;  // what was skipped or why nothing was read, with the file's name; empty
  std::string newer;    // why it must not be replaced: a later version's
};

class TunedFile {
 public:
  // `gpu` as TunedDevice has it.
  TunedFile(Store& store, const std::string& gpu);

  static std::vector<std::string> names(Store& store);  // of the files there are
  std::string path() const;                             // empty: there is no directory
  // A missing file has no records. An error is told once by the log, and in `problem`.
  TunedFileText read() const;
  // Puts change(what is on disk now) in its place, under the lock. CACHE_IO.
  using Change = std::function<std::vector<TunedRecord>(std::vector<TunedRecord>)>;
  Result<std::vector<TunedRecord>> update(const Change& change) const;

 private:
  struct Found;
  Found find(int directory) const;
  Status publish(int directory, const std::string& bytes) const;
  void sweep(int directory, const struct stat& fresh) const;

  Store& store_;
  std::string gpu_, name_;
};

// The records of all GPUs that a store's directory has.
std::vector<TunedRecord> all_tuned(Store& store);

// A file of the user: regular, owned by this user or root, and nobody else's to write. CACHE_IO,
// INVALID_ARGUMENT.
Result<TunedText> read_tuned_file(const std::string& path, const FileSystem& fs = real_fs());

// The better of what was there and what is new; what is new also takes the place of what other
// sources or another library gave.
std::vector<TunedRecord> with_fresh(std::vector<TunedRecord> there,
                                    const std::vector<TunedRecord>& fresh);

}  // namespace lathe
