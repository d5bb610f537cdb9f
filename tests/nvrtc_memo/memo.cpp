// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nvrtc_memo/memo.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "codegen/base/digest.h"

namespace memo {
namespace {

namespace files = std::filesystem;

constexpr char kMagic[] = "lathe nvrtc memo 1\n";

// Lengths keep "ab" + "c" apart from "a" + "bc".
void append(std::string* all, std::string_view part) {
  *all += std::to_string(part.size()) + ':';
  *all += part;
}

std::string_view skip_blanks(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return text.substr(at);
}

// Collects the names of the #include lines of `text`; false if one of them is no plain name.
bool included(std::string_view text, std::vector<std::string>* names) {
  if (text.find("__has_include") != text.npos || text.find("#embed") != text.npos) return false;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == text.npos) end = text.size();
    std::string_view line = skip_blanks(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty() || line[0] != '#') continue;
    line = skip_blanks(line.substr(1));
    if (line.substr(0, 7) != "include") continue;
    line = skip_blanks(line.substr(7));
    const char close = line.empty() ? '\0' : line[0] == '<' ? '>' : line[0] == '"' ? '"' : '\0';
    const size_t last = close == '\0' ? line.npos : line.find(close, 1);
    if (last == line.npos) return false;
    names->emplace_back(line.substr(1, last - 1));
  }
  return true;
}

}  // namespace

std::string key_of(const std::string& compiler, const Source& source,
                   const std::vector<std::string>& options) {
  std::string all;
  append(&all, compiler);
  append(&all, source.name);
  append(&all, source.text);
  for (const std::string& option : options) {
    // Files outside `headers` would be read, or written.
    for (const char* reaching_out : {"-I", "--include-path", "-include", "--pre-include", "-time",
                                     "--time", "--fdevice-time-trace", "-fdevice-time-trace"}) {
      if (option.rfind(reaching_out, 0) == 0) return {};
    }
    append(&all, option);
  }
  const std::map<std::string, std::string> known(source.headers.begin(), source.headers.end());
  std::set<std::string> seen;
  std::vector<std::string> open;
  if (!included(source.text, &open)) return {};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (!seen.insert(name).second) continue;
    const auto header = known.find(name);
    if (header == known.end() || !included(header->second, &open)) return {};
  }
  for (const std::string& name : seen) {  // in order
    append(&all, name);
    append(&all, known.at(name));
  }
  return lathe::digest(all).hex();
}

std::optional<Outputs> load(const std::string& folder, const std::string& key) {
  const files::path path = files::path(folder) / key.substr(0, 2) / key;
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const size_t head = sizeof kMagic - 1 + 32;
  if (all.size() < head || all.compare(0, sizeof kMagic - 1, kMagic) != 0 ||
      all.compare(sizeof kMagic - 1, 32, lathe::digest(std::string_view(all).substr(head)).hex()) !=
          0) {
    return {};
  }
  Outputs outputs;
  size_t at = head;
  for (std::string* part : {&outputs.log, &outputs.ptx, &outputs.cubin}) {
    const size_t colon = all.find(':', at);
    const size_t size = std::stoull(all.substr(at, colon - at));
    *part = all.substr(colon + 1, size);
    at = colon + 1 + size;
  }
  // scripts/test removes what has not been used for long.
  std::error_code ignored;
  files::last_write_time(path, files::file_time_type::clock::now(), ignored);
  return outputs;
}

void save(const std::string& folder, const std::string& key, const Outputs& outputs) {
  std::string body;
  for (const std::string* part : {&outputs.log, &outputs.ptx, &outputs.cubin}) append(&body, *part);
  std::error_code ignored;
  const files::path place = files::path(folder) / key.substr(0, 2);
  files::create_directories(place, ignored);
  std::string temporary = (place / ".tmp-XXXXXX").string();
  const int made = mkstemp(temporary.data());
  if (made < 0) return;
  close(made);
  std::ofstream file(temporary, std::ios::binary);
  file << kMagic << lathe::digest(body).hex() << body;
  file.close();
  if (file) files::rename(temporary, place / key, ignored);
  if (!file || ignored) files::remove(temporary, ignored);
}

}  // namespace memo
