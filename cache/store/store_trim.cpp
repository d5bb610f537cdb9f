// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The size cap: what was used longest ago goes first. Reads names and stat alone, so that any
// version of the library may trim what any other has stored. Times of files are compared with each
// other and with that of a file just touched in the same place, never with the local clock: a
// server may have another one, and clocks are set back. Access times are not used: mounts switch
// them off.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <tuple>

#include "cache/store/store_state.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr uint64_t kTrimEvery = 256;         // publishes of this process
constexpr int64_t kTemporarySeconds = 3600;  // no publish takes as long
constexpr int64_t kFreshSeconds = 60;        // a process may wait to read what was just published

using Nanoseconds = int64_t;
constexpr Nanoseconds kSecond = 1'000'000'000;

// A damaged time may lie thousands of years away: from 1970 to 2242 is enough.
Nanoseconds age_mark(const struct stat& status) {
  const int64_t seconds = std::clamp<int64_t>(status.st_mtim.tv_sec, 0, int64_t{1} << 33);
  return seconds * kSecond + status.st_mtim.tv_nsec;
}

// A directory that a version of the library keeps its entries in.
struct Version {
  std::string name;
  Opened directory;
  bool ours() const { return name == kVersionDirectory; }
};

struct File {
  const Version* version = nullptr;
  std::string name;  // of a temporary file: with its shard
  uint64_t bytes = 0;
  Nanoseconds used = 0;
};

struct Listing {
  std::vector<File> entries, temporaries;
  uint64_t bytes = 0;  // of the entries
};

bool is_temporary(std::string_view name) { return name.substr(0, 5) == ".tmp."; }

void list_files(const FileSystem& fs, const Version& version, Listing& out) {
  for_each_file(fs, version.directory,
                [&](const std::string& shard, int fd, const std::string& name) {
                  const bool entry = is_entry_name(name) && name.substr(0, 2) == shard;
                  if (!entry && !is_temporary(name)) return true;
                  struct stat status;
                  const auto examine = [&] {
                    return fs.fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
                  };
                  if (uninterrupted(examine) != 0)
                    return true;  // gone meanwhile, or lost for the moment
                  const File file{&version, entry ? name : shard + "/" + name,
                                  static_cast<uint64_t>(status.st_size), age_mark(status)};
                  (entry ? out.entries : out.temporaries).push_back(file);
                  if (entry) out.bytes += file.bytes;
                  return true;
                });
}

// The time it is for files here, by the mtime of the file of locks, which nobody else reads.
// Nothing if that cannot be told: then no temporary file is old.
std::optional<Nanoseconds> time_here(const FileSystem& fs, const Opened& locks) {
  const struct timespec now[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  struct stat status;
  if (!locks || uninterrupted([&] { return fs.futimens(locks.fd(), now); }) != 0 ||
      uninterrupted([&] { return fs.fstat(locks.fd(), &status); }) != 0) {
    return std::nullopt;
  }
  return age_mark(status);
}

// Removes files, and says whether they are gone. An entry of ours whose key is locked stays:
// whoever holds the lock is about to read or to replace it. Locks of another version are its
// affair.
class Remover {
 public:
  Remover(const FileSystem& fs, const Opened& locks, bool dry_run)
      : fs_(fs), locks_(locks), dry_run_(dry_run) {}

  bool entry(const File& file) const {
    const int64_t offset = lock_offset(file.name);
    // Locks that do not work are no reason to keep everything for ever.
    const bool lockable = file.version->ours() && locks_;
    const int error = lockable ? try_lock(fs_, locks_.fd(), offset) : ENOLCK;
    if (error == EAGAIN) return false;
    const bool gone = remove(*file.version, file.name.substr(0, 2), file.name);
    if (error == 0) unlock(fs_, locks_.fd(), offset);
    return gone;
  }
  bool temporary(const File& file) const {
    return remove(*file.version, file.name.substr(0, 2), file.name.substr(3));
  }

 private:
  bool remove(const Version& version, const std::string& shard, const std::string& name) const {
    if (dry_run_) return true;
    Opened opened = open_directory(fs_, version.directory.fd(), shard.c_str(), false);
    if (!opened) return false;
    // EBUSY, ESTALE, ENOENT: somebody else's business.
    return uninterrupted([&] { return fs_.unlinkat(opened.fd(), name.c_str(), 0); }) == 0;
  }

  const FileSystem& fs_;
  const Opened& locks_;
  bool dry_run_;
};

// Oldest first until `goal` is reached. An entry with a time in the future counts as used
// now, but is not kept for being fresh: after a clock was set back that would hold for as long as
// it was.
void remove_oldest(Listing& listing, const Remover& remover, uint64_t goal,
                   std::optional<Nanoseconds> now, int64_t fresh_seconds, TrimReport& report) {
  const auto fresh = [&](const File& file) {
    return !now || std::abs(*now - file.used) <= fresh_seconds * kSecond;
  };
  const auto order = [&](const File& file) {
    return std::make_tuple(now ? std::min(file.used, *now) : file.used,
                           std::string_view(file.name));
  };
  std::sort(listing.entries.begin(), listing.entries.end(),
            [&](const File& a, const File& b) { return order(a) < order(b); });
  for (const File& file : listing.entries) {
    if (report.bytes <= goal) break;
    if (fresh_seconds > 0 && fresh(file)) continue;
    if (!remover.entry(file)) continue;
    --report.entries;
    report.bytes -= file.bytes;
    ++report.removed;
    report.freed += file.bytes;
    report.names += text(file.name, " ", file.bytes, "\n");
  }
}

}  // namespace

TrimReport Store::State::trim(uint64_t bytes, int64_t fresh_seconds, bool dry_run) const {
  TrimReport report;
  const Opened own = open_version(false);
  const Opened locks = own ? open_locks(own) : Opened{Descriptor(), own.error};
  const int error = locks ? try_lock(fs, locks.fd(), kTrimLockOffset) : ENOLCK;
  report.busy = error == EAGAIN;
  if (report.busy) return report;

  std::vector<Version> versions;
  for (const std::string& name : version_names(fs, root_fd.get()))
    versions.push_back({name, open_directory(fs, root_fd.get(), name.c_str(), false)});
  Listing listing;
  for (const Version& version : versions) list_files(fs, version, listing);
  report.entries = listing.entries.size();
  report.bytes = listing.bytes;
  const auto now = time_here(fs, locks);
  const Remover remover(fs, locks, dry_run);
  for (const File& file : listing.temporaries) {
    if (now && file.used < *now - kTemporarySeconds * kSecond && remover.temporary(file))
      ++report.temporaries;
  }
  if (listing.bytes > bytes)
    remove_oldest(listing, remover, bytes - bytes / 10, now, fresh_seconds, report);
  if (error == 0) unlock(fs, locks.fd(), kTrimLockOffset);
  return report;
}

// The first publish of a process looks as well: many processes that publish one kernel each would
// never get to the 256th. Without a limit there are still temporary files to sweep.
void Store::State::trim_now_and_then(uint64_t published_before) {
  if (published_before % kTrimEvery != 0) return;
  const uint64_t limit = max_bytes > 0 ? max_bytes : std::numeric_limits<uint64_t>::max();
  const TrimReport report = trim(limit, kFreshSeconds, false);
  if (report.removed == 0) return;
  log_message(LogLevel::info,
              text("cache directory ", root, " passed ", max_bytes, " bytes: ", report.removed,
                   " kernels used longest ago were removed, ", report.bytes, " bytes are left"));
}

TrimReport Store::trim(uint64_t max_bytes, bool dry_run) {
  if (!state_->on_disk() || state_->read_only) return {};
  return state_->trim(max_bytes, 0, dry_run);
}

}  // namespace lathe
