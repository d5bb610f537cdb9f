// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Entries on disk: one directory, verified on every read, published by temp + fsync + rename, one
// lock per key. A store that cannot be used degrades to memory only, with one warning.
//
// Thread-safe; any number of processes may share a directory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store/entry.h"
#include "cache/store/entry_source.h"
#include "cache/store/fs.h"

namespace lathe {

class NearestKey;

struct StoreStat {
  uint64_t entries = 0, bytes = 0;             // on disk
  uint64_t hits = 0, misses = 0, corrupt = 0;  // by this process
  uint64_t published = 0, publish_failures = 0;
};

struct VerifyReport {
  uint64_t checked = 0, removed = 0;
  std::string problems;  // a line per bad entry
};

struct TrimReport {
  uint64_t entries = 0, bytes = 0;  // that are left
  uint64_t removed = 0, freed = 0;  // entries, and their bytes
  uint64_t temporaries = 0;         // left by processes that died while publishing
  bool busy = false;                // another process is trimming: nothing was done
  std::string names;                // a line per removed entry: name, bytes
};

class Store : public EntrySource {
 public:
  // `root` empty: LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe, HOME/.cache/lathe; none: memory only.
  // Never fails: a refused or unusable root is reported through the log and by problem().
  // "off" in place of a path: memory only, as was asked, and without a warning.
  static std::shared_ptr<Store> open(const std::string& root, const FileSystem& fs = real_fs());
  // A cache that somebody else keeps, of this user or of root: never made, locked, touched, mended,
  // trimmed or published into. Refused as `open` refuses, and if it is missing.
  static std::shared_ptr<Store> open_read_only(const std::string& root,
                                               const FileSystem& fs = real_fs());
  ~Store() override;

  const std::string& root() const;     // empty: memory only
  const std::string& problem() const;  // why it is memory only, with the remedy

  // Nothing on a miss or a bad entry (which is removed and counted). `again`: the second look under
  // the lock, which is not counted as another miss. `keep`: as decode_entry's.
  std::optional<Entry> get(const Key& key, bool again = false, Keep keep = Keep::all);
  // Returns whether the entry was stored; a failure is a warning and a counter, never an error.
  bool put(const Entry& entry);

  // Holds the key's lock across processes until destroyed, which is before the store is. Not
  // `held`: there is no usable lock, or its holder took too long, or has published what the caller
  // waits for. In each case the caller looks again and, on a miss, compiles privately.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();
    bool held() const { return fd_ >= 0; }
    bool has_slot() const { return fd_ >= 0 && slot_ > 0; }

   private:
    friend class Store;
    const FileSystem* fs_ = nullptr;
    int fd_ = -1;
    int64_t offset_ = 0;
    int64_t slot_ = 0;  // none if not above 0
  };
  Lock lock(const Key& key);
  // The same with one of this machine's compile slots, of which it has one per core. Waiting for
  // one, the caller holds nothing; after LATHE_LOCK_TIMEOUT_MS it has the key's lock alone.
  Lock lock_to_compile(const Key& key);

  // A small file beside the entries that checks itself; nothing if it cannot be read. Failing to
  // write it is no matter.
  std::optional<std::string> read_note(const char* name) const;
  void write_note(const char* name, std::string_view text);
  const FileSystem& files() const;

  StoreStat stat();
  VerifyReport verify();
  // Removes the entries that were used longest ago until what is left has at most 0.9 * `max_bytes`
  // (only if there is more than `max_bytes`), and temporary files that nobody can still be writing.
  // Entries whose key is locked stay. A publish does the same to LATHE_CACHE_MAX_BYTES, now and
  // then, and leaves alone what was used within a minute. `dry_run`: only says.
  TrimReport trim(uint64_t max_bytes, bool dry_run);
  uint64_t max_bytes() const;  // LATHE_CACHE_MAX_BYTES; 0: no limit

  // Compilers whose entries were published here, for looking up without one. Oldest first.
  std::vector<std::string> compilers();
  // Returns how the entry most alike differs from the one asked for: "spec=... (there: spec=...)".
  // Empty if there is none. Reads at most a few hundred entries: for messages.
  std::string nearest_difference(const Key& key);
  void compare(NearestKey& nearest);  // the same, over several caches

  // A small text <root>/v1/<directory>/<name>, cut at `most`; empty if there is none to be trusted.
  std::string read_text(const std::string& directory, const std::string& name, size_t most);

  std::vector<Digest> keys() override;
  Result<Entry> read(const Digest& key) override;

  struct State;

 private:
  friend class TunedFile;  // another file of the same directory
  Store();
  Lock lock(const Key& key, bool with_slot);
  std::unique_ptr<State> state_;
};

}  // namespace lathe
