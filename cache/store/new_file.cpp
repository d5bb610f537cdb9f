// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Temporary names, sync and rename: see new_file.h.
#include "cache/store/new_file.h"

#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr int64_t kTemporarySeconds = 3600;  // no writing takes as long
constexpr size_t kMostPrefixed = 100;        // of a file's name: a name may have 255 bytes

std::string random_name(const std::string& prefix) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
    random = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return text(prefix, getpid(), ".", random);
}

// Returns whether random_name can have made `name`.
bool is_temporary(const std::string& name, const std::string& prefix) {
  const size_t dot = name.find('.', prefix.size());
  const auto digits = [&](size_t from, size_t to) {
    return from < to && name.find_first_not_of("0123456789", from) >= to;
  };
  return name.starts_with(prefix) && dot != name.npos && digits(prefix.size(), dot) &&
         digits(dot + 1, name.size());
}

const char* kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

TemporaryFile::TemporaryFile(const FileSystem& fs, int directory, std::string prefix)
    : fs_(fs), directory_(directory), prefix_(std::move(prefix)) {}

TemporaryFile::~TemporaryFile() {
  if (name_.empty()) return;
  uninterrupted([&] { return fs_.unlinkat(directory_, name_.c_str(), 0); });
}

int TemporaryFile::create(mode_t mode) {
  step_ = "create a temporary file";
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::string name = random_name(prefix_);
    file_ = open_at(fs_, directory_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (file_) name_ = name;
    if (file_.error != EEXIST) break;
  }
  return file_.error;
}

int TemporaryFile::write(std::string_view bytes) {
  step_ = "write";
  return write_all(fs_, file_.fd(), bytes);
}

int TemporaryFile::rename_to(const char* name) {
  step_ = "sync the file";
  if (uninterrupted([&] { return fs_.fsync(file_.fd()); }) != 0) return errno;
  step_ = "close the file";
  if (const int error = file_.file.close()) return error;
  step_ = "rename";
  const auto rename = [&] { return fs_.renameat(directory_, name_.c_str(), directory_, name); };
  if (uninterrupted(rename) != 0) return errno;
  name_.clear();
  return 0;
}

int TemporaryFile::sync_directory() {
  step_ = "sync its directory";
  const bool failed = uninterrupted([&] { return fs_.fsync(directory_); }) != 0;
  return failed && errno != EINVAL ? errno : 0;
}

NewFile::NewFile(const char* what, std::string path, const FileSystem& fs)
    : fs_(fs), what_(what), path_(std::move(path)) {}

std::string NewFile::prefix() const { return "." + name_.substr(0, kMostPrefixed) + ".tmp."; }

Status NewFile::failed(int error, const char* step) const {
  return Status(Code::cache_io,
                text(what_, " ", path_, " cannot be written (", step, ": ", reason(error), ")"));
}

Status NewFile::check_target() const {
  struct stat there = {};
  const auto examine = [&] {
    return fs_.fstatat(directory_.fd(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW);
  };
  if (uninterrupted(examine) != 0) return errno == ENOENT ? Status() : failed(errno, "examine");
  if (S_ISREG(there.st_mode)) return {};
  return Status(Code::invalid_argument,
                text(what_, " '", path_, "' is ", kind_of(there.st_mode),
                     "; allowed are the name of a regular file and a name that is free"));
}

Status NewFile::create() {
  const size_t slash = path_.rfind('/');
  name_ = slash == path_.npos ? path_ : path_.substr(slash + 1);
  if (name_.empty() || name_ == "." || name_ == "..")
    return Status(Code::invalid_argument, text(what_, " '", path_, "' is not the name of a file"));
  const std::string folder = slash == path_.npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
  directory_ = open_at(fs_, AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory_) return failed(directory_.error, "open its directory");
  LATHE_TRY(check_target());
  file_.emplace(fs_, directory_.fd(), prefix());
  // Others may read it; nobody else may write what code is loaded from.
  if (const int error = file_->create(0644)) return failed(error, file_->step());
  sweep();
  return {};
}

Status NewFile::write(std::string_view bytes) {
  const int error = file_->write(bytes);
  return error ? failed(error, file_->step()) : Status();
}

Status NewFile::put_in_place() {
  LATHE_TRY(check_target());
  int error = file_->rename_to(name_.c_str());
  if (error == 0) error = file_->sync_directory();
  return error ? failed(error, file_->step()) : Status();
}

// Removes what processes that were killed left. Times are compared with that of our own new file: a
// server may have another clock.
void NewFile::sweep() const {
  struct stat ours, theirs;
  std::vector<std::string> names;
  if (fs_.fstat(file_->fd(), &ours) != 0) return;
  if (list_names(fs_, directory_.fd(), names) != 0) return;
  for (const std::string& name : names) {
    if (!is_temporary(name, prefix()) || name == file_->name()) continue;
    if (fs_.fstatat(directory_.fd(), name.c_str(), &theirs, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (theirs.st_mtime < ours.st_mtime - kTemporarySeconds)
      uninterrupted([&] { return fs_.unlinkat(directory_.fd(), name.c_str(), 0); });
  }
}

}  // namespace lathe
