// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/cases.h"

#include <filesystem>
#include <stdexcept>

namespace bench {
namespace {

constexpr int kAttempts = 2;  // the second may run into what the first was killed for

std::ofstream open_at_end(const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  if (!file) throw std::runtime_error("cannot write " + path);
  return file;
}

// True if the last line lacks its end, as after a kill in the middle of a write.
bool torn(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

Cases::Cases(const Settings& settings, Table* table) : settings_(settings), table_(table) {
  if (settings.append.empty()) return;
  read();
  const std::string notes = settings.append + ".cases";
  const bool cut = torn(settings.append), cut_notes = torn(notes);
  rows_ = open_at_end(settings.append);
  notes_ = open_at_end(notes);
  if (cut) rows_ << '\n';
  if (cut_notes) notes_ << '\n';
  if (std::filesystem::file_size(settings.append) == 0) rows_ << table->csv() << std::flush;
}

// Lines are "begin NAME", "done NAME" or "failed NAME".
void Cases::read() {
  std::ifstream file(settings_.append + ".cases", std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    if (space == line.npos) continue;
    Past& past = past_[line.substr(space + 1)];
    if (line.compare(0, space, "begin") == 0) {
      ++past.begun;
    } else {
      past.ended = true;
    }
  }
}

void Cases::note(const char* word, const std::string& name) {
  if (notes_.is_open()) notes_ << word + (" " + name) + "\n" << std::flush;
}

void Cases::run(const std::string& name, const std::function<std::vector<std::string>()>& measure) {
  if (name.find(settings_.only) == name.npos) return;
  const auto past = past_.find(name);
  if (past != past_.end() && (past->second.ended || past->second.begun >= kAttempts)) return;
  note("begin", name);
  try {
    table_->add(measure());
  } catch (const std::exception& error) {
    note("failed", name);
    throw std::runtime_error(name + ": " + error.what());
  }
  if (rows_.is_open() && !(rows_ << table_->last_line() << std::flush)) {
    throw std::runtime_error("cannot write " + settings_.append);
  }
  note("done", name);
}

}  // namespace bench
