// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which directory is the cache, and whether it may be trusted: it holds code, so one that others
// can write into is refused, for reading too.
#include <unistd.h>

#include <charconv>

#include "cache/store/store_state.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kMemoryOnly = "; kernels are kept in memory only";

constexpr const char* kOff = "off";

// With a slash at its end a symbolic link would be followed.
void drop_slashes(std::string& path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
}

std::string default_root() {
  if (auto chosen = environment("LATHE_CACHE_DIR")) return *chosen;
  // The XDG rules have a relative path ignored.
  if (auto base = environment("XDG_CACHE_HOME"); base && base->front() == '/')
    return *base + "/lathe";
  if (auto home = environment("HOME"); home && home->front() == '/') return *home + "/.cache/lathe";
  return {};
}

// Makes every missing directory of `path`, each for this user alone.
int make_path(const FileSystem& fs, const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (uninterrupted([&] { return fs.mkdirat(AT_FDCWD, part.c_str(), 0700); }) != 0 &&
        errno != EEXIST) {
      // A read-only or foreign parent that exists refuses in many ways; only the last part counts.
      if (end == path.npos) return errno;
    }
    if (end == path.npos) return 0;
  }
}

// Why the opened directory may not be used; empty if it may.
std::string distrust(const struct stat& status, Trust trust) {
  if (!is_owner(status, trust))
    return text("belongs to user ", status.st_uid, ", not to ", geteuid(),
                trust == Trust::user ? "" : " or root");
  if (!is_trusted(status, trust)) {
    char mode[8];
    const auto end = std::to_chars(mode, mode + sizeof(mode), status.st_mode & 07777, 8);
    return text("has mode 0", std::string(mode, end.ptr),
                ", which lets others write code into it (remedy: chmod go-w)");
  }
  return {};
}

std::string why_not_opened(const FileSystem& fs, const std::string& path, int error) {
  struct stat status;
  if ((error == ENOTDIR || error == ELOOP) &&
      fs.fstatat(AT_FDCWD, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISLNK(status.st_mode))
      return "is a symbolic link (remedy: name the directory it points to)";
    if (!S_ISDIR(status.st_mode)) return "is not a directory";
  }
  return "cannot be opened: " + reason(error);
}

std::string try_root(const FileSystem& fs, const std::string& path, Trust trust, Descriptor& out) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const auto open_it = [&] {
    return uninterrupted([&] { return fs.open(path.c_str(), kFlags, 0); });
  };
  int fd = open_it();
  if (fd < 0 && errno == ENOENT && trust == Trust::user) {
    if (const int error = make_path(fs, path)) return "cannot be made: " + reason(error);
    fd = open_it();
  }
  if (fd < 0) return why_not_opened(fs, path, errno);
  Descriptor opened(fs, fd);
  struct stat status;
  if (uninterrupted([&] { return fs.fstat(fd, &status); }) != 0)
    return "cannot be examined: " + reason(errno);
  if (std::string why = distrust(status, trust); !why.empty()) return why;
  out = std::move(opened);
  return {};
}

}  // namespace

Root open_root(const FileSystem& fs, const std::string& wanted) {
  Root root;
  std::string path = wanted.empty() ? default_root() : wanted;
  drop_slashes(path);
  if (path == kOff) {
    root.problem = text("the cache directory is ", kOff, kMemoryOnly);
    return root;
  }
  if (path.empty()) {
    root.problem = text(
        "no cache directory: none of LATHE_CACHE_DIR, XDG_CACHE_HOME (absolute) and HOME is set",
        kMemoryOnly, " (remedy: set LATHE_CACHE_DIR)");
  } else if (std::string why = try_root(fs, path, Trust::user, root.fd); !why.empty()) {
    root.problem = text("cache directory ", path, " ", why, kMemoryOnly);
  } else {
    root.path = path;
    return root;
  }
  log_message(LogLevel::warning, root.problem);
  return root;
}

Root open_read_only_root(const FileSystem& fs, const std::string& wanted) {
  Root root;
  root.path = wanted;
  drop_slashes(root.path);
  const std::string why = try_root(fs, root.path, Trust::user_and_root, root.fd);
  if (why.empty()) return root;
  root.problem = text("read-only cache directory ", root.path, " ", why, "; it is not used");
  log_message(LogLevel::warning, root.problem);
  return root;
}

}  // namespace lathe
