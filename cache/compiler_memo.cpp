// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// <root>/v1/nvrtc: records, the one written last first, each of lines
//
//   lathe-nvrtc 1
//   search=<digest of the candidates and of the loader's folders>
//   saw=<device> <inode> <size> <mtime> <ctime> <path>     or, where there is no file,
//   saw=- <path>
//   identity=nvrtc 13.0 65be0db3...
//   check=<digest of the lines before>
//
// A record that is damaged, or of another search, is passed over: at worst the compiler is opened.
// It relies on one thing only: a file that nobody has touched is still the same compiler.
#include "cache/compiler_memo.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include "cache/directory.h"
#include "codegen/base/digest.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr const char* kFile = "nvrtc";
constexpr std::string_view kFirstLine = "lathe-nvrtc 1\n";
constexpr size_t kMaxRecords = 8;  // of other searches: other LD_LIBRARY_PATHs, other programs
constexpr int64_t kClockTick = 50'000'000;  // times of files come from a coarse clock

int64_t nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string search_digest(const CompilerSearch& search) {
  std::string all;
  for (const std::string& candidate : search.candidates) all += candidate + '\n';
  all += '\n';
  for (const std::string& folder : search.folders) all += folder + '\n';
  return digest(all).hex();
}

// The line for what is at `path` now. `changed`: its times, the later of them.
std::string sight(const FileSystem& fs, const std::string& path, int64_t* changed = nullptr) {
  struct stat status;
  if (uninterrupted([&] { return fs.fstatat(AT_FDCWD, path.c_str(), &status, 0); }) != 0)
    return "saw=- " + path + '\n';
  const int64_t modified = nanoseconds(status.st_mtim), altered = nanoseconds(status.st_ctim);
  if (changed != nullptr) *changed = std::max(*changed, std::max(modified, altered));
  std::string line = "saw=";
  for (const auto number :
       {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino),
        static_cast<int64_t>(status.st_size), modified, altered}) {
    line += std::to_string(number) + ' ';
  }
  return line + path + '\n';
}

// Every file that the loader tries up to the one that it was `asked` for, and that one.
std::vector<std::string> tried(const CompilerSearch& search, const std::string& asked,
                               const std::string& opened) {
  std::vector<std::string> paths;
  bool cache = false;
  for (const std::string& candidate : search.candidates) {
    if (candidate.find('/') != candidate.npos) {
      paths.push_back(candidate);
    } else {
      for (const std::string& folder : search.folders) paths.push_back(folder + '/' + candidate);
      cache = true;
    }
    if (candidate == asked) break;
  }
  if (cache) paths.push_back("/etc/ld.so.cache");
  if (std::find(paths.begin(), paths.end(), opened) == paths.end()) paths.push_back(opened);
  return paths;
}

std::string_view take_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

// The value in a line "name=value"; nothing if it is another.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
  if (line.substr(0, name.size()) != name || line.substr(name.size(), 1) != "=")
    return std::nullopt;
  return line.substr(name.size() + 1);
}

struct Record {
  std::string_view text;                   // all of it
  std::string_view search, saw, identity;  // `saw`: the lines
};

// The next record; `all` moves on. Nothing at the end or at the first damage, behind which nothing
// is believed.
std::optional<Record> take_record(std::string_view* all) {
  Record record;
  std::string_view left = *all;
  if (left.substr(0, kFirstLine.size()) != kFirstLine) return std::nullopt;
  left.remove_prefix(kFirstLine.size());
  const auto search = value_of(take_line(&left), "search");
  const char* const saw = left.data();
  std::string_view line = take_line(&left);
  while (value_of(line, "saw")) line = take_line(&left);
  const auto identity = value_of(line, "identity");
  if (!search || !identity) return std::nullopt;
  const size_t checked = static_cast<size_t>(left.data() - all->data());
  const auto check = value_of(take_line(&left), "check");
  if (!check || *check != digest(all->substr(0, checked)).hex()) return std::nullopt;
  record.text = all->substr(0, static_cast<size_t>(left.data() - all->data()));
  if (record.text.back() != '\n') return std::nullopt;  // cut at its very end
  record.search = *search;
  record.saw = std::string_view(saw, static_cast<size_t>(line.data() - saw));
  record.identity = *identity;
  *all = left;
  return record;
}

// Returns whether every file is as it was seen.
bool holds(const FileSystem& fs, std::string_view saw) {
  while (!saw.empty()) {
    const std::string line = std::string(take_line(&saw)) + '\n';
    // The path is behind the first blank if there was no file, behind the fifth if there was.
    size_t at = line.find(' ');
    const int blanks = line.substr(0, at) == "saw=-" ? 0 : 4;
    for (int i = 0; i < blanks && at != line.npos; ++i) at = line.find(' ', at + 1);
    if (at == line.npos) return false;
    if (sight(fs, line.substr(at + 1, line.size() - at - 2)) != line) return false;
  }
  return true;
}

}  // namespace

CompilerMemo::CompilerMemo(Store& store, int driver_version)
    : store_(store), driver_version_(driver_version), search_(compiler_search(driver_version)) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  begun_ = nanoseconds(now);
}

std::optional<std::string> CompilerMemo::recall() const {
  if (!search_.answerable) return std::nullopt;
  const auto note = store_.read_note(kFile);
  if (!note) return std::nullopt;
  const std::string wanted = search_digest(search_);
  std::string_view left = *note;
  while (const auto record = take_record(&left)) {
    if (record->search != wanted) continue;
    if (!holds(store_.files(), record->saw)) return std::nullopt;
    // LATHE_NVRTC names the same file to each driver, and not each takes it.
    if (!driver_loads(version_of_identity(record->identity).major, driver_version_))
      return std::nullopt;
    return std::string(record->identity);
  }
  return std::nullopt;
}

void CompilerMemo::note(const Compiler& opened) const {
  if (!search_.answerable || opened.path().find('/') == std::string::npos) return;
  const std::string search = search_digest(search_);
  std::string record(kFirstLine);
  record += "search=" + search + '\n';
  int64_t changed = 0;
  for (const std::string& path : tried(search_, opened.asked(), opened.path())) {
    // A line is a file: such a path cannot be written down.
    if (path.find('\n') != path.npos) return;
    record += sight(store_.files(), path, &changed);
  }
  if (changed > begun_ - kClockTick) return;
  record += "identity=" + opened.identity() + '\n';
  record += "check=" + digest(record).hex() + '\n';

  const std::string before = store_.read_note(kFile).value_or("");
  std::string all = record;
  std::string_view left = before;
  for (size_t kept = 1; kept < kMaxRecords; ++kept) {
    const auto other = take_record(&left);
    if (!other) break;
    if (other->search != search) all += other->text;
  }
  if (all != before) store_.write_note(kFile, all);
}

}  // namespace lathe
