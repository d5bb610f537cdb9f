// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks the values of pages.
#include <map>

#include "codegen/base/invalid.h"
#include "ops/attention/decode/run.h"

namespace lathe {
namespace {

// Holds the pages of a cache, and what a call appends to them.
struct Pages {
  explicit Pages(const Values& values)
      : pages(values[Dim::P]),
        page(values[Dim::page]),
        width(values[Dim::M]),
        more(values.problem().has(attention_decode::k_new) ? values[Dim::Sq] : 0),
        entries(values.integers(attention_decode::block_table)),
        lengths(values.integers(attention_decode::cache_seqlens)) {}

  int64_t entry(size_t sequence, int64_t column) const {
    return entries[sequence * static_cast<size_t>(width) + static_cast<size_t>(column)];
  }
  std::string at(size_t sequence, int64_t column) const {
    return text("block_table has ", entry(sequence, column), " at entry [", sequence, ", ", column,
                "]");
  }

  int64_t pages, page, width, more;
  std::vector<int64_t> entries, lengths;
};

// Checks the table's entries, and gathers which sequence appends to which page.
Status check_entries(const Pages& cache, std::map<int64_t, size_t>* writers) {
  const int64_t room = cache.width * cache.page;
  for (size_t b = 0; b < cache.lengths.size(); ++b) {
    const int64_t stored = cache.lengths[b], keys = stored + cache.more;
    if (stored < 0) continue;  // padding
    if (keys > room) {
      return invalid(text("cache_seqlens has ", stored, " at entry ", b, "; allowed are 0 to ",
                          room - cache.more, ", M * page = ", room,
                          cache.more ? text(" less the ", cache.more, " that are appended") : ""));
    }
    for (int64_t i = 0; i * cache.page < keys; ++i) {
      const int64_t entry = cache.entry(b, i);
      if (entry < 0 || entry >= cache.pages) {
        return invalid(
            text(cache.at(b, i), "; allowed are 0 to ", cache.pages - 1, ", the pages there are"));
      }
      if (cache.more > 0 && (i + 1) * cache.page > stored) writers->emplace(entry, b);
    }
  }
  return {};
}

Status check_writers(const Pages& cache, const std::map<int64_t, size_t>& writers) {
  for (size_t b = 0; b < cache.lengths.size() && !writers.empty(); ++b) {
    if (cache.lengths[b] < 0) continue;  // padding
    for (int64_t i = 0; i * cache.page < cache.lengths[b] + cache.more; ++i) {
      const auto writer = writers.find(cache.entry(b, i));
      if (writer == writers.end() || writer->second == b) continue;
      return invalid(text(cache.at(b, i), ", the page that sequence ", writer->second,
                          " appends to; allowed are pages that nobody appends to, and one's own"));
    }
  }
  return {};
}

}  // namespace

Status check_decode_values(const Values& values) {
  LATHE_TRY(check_sinks(values, attention_decode::sinks));
  if (!values.has(attention_decode::block_table)) return {};
  if (!values.has(attention_decode::cache_seqlens)) return {};
  if (values[Dim::page] < 1) return invalid("k_cache has page = 0; allowed are 1 and more");
  const Pages cache(values);
  std::map<int64_t, size_t> writers;
  LATHE_TRY(check_entries(cache, &writers));
  return check_writers(cache, writers);
}

}  // namespace lathe
