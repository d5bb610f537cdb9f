// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Caches in pages: what a file says about them, before it is on the device.
#include <map>

#include "api/cli/failure.h"
#include "api/cli/problem.h"

namespace lathe::cli {
namespace {

const std::string kLengths = "cache_seqlens", kTable = "block_table";

std::string entry_text(size_t sequence, int64_t column) {
  return "entry [" + std::to_string(sequence) + ", " + std::to_string(column) + "]";
}

// Tokens that are appended to each sequence: those of what changes a cache.
int64_t appended(const Problem& problem) {
  for (const auto& [name, spec] : problem.inputs) {
    if (!is_changed(problem, name)) continue;
    const char* by = find_tensor(problem.op, name)->changed_by;
    if (by) return problem.inputs.at(by).shape.at(1);
  }
  return 0;
}

}  // namespace

bool is_changed(const Problem& problem, const std::string& name) {
  const lathe_operator_tensor& tensor = *find_tensor(problem.op, name);
  if (tensor.role != LATHE_INOUT) return false;
  return !tensor.changed_by || problem.inputs.contains(tensor.changed_by);
}

void check_pages(const Problem& problem, const TensorMap& inputs) {
  const auto table = inputs.find(kTable), stored = inputs.find(kLengths);
  if (table == inputs.end() || stored == inputs.end()) return;
  const int64_t pages = problem.extents.at("P"), page = problem.extents.at("page");
  const int64_t width = problem.extents.at("M"), more = appended(problem);
  if (page < 1) refuse("tensors of pages have page = 0, allowed: 1 and more");
  const std::vector<int64_t> entries = integers(table->second), lengths = integers(stored->second);
  std::map<int64_t, size_t> writers;  // page -> the sequence that appends to it
  for (size_t b = 0; b < lengths.size(); ++b) {
    const int64_t keys = lengths[b] + more;
    if (lengths[b] < 0 || keys > width * page) {
      refuse("tensor " + kLengths + " has " + std::to_string(lengths[b]) + " at entry " +
             std::to_string(b) + ", allowed: 0 to " + std::to_string(width * page - more) +
             ", M * page = " + std::to_string(width * page) +
             (more ? " less the " + std::to_string(more) + " that are appended" : ""));
    }
    for (int64_t i = 0; i * page < keys; ++i) {
      const int64_t entry = entries[b * static_cast<size_t>(width) + static_cast<size_t>(i)];
      if (entry < 0 || entry >= pages) {
        refuse("tensor " + kTable + " has " + std::to_string(entry) + " at " + entry_text(b, i) +
               ", allowed: 0 to " + std::to_string(pages - 1) + ", the pages there are");
      }
      if (more > 0 && (i + 1) * page > lengths[b]) writers.emplace(entry, b);
    }
  }
  for (size_t b = 0; b < lengths.size() && !writers.empty(); ++b) {
    for (int64_t i = 0; i * page < lengths[b] + more; ++i) {
      const int64_t entry = entries[b * static_cast<size_t>(width) + static_cast<size_t>(i)];
      const auto writer = writers.find(entry);
      if (writer == writers.end() || writer->second == b) continue;
      refuse("tensor " + kTable + " has " + std::to_string(entry) + " at " + entry_text(b, i) +
             ", the page that sequence " + std::to_string(writer->second) +
             " appends to, allowed: pages that nobody appends to, and one's own");
    }
  }
}

}  // namespace lathe::cli
