// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements files of a shared folder with the cache's file calls.
#include "collective/rendezvous/meeting_folder.h"

#include "codegen/base/digest.h"
#include "codegen/base/invalid.h"
#include "collective/rendezvous/nonce.h"

namespace lathe {
namespace {

// Names the kind of a thing that is no regular file, for a message.
const char* kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  return "no regular file";
}

Result<std::string> temporary_name() {
  LATHE_ASSIGN(const Nonce nonce, draw_nonce());
  Digest digits;
  std::copy(nonce.begin(), nonce.end(), digits.bytes.begin());
  return ".lathe-" + digits.hex() + ".new";
}

}  // namespace

Status MeetingFolder::failed(const char* step, const std::string& name, int error) const {
  return invalid(
      text("LATHE_RENDEZVOUS_DIR is ", path_, ": cannot ", step, " ", name, ": ", reason(error)));
}

Result<MeetingFolder> MeetingFolder::open(const std::string& path) {
  MeetingFolder out(path);
  // A link to a folder is followed: the user has named it.
  out.folder_ = open_at(real_fs(), AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY);
  if (!out.folder_) return out.failed("open", "the folder", out.folder_.error);
  LATHE_ASSIGN(const std::string probe, temporary_name());
  LATHE_TRY(out.write_temporary(probe, "", &out.owner_));
  (void)out.remove(probe);
  return out;
}

Status MeetingFolder::write_temporary(const std::string& name, const std::string& bytes,
                                      uid_t* owner) const {
  const FileSystem& fs = real_fs();
  Opened file =
      open_at(fs, folder_.fd(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!file) return failed("create", name, file.error);
  struct stat status = {};
  const auto fill = [&] {
    if (const int error = write_all(fs, file.fd(), bytes)) return error;
    if (uninterrupted([&] { return fs.fsync(file.fd()); }) != 0) return errno;
    if (uninterrupted([&] { return fs.fstat(file.fd(), &status); }) != 0) return errno;
    return file.file.close();
  };
  if (const int error = fill()) {
    (void)remove(name);
    return failed("write", name, error);
  }
  *owner = status.st_uid;
  return {};
}

Status MeetingFolder::write(const std::string& name, const std::string& bytes) const {
  LATHE_ASSIGN(const std::string temporary, temporary_name());
  uid_t owner = 0;
  LATHE_TRY(write_temporary(temporary, bytes, &owner));
  const int folder = folder_.fd();
  const auto rename = [&] {
    return real_fs().renameat(folder, temporary.c_str(), folder, name.c_str());
  };
  if (uninterrupted(rename) == 0) return {};
  const int error = errno;
  (void)remove(temporary);
  return failed("write", name, error);
}

std::optional<std::string> MeetingFolder::read(const std::string& name, size_t bytes) {
  const FileSystem& fs = real_fs();
  const auto refuse = [&](const std::string& why) {
    refused_ = text(name, ", which ", why);
    return std::nullopt;
  };
  // O_NONBLOCK: opening a FIFO does not wait for a writer.
  const Opened file =
      open_at(fs, folder_.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file.error == ENOENT) return std::nullopt;
  if (file.error == ELOOP) return refuse("is a link");
  if (!file) return refuse("cannot be opened: " + reason(file.error));
  struct stat status = {};
  if (uninterrupted([&] { return fs.fstat(file.fd(), &status); }) != 0) {
    return refuse("cannot be examined: " + reason(errno));
  }
  if (!S_ISREG(status.st_mode)) return refuse(text("is ", kind(status.st_mode)));
  if (status.st_uid != owner_) {
    return refuse(text("belongs to user ", status.st_uid, "; trusted is ", owner_));
  }
  if (status.st_size != static_cast<off_t>(bytes)) {
    return refuse(text("has ", status.st_size, " bytes; expected are ", bytes));
  }
  std::string out;
  if (const int error = read_all(fs, file.fd(), bytes, out)) {
    return refuse("cannot be read: " + reason(error));
  }
  if (out.size() != bytes) return std::nullopt;
  return out;
}

bool MeetingFolder::remove(const std::string& name) const {
  const auto unlink = [&] { return real_fs().unlinkat(folder_.fd(), name.c_str(), 0); };
  return uninterrupted(unlink) == 0 || errno == ENOENT;
}

}  // namespace lathe
