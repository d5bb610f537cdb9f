// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Everything that looks at the cache as a whole: counting, verifying, the compilers seen, and what
// a miss was nearly a hit for.
#include <algorithm>

#include "cache/nearest.h"
#include "cache/store/store_state.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kCompilersFile = "compilers";
constexpr size_t kMaxCompilersBytes = 64 << 10;

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
  const std::string identity(value_of(key_text, "compiler"));
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
  const std::vector<std::string_view> lines = lines_of(known);
  if (std::find(lines.begin(), lines.end(), identity) == lines.end()) {
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
  // Bytes behind the last newline are a line that is still being written.
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
  // Entries of other versions of the library count too: they share the cap.
  for (const std::string& version : version_names(fs, state_->root_fd.get())) {
    const Opened opened =
        open_directory(fs, state_->root_fd.get(), version.c_str(), false, state_->trust());
    const auto count = [&](int shard, const std::string& name) {
      struct stat status;
      const auto examine = [&] {
        return fs.fstatat(shard, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
      };
      if (uninterrupted(examine) == 0) {
        ++out.entries;
        out.bytes += static_cast<uint64_t>(status.st_size);
      }
      return true;
    };
    for_each_entry(fs, opened, state_->trust(), count);
  }
  return out;
}

VerifyReport Store::verify() {
  VerifyReport report;
  if (!state_->on_disk()) return report;
  for_each_entry(*state_, [&](int shard, const std::string& name) {
    const State::Found found = state_->read_entry(shard, name, !state_->read_only, false);
    if (found.error == ENOENT) return true;  // removed while we looked
    ++report.checked;
    if (found.wrong) {
      report.removed += !state_->read_only;
      ++state_->corrupt;
    }
    if (!found.entry) report.problems += text(name, ": ", found.why, "\n");
    return true;
  });
  return report;
}

std::string Store::nearest_difference(const Key& key) {
  NearestKey nearest(key.text);
  compare(nearest);
  return nearest.difference();
}

void Store::compare(NearestKey& nearest) {
  if (!state_->on_disk()) return;
  int left = NearestKey::kMostCompared;
  for_each_entry(*state_, [&](int shard, const std::string& name) {
    const State::Found found = state_->read_entry(shard, name, false, false);
    if (found.entry) nearest.look_at(found.entry->key.text);
    return --left > 0;
  });
}

std::string Store::read_text(const std::string& directory, const std::string& name, size_t most) {
  std::string out;
  if (!state_->on_disk() || name.find('/') != name.npos) return out;
  const FileSystem& fs = state_->fs;
  Opened version = state_->open_version(false);
  if (!version) return out;
  Opened folder = open_directory(fs, version.fd(), directory.c_str(), false, state_->trust());
  if (!folder) return out;
  Opened file = open_at(fs, folder.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status;
  if (!file || uninterrupted([&] { return fs.fstat(file.fd(), &status); }) != 0) return out;
  if (!S_ISREG(status.st_mode) || !is_owner(status, state_->trust())) return out;
  if (read_all(fs, file.fd(), most, out) != 0) out.clear();
  return out;
}

std::vector<Digest> Store::keys() {
  std::vector<Digest> out;
  if (!state_->on_disk()) return out;
  for_each_entry(*state_, [&](int, const std::string& name) {
    if (const auto key = parse_digest(name.substr(0, 32))) out.push_back(*key);
    return true;
  });
  return out;
}

Result<Entry> Store::read(const Digest& key) {
  const std::string name = entry_name(key);
  State::Found found;
  found.error = ENOENT;
  for (int attempt = 0; state_->on_disk() && attempt < 2; ++attempt) {
    Opened shard = state_->open_shard(key, false);
    found = {};
    found.error = shard.error;
    if (shard) found = state_->read_entry(shard.fd(), name, false, false);
    if (found.error != ESTALE) break;
  }
  if (found.entry) return std::move(*found.entry);
  if (found.error == ENOENT) return Status(Code::not_cached, "no such entry");
  return Status(Code::cache_io, found.why.empty() ? reason(found.error) : found.why);
}

}  // namespace lathe
