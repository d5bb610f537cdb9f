// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reading and publishing entries. The invariant: the right kernel or a miss; never a wrong hit,
// never an error for a cache that cannot be used, and the next run is healthy.
#include "cache/store/store.h"

#include <unistd.h>

#include <ctime>

#include "cache/store/new_file.h"
#include "cache/store/store_state.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

// Each window is hashed and copied before it leaves the processor's cache.
constexpr size_t kWindowBytes = size_t{64} << 10;
// An entry used within the hour needs no new mtime: eviction has no finer idea of age.
constexpr time_t kTouchAfterSeconds = 3600;

constexpr int64_t kDefaultMaxBytes = int64_t{2} << 30;

}  // namespace

std::string entry_name(const Digest& key) { return key.hex() + ".lathe"; }

bool is_entry_name(std::string_view name) {
  return name.size() == 38 && name.substr(32) == ".lathe" &&
         name.find_first_not_of("0123456789abcdef") == 32;
}

Opened Store::State::open_shard(const Digest& key, bool create) const {
  Opened version = open_version(create);
  if (!version) return version;
  return open_directory(fs, version.fd(), key.hex().substr(0, 2).c_str(), create, trust());
}

void Store::State::warn_once(const std::string& topic, const std::string& message) {
  {
    std::lock_guard<std::mutex> guard(mutex);
    if (!warned.insert(topic).second) return;
  }
  log_message(LogLevel::warning, message);
}

Store::Store() = default;
Store::~Store() = default;

std::shared_ptr<Store> Store::open(const std::string& root, const FileSystem& fs) {
  std::shared_ptr<Store> store(new Store);
  store->state_ = std::make_unique<State>(fs);
  store->state_->lock_timeout_ms =
      environment_number("LATHE_LOCK_TIMEOUT_MS", store->state_->lock_timeout_ms);
  store->state_->max_bytes =
      static_cast<uint64_t>(environment_number("LATHE_CACHE_MAX_BYTES", kDefaultMaxBytes));
  store->state_->take(open_root(store->state_->fs, root));
  return store;
}

std::shared_ptr<Store> Store::open_read_only(const std::string& root, const FileSystem& fs) {
  std::shared_ptr<Store> store(new Store);
  store->state_ = std::make_unique<State>(fs);
  store->state_->read_only = true;
  store->state_->take(open_read_only_root(store->state_->fs, root));
  return store;
}

void Store::State::take(Root found) {
  root = std::move(found.path);
  problem = std::move(found.problem);
  root_fd = std::move(found.fd);
}

const std::string& Store::root() const { return state_->root; }
const std::string& Store::problem() const { return state_->problem; }
uint64_t Store::max_bytes() const { return state_->max_bytes; }

Store::State::Found Store::State::read_pieces(int fd, uint64_t bytes, Keep keep) const {
  Found found;
  const auto wrong = [&](const Status& status) {
    found.why = status.text();
    found.wrong = true;
    return std::move(found);
  };
  std::unique_ptr<char[]> own;
  const std::unique_lock<std::mutex> lock(window_mutex, std::try_to_lock);
  std::unique_ptr<char[]>& room = lock ? window : own;
  if (!room) room = std::make_unique_for_overwrite<char[]>(kWindowBytes);

  EntryDecoder decoder(bytes, keep);
  uint64_t done = 0;
  for (size_t wanted = 1, got = 1; done < bytes && got == wanted; done += got) {
    wanted = static_cast<size_t>(std::min<uint64_t>(kWindowBytes, bytes - done));
    found.error = read_into(fs, fd, wanted, room.get(), &got);
    if (found.error != 0) {
      found.why = reason(found.error);
      return found;
    }
    const std::string_view piece(room.get(), got);
    if (done == 0 && entry_version(piece) > kEntryVersion) {
      found.why = "it has a newer format";
      return found;
    }
    if (const Status status = decoder.add(piece); !status.ok()) return wrong(status);
  }
  Result<Entry> entry = decoder.end();
  if (!entry.ok()) return wrong(entry.status());
  found.entry = std::move(*entry);
  return found;
}

Store::State::Found Store::State::read_entry(int shard, const std::string& name, bool heal,
                                             bool touch, Keep keep) const {
  Found found;
  struct stat status = {};
  const auto wrong = [&](std::string why) {
    found.why = std::move(why);
    found.wrong = true;
    if (heal) unlink_same(fs, shard, name.c_str(), status);
    return std::move(found);
  };
  const auto unreadable = [&](int error) {
    found.error = error;
    found.why = reason(error);
    return std::move(found);
  };
  // A FIFO must not hang us and a symbolic link must not lead us elsewhere.
  Opened opened = open_at(fs, shard, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (opened.error == ELOOP || opened.error == ENXIO) {
    const auto examine = [&] {
      return fs.fstatat(shard, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
    };
    if (uninterrupted(examine) != 0) return unreadable(errno);
    return wrong("it is not a regular file");
  }
  if (!opened) return unreadable(opened.error);
  if (uninterrupted([&] { return fs.fstat(opened.fd(), &status); }) != 0) return unreadable(errno);
  if (!S_ISREG(status.st_mode)) return wrong("it is not a regular file");
  if (!is_owner(status, trust())) return wrong(text("it belongs to user ", status.st_uid));
  if (static_cast<uint64_t>(status.st_size) > kMaxEntryBytes)
    return wrong(text("it has ", status.st_size, " bytes"));

  found = read_pieces(opened.fd(), static_cast<uint64_t>(status.st_size), keep);
  if (found.wrong) return wrong(std::move(found.why));
  if (!found.entry) return found;
  if (entry_name(found.entry->key.digest) != name) {
    found.entry.reset();
    return wrong("it holds another key than its name says");
  }
  if (touch && status.st_mtime < time(nullptr) - kTouchAfterSeconds) {
    const struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    // Only eviction's order hangs on it.
    uninterrupted([&] { return fs.futimens(opened.fd(), times); });
  }
  return found;
}

std::optional<Entry> Store::get(const Key& key, bool again, Keep keep) {
  const auto miss = [&]() -> std::optional<Entry> {
    if (!again) ++state_->misses;
    return std::nullopt;
  };
  if (!state_->on_disk()) return miss();
  const std::string name = entry_name(key.digest);
  State::Found found;
  // A network file system may have lost track of the file (ESTALE): opening anew is the cure.
  for (int attempt = 0; attempt < 2; ++attempt) {
    Opened shard = state_->open_shard(key.digest, false);
    found = {};
    found.error = shard.error;
    const bool ours = !state_->read_only;
    if (shard) found = state_->read_entry(shard.fd(), name, ours, ours, keep);
    if (found.error != ESTALE) break;
  }
  if (found.entry) {
    // Another text under the same 128 bits: a collision, and not this kernel.
    if (found.entry->key.text != key.text) return miss();
    ++state_->hits;
    return std::move(found.entry);
  }
  if (found.wrong) {
    ++state_->corrupt;
    state_->warn_once(name, text("cache entry ", name, " was bad and is ",
                                 state_->read_only ? "passed over: " : "built anew: ", found.why));
  } else if (found.error != 0 && found.error != ENOENT) {
    state_->warn_once(text("errno ", found.error), text("cache directory ", state_->root,
                                                        " cannot be read: ", reason(found.error)));
  }
  return miss();
}

// Returns an errno and names the step that gave it.
int Store::State::publish(const Entry& entry, std::string& step) {
  step = "open the shard";
  Opened shard = open_shard(entry.key.digest, true);
  if (!shard) return shard.error;

  TemporaryFile file(fs, shard.fd(), ".tmp.");
  int error = file.create(0600);
  if (error == 0) error = file.write(encode_entry(entry));
  if (error == 0) error = file.rename_to(entry_name(entry.key.digest).c_str());
  if (error == 0) error = file.sync_directory();
  step = file.step();
  return error;
}

bool Store::put(const Entry& entry) {
  if (!state_->on_disk() || state_->read_only || !state_->publishing) return false;
  std::string step;
  const int error = state_->publish(entry, step);
  if (error == 0) {
    const uint64_t before = state_->published++;
    state_->note_compiler(entry.key.text);
    state_->trim_now_and_then(before);
    return true;
  }
  ++state_->publish_failures;
  const bool hopeless = error == ENOSPC || error == EDQUOT || error == EROFS;
  if (hopeless) state_->publishing = false;
  state_->warn_once(text("errno ", error),
                    text("cache directory ", state_->root, " did not take a kernel (", step, ": ",
                         reason(error), "); it stays in memory",
                         hopeless ? ", and nothing more is published by this process" : ""));
  return false;
}

}  // namespace lathe
