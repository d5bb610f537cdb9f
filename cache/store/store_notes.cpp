// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Small files beside the entries, in <root>/v1. They carry their own checksums: nothing here is
// synced, and two processes that write at once may leave a mixture.
#include <unistd.h>

#include "cache/store/store_state.h"

namespace lathe {
namespace {

constexpr off_t kMaxNoteBytes = 64 << 10;

}  // namespace

const FileSystem& Store::files() const { return state_->fs; }

std::optional<std::string> Store::read_note(const char* name) const {
  if (!state_->on_disk()) return std::nullopt;
  const FileSystem& fs = state_->fs;
  Opened version = state_->open_version(false);
  if (!version) return std::nullopt;
  Opened file = open_at(fs, version.fd(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status;
  if (!file || uninterrupted([&] { return fs.fstat(file.fd(), &status); }) != 0 ||
      !S_ISREG(status.st_mode) || status.st_uid != geteuid() || status.st_size > kMaxNoteBytes) {
    return std::nullopt;
  }
  std::string text;
  if (read_all(fs, file.fd(), static_cast<size_t>(status.st_size), text) != 0) return std::nullopt;
  return text;
}

void Store::write_note(const char* name, std::string_view text) {
  if (!state_->on_disk() || !state_->publishing) return;
  const FileSystem& fs = state_->fs;
  Opened version = state_->open_version(true);
  if (!version) return;
  // One name for all processes: what a killed one leaves is taken by the next.
  const std::string temporary = std::string(".tmp.") + name;
  Opened file = open_at(fs, version.fd(), temporary.c_str(),
                        O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (!file) return;
  const bool written = write_all(fs, file.fd(), text) == 0 && file.file.close() == 0;
  const auto rename = [&] {
    return fs.renameat(version.fd(), temporary.c_str(), version.fd(), name);
  };
  if (written && uninterrupted(rename) == 0) return;
  uninterrupted([&] { return fs.unlinkat(version.fd(), temporary.c_str(), 0); });
}

}  // namespace lathe
