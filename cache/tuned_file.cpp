// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reading the database and putting a new one in its place: descriptor-relative, no symbolic links,
// temp + fsync + rename under the store's lock.
#include "cache/tuned_file.h"

#include <unistd.h>

#include <algorithm>

#include "cache/store/new_file.h"
#include "cache/store/store_state.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kDirectory = "tuned";
constexpr const char* kTemporary = ".tmp.";
constexpr off_t kMostBytes = off_t{4} << 20;
constexpr time_t kStaleSeconds = 3600;

// Its byte of the lock file; kernels' keys have other texts.
Key lock_key(const std::string& name) {
  Key key;
  key.text = "lathe-tuned " + name;
  key.digest = digest(key.text);
  return key;
}

struct Bytes {
  std::string bytes;
  std::string why;  // nothing was read
  int error = 0;    // of the system; ENOENT: there is none
};

Bytes read_bytes(const FileSystem& fs, int dir, const char* name, bool of_root, int follow) {
  Bytes out;
  Opened opened = open_at(fs, dir, name, O_RDONLY | O_NONBLOCK | follow);
  const auto failed = [&](int error) {
    out.error = error == ELOOP ? 0 : error;  // what is there may be replaced
    out.why = error == ELOOP ? "is a symbolic link" : "cannot be read: " + reason(error);
    return out;
  };
  if (!opened) return failed(opened.error);
  struct stat status;
  if (uninterrupted([&] { return fs.fstat(opened.fd(), &status); }) != 0) return failed(errno);
  if (!S_ISREG(status.st_mode)) {
    out.why = "is not a regular file";
  } else if (status.st_uid != geteuid() && !(of_root && status.st_uid == 0)) {
    out.why = text("belongs to user ", status.st_uid, ", not to ", geteuid());
  } else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    out.why = "can be written by others (remedy: chmod go-w)";
  } else if (status.st_size > kMostBytes) {
    out.why = text("has ", status.st_size, " bytes; allowed are ", kMostBytes);
  } else if (const int error =
                 read_all(fs, opened.fd(), static_cast<size_t>(status.st_size), out.bytes)) {
    return failed(error);
  }
  return out;
}

}  // namespace

struct TunedFile::Found {
  TunedFileText text;
  int error = 0;
};

TunedFile::TunedFile(Store& store, const std::string& gpu)
    : store_(store), gpu_(safe_word(gpu)), name_(gpu_ + ".txt") {}

std::string TunedFile::path() const {
  if (!store_.state_->on_disk()) return {};
  return text(store_.state_->root, "/", kVersionDirectory, "/", kDirectory, "/", name_);
}

TunedFile::Found TunedFile::find(int directory) const {
  Found out;
  const FileSystem& fs = store_.state_->fs;
  Bytes found;
  for (int attempt = 0; attempt < 2; ++attempt) {  // ESTALE: opening anew is the cure
    found = read_bytes(fs, directory, name_.c_str(), false, O_NOFOLLOW);
    if (found.error != ESTALE) break;
  }
  out.error = found.error;
  if (found.error == ENOENT) return out;
  if (!found.why.empty()) {
    out.text.problem = text("tuned choices ", path(), " ", found.why);
    return out;
  }
  Result<TunedText> read = parse_tuned(found.bytes);
  if (!read.ok()) {
    out.text.problem = text("tuned choices ", path(), " are not used: ", read.status().text());
    if (read.status().code() == Code::unsupported) out.text.newer = out.text.problem;
    return out;
  }
  out.text.records = std::move(read->records);
  if (read->skipped > 0) {
    out.text.problem = text("tuned choices ", path(), ": ", read->skipped,
                            " lines were skipped, the first: ", read->problem);
  }
  return out;
}

TunedFileText TunedFile::read() const {
  Store::State& state = *store_.state_;
  if (!state.on_disk()) return {};
  const Opened version = state.open_version(false);
  if (!version) return {};
  const Opened directory = open_directory(state.fs, version.fd(), kDirectory, false);
  TunedFileText out;
  if (directory) {
    out = find(directory.fd()).text;
  } else if (directory.error != ENOENT) {
    out.problem = text("tuned choices ", path(), " are not used: their directory ",
                       directory.error == EPERM ? "can be written by others, or is another user's"
                                                : "cannot be opened: " + reason(directory.error));
  }
  if (!out.problem.empty()) state.warn_once("tuned " + out.problem, out.problem);
  return out;
}

Status TunedFile::publish(int directory, const std::string& bytes) const {
  const FileSystem& fs = store_.state_->fs;
  const auto failed = [&](const char* step, int error) {
    return Status(Code::cache_io, text("tuned choices ", path(), " cannot be saved (", step, ": ",
                                       reason(error), ")"));
  };
  struct stat fresh = {};
  TemporaryFile file(fs, directory, kTemporary);
  int error = file.create(0600);
  if (error == 0) error = file.write(bytes);
  if (error != 0) return failed(file.step(), error);
  if (uninterrupted([&] { return fs.fstat(file.fd(), &fresh); }) != 0)
    return failed("examine the file", errno);
  error = file.rename_to(name_.c_str());
  if (error != 0) return failed(file.step(), error);
  // The file is in place: what fails from here on is only less durable, or less tidy.
  file.sync_directory();
  sweep(directory, fresh);
  return {};
}

// Temporaries of processes that died, by the clock of the file system that has them.
void TunedFile::sweep(int directory, const struct stat& fresh) const {
  const FileSystem& fs = store_.state_->fs;
  std::vector<std::string> names;
  if (list_names(fs, directory, names) != 0) return;
  for (const std::string& name : names) {
    struct stat status;
    if (!name.starts_with(kTemporary) ||
        fs.fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        status.st_mtime + kStaleSeconds >= fresh.st_mtime) {
      continue;
    }
    unlink_same(fs, directory, name.c_str(), status);
  }
}

Result<std::vector<TunedRecord>> TunedFile::update(const Change& change) const {
  Store::State& state = *store_.state_;
  if (!state.on_disk()) {
    return Status(Code::cache_io, text("tuned choices cannot be saved: ", state.problem));
  }
  const Store::Lock lock = store_.lock(lock_key(name_));
  const Opened version = state.open_version(true);
  const Opened directory = version ? open_directory(state.fs, version.fd(), kDirectory, true)
                                   : Opened{Descriptor(), version.error};
  if (!directory) {
    return Status(Code::cache_io, text("tuned choices ", path(), " cannot be saved (directory: ",
                                       reason(directory.error), ")"));
  }
  // Saving what could not be merged would lose what others measured.
  Found found = find(directory.fd());
  if (!found.text.newer.empty() || (found.error != 0 && found.error != ENOENT)) {
    return Status(Code::cache_io, text(found.text.problem, "; nothing was saved"));
  }
  std::vector<TunedRecord> records = merged(change(std::move(found.text.records)));
  LATHE_TRY(publish(directory.fd(), tuned_text(records)));
  return records;
}

std::vector<std::string> TunedFile::names(Store& store) {
  std::vector<std::string> out;
  const Store::State& state = *store.state_;
  if (!state.on_disk()) return out;
  const Opened version = state.open_version(false);
  if (!version) return out;
  const Opened directory = open_directory(state.fs, version.fd(), kDirectory, false);
  if (!directory || list_names(state.fs, directory.fd(), out) != 0) return {};
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<TunedRecord> all_tuned(Store& store) {
  constexpr std::string_view kEnd = ".txt";
  std::vector<TunedRecord> out;
  for (const std::string& name : TunedFile::names(store)) {
    if (name.front() == '.' || !name.ends_with(kEnd)) continue;
    auto read = TunedFile(store, name.substr(0, name.size() - kEnd.size())).read();
    out.insert(out.end(), read.records.begin(), read.records.end());
  }
  return out;
}

Result<TunedText> read_tuned_file(const std::string& path, const FileSystem& fs) {
  const Bytes found = read_bytes(fs, AT_FDCWD, path.c_str(), true, 0);
  if (!found.why.empty()) return Status(Code::cache_io, text(path, " ", found.why));
  Result<TunedText> read = parse_tuned(found.bytes);
  if (!read.ok()) return Status(Code::invalid_argument, text(path, ": ", read.status().text()));
  return read;
}

std::vector<TunedRecord> with_fresh(std::vector<TunedRecord> there,
                                    const std::vector<TunedRecord>& fresh) {
  for (const TunedRecord& record : fresh) {
    const auto outdated = [&](const TunedRecord& old) {
      return old.place() == record.place() && old.measured == record.measured &&
             old.stale(record.lathe, record.sources);
    };
    there.erase(std::remove_if(there.begin(), there.end(), outdated), there.end());
    there.push_back(record);
  }
  return merged(std::move(there));
}

}  // namespace lathe
