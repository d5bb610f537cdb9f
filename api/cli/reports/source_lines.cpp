// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/source_lines.h"

#include <charconv>
#include <sstream>

#include "api/cli/inputs/text.h"
#include "api/cli/problem.h"

namespace lathe::cli {
namespace {

// The library gives the text of a kernel to the compiler under this name.
constexpr std::string_view kCompiledName = "caller/kernel.cuh";
constexpr size_t kMostCalls = 64;  // in line in each other

// The number behind the last colon.
size_t line_number(const std::string& place) {
  size_t line = 0;
  const char* const end = place.data() + place.size();
  std::from_chars(place.data() + place.rfind(':') + 1, end, line);
  return line;
}

}  // namespace

// .file 2 "/lathe/caller/kernel.cuh"
// .loc 5 32 5, function_name $L__info_string5, inlined_at 5 54 5
PtxPlaces::PtxPlaces(const std::string& ptx) {
  std::istringstream text(ptx);
  size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    std::istringstream words(line);
    std::string word, unused;
    words >> word;
    int file = 0, row = 0, column = 0;
    if (word == ".file" && words >> file) {
      const size_t begin = line.find('"'), end = line.rfind('"');
      if (begin < end) files_[file] = line.substr(begin + 1, end - begin - 1);
    }
    if (word != ".loc" || !(words >> file >> row >> column)) continue;
    const Site site = {file, row, column};
    begins_[number] = site;
    while (words >> word) {
      if (word == "inlined_at" && words >> file >> row >> column)
        outer_[site] = {file, row, column};
    }
  }
}

std::vector<std::string> PtxPlaces::of(size_t ptx_line) const {
  auto begin = begins_.upper_bound(ptx_line);
  if (begin == begins_.begin()) return {};
  std::vector<std::string> out;
  for (Site site = (--begin)->second; out.size() < kMostCalls;) {
    const auto file = files_.find(std::get<0>(site));
    out.push_back(text(file == files_.end() ? "" : file->second, ":", std::get<1>(site)));
    const auto call = outer_.find(site);
    if (call == outer_.end()) break;
    site = call->second;
  }
  return out;
}

SourceLines::SourceLines(const std::string& op, const std::vector<std::string>& ptx) {
  if (!op.ends_with(kKernelEnding)) return;
  file_ = op;
  std::istringstream all(read_text("OP", op));
  for (std::string line; std::getline(all, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    lines_.push_back(begin == line.npos ? "" : line.substr(begin));
  }
  for (const std::string& each : ptx) kernels_.emplace_back(each);
}

std::string SourceLines::users(const std::string& place) const {
  const size_t colon = place.rfind(':');
  const bool ours = colon != place.npos && place.substr(0, colon).ends_with(kCompiledName);
  return ours ? file_ + place.substr(colon) : std::string();
}

// Every kernel's entry point has the same name, so the place tells which kernel it is.
std::string SourceLines::caller_of(const Json& entry) const {
  for (const PtxPlaces& kernel : kernels_) {
    const auto places = kernel.of(entry.value("ptx_line", size_t{0}));
    if (places.empty() || places[0] != entry.value("source", "")) continue;
    for (const std::string& place : places) {
      if (std::string found = users(place); !found.empty()) return found;
    }
  }
  return {};
}

void SourceLines::name_one(Json* entry) const {
  std::string place = users(entry->value("source", ""));
  if (place.empty()) {
    place = caller_of(*entry);
    if (place.empty()) return;
    (*entry)["called_from"] = place;
  } else {
    (*entry)["source"] = place;
  }
  const size_t line = line_number(place);
  if (line >= 1 && line <= lines_.size()) (*entry)["source_text"] = lines_[line - 1];
}

void SourceLines::name(Json* entry) const {
  if (file_.empty()) return;
  name_one(entry);
  if (entry->contains("other")) name_one(&(*entry)["other"]);
}

}  // namespace lathe::cli
