// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One write lock on one byte of <root>/v1/lock per key. The lock is an economy, never a safety
// device: refused or broken, the worst outcome is one compile too many.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "cache/store_state.h"
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
    : fs_(other.fs_), fd_(std::exchange(other.fd_, -1)), offset_(other.offset_) {}

Store::Lock::~Lock() {
  if (fd_ < 0) return;
  unlock(*fs_, fd_, offset_);
  fs_->close(fd_);
}

Opened Store::State::open_locks(const Opened& version) const {
  return open_at(fs, version.fd(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
}

bool Store::State::is_there(const Opened& version, const Digest& key) const {
  const std::string name = entry_name(key);
  const Opened shard = open_directory(fs, version.fd(), name.substr(0, 2).c_str(), false);
  struct stat status;
  const auto look = [&] {
    return fs.fstatat(shard.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
  };
  return shard && uninterrupted(look) == 0 && S_ISREG(status.st_mode);
}

Store::Lock Store::lock(const Key& key) {
  Lock lock;
  if (!state_->on_disk() || state_->read_only) return lock;
  // What keeps the file from being opened keeps entries from being published, which warns.
  Opened version = state_->open_version(true);
  if (!version) return lock;
  Opened file = state_->open_locks(version);
  if (!file) return lock;

  const int64_t offset = lock_offset(key.digest.hex());
  const auto start = Clock::now();
  for (;;) {
    const int error = try_lock(state_->fs, file.fd(), offset);
    const Milliseconds waited = Clock::now() - start;
    if (error == 0) {
      if (waited.count() > 100)
        log_message(LogLevel::info, text("waited ", static_cast<int64_t>(waited.count()),
                                         " ms for key ", key.digest.hex()));
      lock.fs_ = &state_->fs;
      lock.fd_ = file.file.release();
      lock.offset_ = offset;
      return lock;
    }
    if (error != EAGAIN) {
      state_->warn_once(text("errno ", error),
                        text("cache directory ", state_->root, " cannot be locked (", reason(error),
                             "): equal kernels may be compiled more than once"));
      return lock;
    }
    // Whoever holds the lock may be done with what we wait for: many that wait need not pass the
    // lock on from one to the next only to read.
    if (state_->is_there(version, key.digest)) return lock;
    if (waited.count() >= static_cast<double>(state_->lock_timeout_ms)) {
      log_message(LogLevel::warning,
                  text("waited ", static_cast<int64_t>(waited.count()), " ms for key ",
                       key.digest.hex(), ", which another process holds: compiling privately"));
      return lock;
    }
    // Late by an eighth of the wait at most, and by 20 ms.
    std::this_thread::sleep_for(std::clamp(waited / 8, Milliseconds(0.5), Milliseconds(20)));
  }
}

}  // namespace lathe
