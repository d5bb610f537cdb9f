// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all: each is written under a name that nobody else has, beside
// the name that it takes, then synced and renamed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/directory.h"
#include "codegen/base/status.h"

namespace lathe {

// The file while it has its temporary name, relative to a descriptor. Calls return an errno, 0 for
// none, and step() then names what failed. The destructor removes a file that was not renamed.
class TemporaryFile {
 public:
  // Both arguments outlive this object. The name is `prefix`, the process, and a random number.
  TemporaryFile(const FileSystem& fs, int directory, std::string prefix);
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile();

  int create(mode_t mode);
  int write(std::string_view bytes);
  int rename_to(const char* name);  // syncs and closes before
  // The rename survives a power cut only after this. Some file systems cannot do it: no failure.
  int sync_directory();

  const char* step() const { return step_; }
  const std::string& name() const { return name_; }
  int fd() const { return file_.fd(); }

 private:
  const FileSystem& fs_;
  const int directory_;
  const std::string prefix_;
  Opened file_{{}, ENOENT};
  std::string name_;  // empty while there is no file of that name
  const char* step_ = "";
};

// A file at a path that a user gave. Only a regular file is replaced: a symbolic link is refused,
// not followed, and so are devices, pipes and folders.
class NewFile {
 public:
  // `what` begins the messages, such as "bundle".
  NewFile(const char* what, std::string path, const FileSystem& fs = real_fs());

  // INVALID_ARGUMENT for a path that no file may take, CACHE_IO where the disk or the folder fails.
  Status create();
  Status write(std::string_view bytes);
  Status put_in_place();

 private:
  std::string prefix() const;
  Status failed(int error, const char* step) const;
  Status check_target() const;
  void sweep() const;

  const FileSystem& fs_;
  const std::string what_, path_;
  std::string name_;  // in the folder
  Opened directory_{{}, ENOENT};
  std::optional<TemporaryFile> file_;
};

}  // namespace lathe
