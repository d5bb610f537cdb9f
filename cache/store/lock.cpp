// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One write lock on one byte of <root>/v1/lock per key, and one per compile slot: as many compilers
// work for a cache on one machine as that has cores. Both are an economy, never a safety device:
// refused or broken, the worst outcome is one compile too many, or too many at once.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "cache/store/store_state.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

int set_lock(const FileSystem& fs, int fd, short type, int64_t offset) {
  struct flock what = {};
  what.l_type = type;
  what.l_whence = SEEK_SET;
  what.l_start = offset;
  what.l_len = 1;
  return uninterrupted([&] { return fs.lock(fd, F_OFD_SETLK, &what); }) == 0 ? 0 : errno;
}

// The machine's cores, not those this process is bound to: where each process is bound to one of
// its own, all would wait for the same slot.
int slot_count() {
  static const auto count = std::clamp<long>(sysconf(_SC_NPROCESSORS_ONLN), 1, 1024);
  return static_cast<int>(count);
}

// On a shared file system a lock is one for all machines: each has slots of its own.
int64_t first_slot() {
  static const int64_t first = [] {
    struct utsname name = {};
    uname(&name);
    const int64_t machine = lock_offset(digest(name.nodename).hex()) & ((int64_t{1} << 40) - 1);
    return kTrimLockOffset + 1 + machine * 1024;
  }();
  return first;
}

// The byte of a slot that was free and now is ours; -1: all are taken; 0: there can be none.
int64_t try_slots(const FileSystem& fs, int fd) {
  const int64_t first = first_slot();
  for (int64_t slot = first; slot < first + slot_count(); ++slot) {
    const int error = try_lock(fs, fd, slot);
    if (error == 0) return slot;
    if (error != EAGAIN) return 0;
  }
  return -1;
}

// Whoever compiled last is the first to find the slot free, and rightly, since its compiler is
// open. But after two seconds of that others get their chance to see it free: a long warm shall not
// keep a program from starting.
constexpr Milliseconds kTurn(2000), kPause(25);
struct Turn {
  Clock::time_point began{}, ended{};
  bool over(Clock::time_point now) {
    if (now - ended > kPause) began = now;
    return now - began > kTurn;
  }
};
thread_local Turn turn;

}  // namespace

// key mod 2^62: an offset past the end of the file is legal, and the byte at 2^62 is eviction's.
int64_t lock_offset(std::string_view key_hex) {
  uint64_t low = 0;
  std::from_chars(key_hex.data() + 16, key_hex.data() + 32, low, 16);
  return static_cast<int64_t>(low & ((uint64_t{1} << 62) - 1));
}

int try_lock(const FileSystem& fs, int fd, int64_t offset) {
  return set_lock(fs, fd, F_WRLCK, offset);
}

// An OFD lock belongs to the open file: a forked child would keep it alive past our close.
void unlock(const FileSystem& fs, int fd, int64_t offset) { set_lock(fs, fd, F_UNLCK, offset); }

Store::Lock::Lock(Lock&& other) noexcept
    : fs_(other.fs_),
      fd_(std::exchange(other.fd_, -1)),
      offset_(other.offset_),
      slot_(std::exchange(other.slot_, 0)) {}

Store::Lock::~Lock() {
  if (fd_ < 0) return;
  if (slot_ > 0) {
    unlock(*fs_, fd_, slot_);
    turn.ended = Clock::now();
  }
  unlock(*fs_, fd_, offset_);
  fs_->close(fd_);
}

Opened Store::State::open_locks(const Opened& version) const {
  return open_at(fs, version.fd(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
}

bool Store::State::is_there(const Opened& version, const Digest& key) const {
  // One call and no look at the shard: this is a hint for those who wait, reading it is checked.
  const std::string name = entry_name(key), path = name.substr(0, 2) + "/" + name;
  struct stat status;
  const auto examine = [&] {
    return fs.fstatat(version.fd(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW);
  };
  return uninterrupted(examine) == 0 && S_ISREG(status.st_mode);
}

void Store::State::say_waited(double ms, const Digest& key) const {
  if (ms > 100)
    log_message(LogLevel::info,
                text("waited ", static_cast<int64_t>(ms), " ms for key ", key.hex()));
}

// Half as patient each time: holders that have stopped cost twice the limit in all, and a crowd in
// which slots do change hands thins out before it stops waiting.
bool Store::State::tired_of_slots(double ms) {
  const int before = slots_given_up;
  if (ms < static_cast<double>(lock_timeout_ms >> std::min(before, 62))) return false;
  ++slots_given_up;
  log_message(LogLevel::warning, text("waited ", static_cast<int64_t>(ms), " ms for one of ",
                                      slot_count(), " compile slots: compiling without"));
  return true;
}

Store::Lock Store::lock(const Key& key) { return lock(key, false); }
Store::Lock Store::lock_to_compile(const Key& key) { return lock(key, true); }

Store::Lock Store::lock(const Key& key, bool with_slot) {
  Lock lock;
  if (!state_->on_disk() || state_->read_only) return lock;
  // An error that keeps this file from being opened also keeps entries from being published, and
  // that warns.
  Opened version = state_->open_version(true);
  if (!version) return lock;
  Opened file = state_->open_locks(version);
  if (!file) return lock;

  const int64_t offset = lock_offset(key.digest.hex());
  const auto start = Clock::now();
  for (;;) {
    const int error = try_lock(state_->fs, file.fd(), offset);
    const auto now = Clock::now();
    const Milliseconds waited = now - start;
    if (error == 0) {
      if (with_slot) lock.slot_ = turn.over(now) ? -1 : try_slots(state_->fs, file.fd());
      if (lock.slot_ >= 0 || state_->tired_of_slots(waited.count())) {
        state_->say_waited(waited.count(), key.digest);
        lock.fs_ = &state_->fs;
        lock.fd_ = file.file.release();
        lock.offset_ = offset;
        return lock;
      }
      // Nothing is held by who waits, so that nobody can wait for each other; and somebody whose
      // compiler is open already may come by and compile this key.
      unlock(state_->fs, file.fd(), offset);
    } else if (error != EAGAIN) {
      state_->warn_once(text("errno ", error),
                        text("cache directory ", state_->root, " cannot be locked (", reason(error),
                             "): equal kernels may be compiled more than once"));
      return lock;
    }
    // Whoever holds the lock may be done with what we wait for: many that wait need not pass the
    // lock on from one to the next only to read.
    if (state_->is_there(version, key.digest)) return lock;
    if (error != 0 && waited.count() >= static_cast<double>(state_->lock_timeout_ms)) {
      log_message(LogLevel::warning,
                  text("waited ", static_cast<int64_t>(waited.count()), " ms for key ",
                       key.digest.hex(), ", which another process holds: compiling privately"));
      return lock;
    }
    // Late by a sixteenth of the wait or 10 ms, and by 20 ms at most. Not sooner, since what we
    // wait for takes dozens, and every look of a crowd may take its core from the one that
    // compiles.
    std::this_thread::sleep_for(std::clamp(waited / 16, Milliseconds(10), Milliseconds(20)));
  }
}

}  // namespace lathe
