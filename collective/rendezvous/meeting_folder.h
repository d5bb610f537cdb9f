// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Small files in a folder that other users may write into as well, read without trusting what lies
// there.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "cache/directory.h"
#include "codegen/base/status.h"

namespace lathe {

class MeetingFolder {
 public:
  // INVALID_ARGUMENT, which names LATHE_RENDEZVOUS_DIR, for a folder in which this process cannot
  // make a file.
  static Result<MeetingFolder> open(const std::string& path);

  // Puts a file of these bytes under a name, in place of whatever has the name but a folder.
  // Readers see all of it or nothing: it is written under a name that nobody can guess, and
  // renamed.
  Status write(const std::string& name, const std::string& bytes) const;
  // The bytes of a file, if it is a regular one of exactly this size and of this user. No call here
  // follows a link or waits for a writer of a FIFO. What else lies there is noted in refused().
  std::optional<std::string> read(const std::string& name, size_t bytes);
  // Whether there is nothing of the name any more.
  bool remove(const std::string& name) const;

  const std::string& path() const { return path_; }
  // Names what was found last in place of a file that was asked for; empty if nothing was.
  const std::string& refused() const { return refused_; }

 private:
  explicit MeetingFolder(const std::string& path) : path_(path) {}
  Status failed(const char* step, const std::string& name, int error) const;
  Status write_temporary(const std::string& name, const std::string& bytes, uid_t* owner) const;

  std::string path_, refused_;
  Opened folder_;
  // Owner of the files that this process makes here. It is not always this user: a file server may
  // give root's files to nobody.
  uid_t owner_ = 0;
};

}  // namespace lathe
