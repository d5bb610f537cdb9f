// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Keeps units that did not compile.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "codegen/base/digest.h"
#include "codegen/base/letters.h"
#include "codegen/base/text.h"
#include "codegen/nvrtc.h"

namespace lathe {
namespace {

constexpr size_t kMostUnits = 16;
constexpr size_t kMostNameBytes = 64;

// The kernel's name, which is the first word of the comment that a unit begins with.
std::string stem_of(std::string_view unit) {
  std::string stem;
  const size_t from = std::min(unit.find_first_not_of("/ "), unit.size());
  for (const char c : unit.substr(from, kMostNameBytes)) {
    if (!is_alphanumeric(c) && c != '_') break;
    stem += c;
  }
  return (stem.empty() ? "unit" : stem) + '-' + digest(unit).hex().substr(0, 16);
}

// The folder, open; -1 if it is somebody else's, or others may write there.
int open_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return -1;
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status;
  if (folder >= 0 && fstat(folder, &status) == 0 && status.st_uid == geteuid() &&
      (status.st_mode & 077) == 0) {
    return folder;
  }
  if (folder >= 0) close(folder);
  return -1;
}

bool write_whole(int folder, const std::string& name, std::string_view bytes) {
  const int file =
      openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  while (!bytes.empty()) {
    const ssize_t wrote = write(file, bytes.data(), bytes.size());
    if (wrote <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return close(file) == 0 && bytes.empty();
}

void remove_oldest(const std::string& folder) {
  using std::filesystem::file_time_type;
  std::vector<std::pair<file_time_type, std::string>> files;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    std::error_code gone;
    const file_time_type time = each->last_write_time(gone);
    if (!gone) files.emplace_back(time, each->path());
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kMostUnits < files.size(); ++i) unlink(files[i].second.c_str());
}

}  // namespace

std::string save_failed_unit(std::string_view unit) {
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) return {};
  const std::string path = (temporary / text("lathe-failed-", geteuid())).string();
  const int folder = open_folder(path);
  if (folder < 0) return {};
  const std::string name = stem_of(unit) + ".cu", fresh = text(name, ".", getpid(), ".new");
  unlinkat(folder, fresh.c_str(), 0);  // of a process that ended in the middle
  const bool saved = write_whole(folder, fresh, unit) &&
                     renameat(folder, fresh.c_str(), folder, name.c_str()) == 0;
  if (!saved) unlinkat(folder, fresh.c_str(), 0);
  close(folder);
  if (!saved) return {};
  remove_oldest(path);
  return path + '/' + name;
}

}  // namespace lathe
