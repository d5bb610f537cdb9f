// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The size cap: what was used longest ago goes first. Reads names and stat alone, so that any
// version of the library may trim what any other has stored. Times of files are compared with each
// other and with that of a file just touched in the same place, never with the local clock: a
// server may have another one, and clocks are set back. Access times are not used: mounts switch
// them off.
#include <algorithm>
#include <optional>
#include <tuple>

#include "cache/store_state.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr uint64_t kTrimEvery = 256;         // publishes of this process
constexpr int64_t kTemporarySeconds = 3600;  // no publish takes as long
constexpr int64_t kFreshSeconds = 60;        // a process may wait to read what was just published

using Nanoseconds = int64_t;

Nanoseconds age_mark(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

struct File {
  std::string name;
  uint64_t bytes = 0;
  Nanoseconds used = 0;
};

struct Listing {
  std::vector<File> entries, temporaries;
  uint64_t bytes = 0;  // of the entries
};

bool is_temporary(std::string_view name) { return name.substr(0, 5) == ".tmp."; }

Listing list_all(const FileSystem& fs, const Opened& version) {
  Listing out;
  for_each_file(fs, version, [&](const std::string& shard, int fd, const std::string& name) {
    const bool entry = is_entry_name(name) && name.substr(0, 2) == shard;
    if (!entry && !is_temporary(name)) return true;
    struct stat status;
    const auto look = [&] { return fs.fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW); };
    if (uninterrupted(look) != 0) return true;  // gone meanwhile, or lost for the moment
    const File file{entry ? name : shard + "/" + name, static_cast<uint64_t>(status.st_size),
                    age_mark(status)};
    (entry ? out.entries : out.temporaries).push_back(file);
    if (entry) out.bytes += file.bytes;
    return true;
  });
  return out;
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

// Removes files, and says whether they are gone. An entry whose key is locked stays: whoever holds
// the lock is about to read or to replace it.
class Remover {
 public:
  Remover(const FileSystem& fs, const Opened& version, const Opened& locks, bool dry_run)
      : fs_(fs), version_(version), locks_(locks), dry_run_(dry_run) {}

  bool entry(const std::string& name) {
    const int64_t offset = lock_offset(name);
    // Locks that do not work are no reason to keep everything for ever.
    const int error = locks_ ? try_lock(fs_, locks_.fd(), offset) : ENOLCK;
    if (error == EAGAIN || error == EACCES) return false;
    const bool gone = remove(name.substr(0, 2), name);
    if (error == 0) unlock(fs_, locks_.fd(), offset);
    return gone;
  }
  bool temporary(const std::string& path) { return remove(path.substr(0, 2), path.substr(3)); }

 private:
  bool remove(const std::string& shard, const std::string& name) {
    if (dry_run_) return true;
    Opened opened = open_directory(fs_, version_.fd(), shard.c_str(), false);
    if (!opened) return false;
    // EBUSY, ESTALE, ENOENT: somebody else's business.
    return uninterrupted([&] { return fs_.unlinkat(opened.fd(), name.c_str(), 0); }) == 0;
  }

  const FileSystem& fs_;
  const Opened& version_;
  const Opened& locks_;
  bool dry_run_;
};

}  // namespace

TrimReport Store::State::trim(uint64_t bytes, int64_t fresh_seconds, bool dry_run) const {
  TrimReport report;
  Opened version = open_version(false);
  if (!version) return report;
  Opened locks = open_locks(version);
  const int error = locks ? try_lock(fs, locks.fd(), kTrimLockOffset) : locks.error;
  report.busy = error == EAGAIN || error == EACCES;
  if (report.busy) return report;

  Listing listing = list_all(fs, version);
  report.entries = listing.entries.size();
  report.bytes = listing.bytes;
  Remover remover(fs, version, locks, dry_run);
  const auto now = time_here(fs, locks);
  const auto older = [&](const File& file, int64_t seconds) {
    return now && file.used < *now - seconds * 1'000'000'000;
  };
  for (const File& file : listing.temporaries) {
    if (older(file, kTemporarySeconds) && remover.temporary(file.name)) ++report.temporaries;
  }
  if (listing.bytes > bytes) {
    // What says it was used in the future counts as used now.
    for (File& file : listing.entries) file.used = now ? std::min(file.used, *now) : file.used;
    std::sort(listing.entries.begin(), listing.entries.end(), [](const File& a, const File& b) {
      return std::tie(a.used, a.name) < std::tie(b.used, b.name);
    });
    const uint64_t goal = bytes - bytes / 10;
    for (const File& file : listing.entries) {
      if (report.bytes <= goal) break;
      if (fresh_seconds > 0 && !older(file, fresh_seconds)) break;  // as are all that follow
      if (!remover.entry(file.name)) continue;
      --report.entries;
      report.bytes -= file.bytes;
      ++report.removed;
      report.freed += file.bytes;
      report.names += text(file.name, " ", file.bytes, "\n");
    }
  }
  if (error == 0) unlock(fs, locks.fd(), kTrimLockOffset);
  return report;
}

// The first publish of a process looks as well: many processes that publish one kernel each would
// never get to the 256th.
void Store::State::trim_now_and_then() {
  if (max_bytes == 0 || (published - 1) % kTrimEvery != 0) return;
  const TrimReport report = trim(max_bytes, kFreshSeconds, false);
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
