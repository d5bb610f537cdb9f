// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads and writes small files in a folder that other users may write into as well. No content of
// the folder is trusted.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "cache/directory.h"
#include "codegen/base/status.h"

namespace lathe {

class MeetingFolder {
 public:
  // Returns INVALID_ARGUMENT, which names LATHE_RENDEZVOUS_DIR, if this process cannot make a file
  // in the folder.
  static Result<MeetingFolder> open(const std::string& path);

  // Puts a file of these bytes under `name`, and replaces anything of that name but a folder.
  // Readers see all bytes or none, because the file is written under a name that nobody can guess,
  // and then renamed.
  Status write(const std::string& name, const std::string& bytes) const;
  // Returns the bytes of a file if it is a regular file of exactly this size and of this user. No
  // call here follows a link or waits for a writer of a FIFO. refused() names anything else that
  // has the name.
  std::optional<std::string> read(const std::string& name, size_t bytes);
  // Returns true if nothing has the name any more.
  bool remove(const std::string& name) const;

  const std::string& path() const { return path_; }
  // Names the last thing that was found in place of a requested file; empty if there was none.
  const std::string& refused() const { return refused_; }

 private:
  explicit MeetingFolder(const std::string& path) : path_(path) {}
  Status failed(const char* step, const std::string& name, int error) const;
  Status write_temporary(const std::string& name, const std::string& bytes, uid_t* owner) const;

  std::string path_, refused_;
  Opened folder_;
  // owner_ owns the files that this process makes here. The owner is not always this user: a file
  // server may give root's files to nobody.
  uid_t owner_ = 0;
};

}  // namespace lathe
