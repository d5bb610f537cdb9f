// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Everything that looks at the cache as a whole: counting, verifying, the compilers seen, and what
// a miss was nearly a hit for.
#include <algorithm>

#include "cache/store_state.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kCompilersFile = "compilers";
constexpr size_t kMaxCompilersBytes = 64 << 10;
constexpr int kMaxCompared = 256;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return out;
}

bool contains(const std::vector<std::string_view>& lines, std::string_view line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// The first line of `asked` that `there` lacks, and the line of the same name in its place.
std::string difference(const std::vector<std::string_view>& asked,
                       const std::vector<std::string_view>& there) {
  for (std::string_view line : asked) {
    if (contains(there, line)) continue;
    const std::string_view name = line.substr(0, line.find_first_of("= ") + 1);
    for (std::string_view other : there)
      if (other.substr(0, name.size()) == name && !contains(asked, other))
        return text(line, " (there: ", other, ")");
    return text(line, " (nothing there)");
  }
  return {};
}

}  // namespace

std::vector<std::string> version_names(const FileSystem& fs, int root) {
  std::vector<std::string> names, out;
  // A directory that was opened once is read from where the last reader stopped: open it anew.
  const Opened opened = open_directory(fs, root, ".", false);
  if (!opened || list_names(fs, opened.fd(), names) != 0) return {kVersionDirectory};
  for (const std::string& name : names)
    if (name.size() > 1 && name[0] == 'v' && name.find_first_not_of("0123456789", 1) == name.npos)
      out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

void Store::State::note_compiler(const std::string& key_text) {
  std::string identity;
  for (std::string_view line : lines_of(key_text))
    if (line.substr(0, 9) == "compiler=") identity = line.substr(9);
  std::lock_guard<std::mutex> guard(mutex);
  if (identity.empty() || known_compilers.count(identity)) return;

  Opened version = open_version(true);
  if (!version) return;
  // One short write at the end of the file: writers do not tear each other's lines, and a line that
  // is there twice is read once.
  Opened file = open_at(fs, version.fd(), kCompilersFile,
                        O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600);
  std::string known;
  if (!file || read_all(fs, file.fd(), kMaxCompilersBytes, known) != 0) return;
  if (!contains(lines_of(known), identity)) {
    const bool torn = !known.empty() && known.back() != '\n';
    if (known.size() >= kMaxCompilersBytes ||
        write_all(fs, file.fd(), (torn ? "\n" : "") + identity + "\n") != 0)
      return;
    uninterrupted([&] { return fs.fsync(file.fd()); });
  }
  known_compilers.insert(identity);
}

std::vector<std::string> Store::compilers() {
  std::vector<std::string> out;
  if (!state_->on_disk()) return out;
  Opened version = state_->open_version(false);
  if (!version) return out;
  Opened file =
      open_at(state_->fs, version.fd(), kCompilersFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  std::string known;
  if (!file || read_all(state_->fs, file.fd(), kMaxCompilersBytes, known) != 0) return out;
  // What follows the last newline is a line still being written.
  known.resize(known.rfind('\n') == known.npos ? 0 : known.rfind('\n'));
  for (std::string_view line : lines_of(known))
    if (!line.empty() && std::find(out.begin(), out.end(), line) == out.end())
      out.emplace_back(line);
  return out;
}

StoreStat Store::stat() {
  StoreStat out;
  out.hits = state_->hits;
  out.misses = state_->misses;
  out.corrupt = state_->corrupt;
  out.published = state_->published;
  out.publish_failures = state_->publish_failures;
  if (!state_->on_disk()) return out;
  const FileSystem& fs = state_->fs;
  // Of other versions of the library too: they share the cap.
  for (const std::string& version : version_names(fs, state_->root_fd.get())) {
    const Opened opened = open_directory(fs, state_->root_fd.get(), version.c_str(), false);
    for_each_entry(fs, opened, [&](int shard, const std::string& name) {
      struct stat status;
      const auto look = [&] {
        return fs.fstatat(shard, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
      };
      if (uninterrupted(look) == 0) {
        ++out.entries;
        out.bytes += static_cast<uint64_t>(status.st_size);
      }
      return true;
    });
  }
  return out;
}

VerifyReport Store::verify() {
  VerifyReport report;
  if (!state_->on_disk()) return report;
  for_each_entry(state_->fs, state_->open_version(false), [&](int shard, const std::string& name) {
    const State::Found found = state_->read_entry(shard, name, true, false);
    if (found.error == ENOENT) return true;  // removed while we looked
    ++report.checked;
    if (found.wrong) {
      ++report.removed;
      ++state_->corrupt;
    }
    if (!found.entry) report.problems += text(name, ": ", found.why, "\n");
    return true;
  });
  return report;
}

std::string Store::nearest_difference(const Key& key) {
  if (!state_->on_disk()) return {};
  const std::vector<std::string_view> asked = lines_of(key.text);
  std::string best;
  size_t most = 0;
  int left = kMaxCompared;
  for_each_entry(state_->fs, state_->open_version(false), [&](int shard, const std::string& name) {
    const State::Found found = state_->read_entry(shard, name, false, false);
    if (!found.entry) return --left > 0;
    const std::vector<std::string_view> there = lines_of(found.entry->key.text);
    const size_t same = static_cast<size_t>(std::count_if(
        asked.begin(), asked.end(), [&](std::string_view line) { return contains(there, line); }));
    if (best.empty() || same > most) {
      most = same;
      best = difference(asked, there);
    }
    return --left > 0;
  });
  return best;
}

}  // namespace lathe
