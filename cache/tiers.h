// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Search order for a compiled kernel below memory: the user's directory, the read-only directories
// of LATHE_CACHE_READONLY, the bundles of LATHE_BUNDLES. An entry found in one is not copied into
// another.
//
// Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/nearest.h"
#include "cache/store/entry_source.h"
#include "cache/store/fs.h"
#include "cache/store/store.h"

namespace lathe {

enum class Origin { compiler, disk, memory, bundle };
const char* word(Origin origin);

// One that somebody else keeps: nothing in it is ever changed. A bad entry in it is a counted miss
// with one warning. A refused one answers as an empty one.
class ReadOnlyTier : public EntrySource {
 public:
  virtual const std::string& name() const = 0;     // its path
  virtual const std::string& problem() const = 0;  // why it is refused, with the remedy; or empty
  virtual Origin origin() const = 0;               // disk or bundle
  virtual std::optional<Entry> get(const Key& key) = 0;
  // Compilers whose entries are in it.
  virtual std::vector<std::string> compilers() = 0;
  virtual void compare(NearestKey& nearest) = 0;
  std::string nearest_difference(const Key& key);
  // The tuned choices for a GPU that it carries: a directory's file v1/tuned/<gpu>.txt; of a bundle
  // the records that begin with "<gpu> | ", without that, a line each. Empty if there are none.
  virtual std::string tuned(const std::string& gpu) = 0;
  virtual StoreStat stat() = 0;
};

// Neither fails: a refused tier says so through the log and by problem().
std::shared_ptr<ReadOnlyTier> open_read_only_directory(const std::string& path,
                                                       const FileSystem& fs = real_fs());
std::shared_ptr<ReadOnlyTier> open_bundle_tier(const std::string& path,
                                               const FileSystem& fs = real_fs());

class Tiers {
 public:
  using List = std::vector<std::shared_ptr<ReadOnlyTier>>;
  explicit Tiers(std::shared_ptr<Store> store, List read_only = {});
  // `root` as for Store::open; the others as the environment says.
  static std::shared_ptr<Tiers> open(const std::string& root, const FileSystem& fs = real_fs());

  Store& store() { return *store_; }
  const std::shared_ptr<Store>& shared_store() const { return store_; }
  const List& read_only() const { return read_only_; }

  struct Hit {
    Entry entry;
    Origin origin;
  };
  std::optional<Hit> get(const Key& key, Keep keep = Keep::all);
  // Returns the compilers of all tiers, each once.
  std::vector<std::string> compilers();
  std::string nearest_difference(const Key& key);
  // Every tier that was looked at, and what is wrong with it: for messages.
  std::string names();
  // All that entries can be copied from.
  std::vector<EntrySource*> sources();

 private:
  std::shared_ptr<Store> store_;
  List read_only_;
};

}  // namespace lathe
