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
        appends(values.problem().has(attention_decode::k_new)),
        entries(values.integers(attention_decode::block_table)),
        lengths(values.integers(attention_decode::cache_seqlens)) {
    const bool packed = values.has(attention_decode::cu_seqlens_q);
    const auto offsets =
        packed ? values.integers(attention_decode::cu_seqlens_q) : std::vector<int64_t>();
    for (size_t b = 0; b < lengths.size(); ++b) {
      rows.push_back(packed ? offsets[b + 1] - offsets[b] : values[Dim::Sq]);
    }
  }

  // Returns the keys that the call appends to a sequence.
  int64_t more(size_t sequence) const { return appends ? rows[sequence] : 0; }
  int64_t keys(size_t sequence) const { return lengths[sequence] + more(sequence); }

  int64_t entry(size_t sequence, int64_t column) const {
    return entries[sequence * static_cast<size_t>(width) + static_cast<size_t>(column)];
  }
  std::string at(size_t sequence, int64_t column) const {
    return text("block_table has ", entry(sequence, column), " at entry [", sequence, ", ", column,
                "]");
  }

  int64_t pages, page, width;
  bool appends;
  std::vector<int64_t> entries, lengths, rows;
};

// Checks the table's entries, and gathers which sequence appends to which page.
Status check_entries(const Pages& cache, std::map<int64_t, size_t>* writers) {
  const int64_t room = cache.width * cache.page;
  for (size_t b = 0; b < cache.lengths.size(); ++b) {
    const int64_t stored = cache.lengths[b], more = cache.more(b), keys = stored + more;
    if (stored < 0) continue;  // padding
    if (keys > room) {
      return invalid(text("cache_seqlens has ", stored, " at entry ", b, "; allowed are 0 to ",
                          room - more, ", M * page = ", room,
                          more ? text(" less the ", more, " that are appended") : ""));
    }
    for (int64_t i = 0; i * cache.page < keys; ++i) {
      const int64_t entry = cache.entry(b, i);
      if (entry < 0 || entry >= cache.pages) {
        return invalid(
            text(cache.at(b, i), "; allowed are 0 to ", cache.pages - 1, ", the pages there are"));
      }
      if (more > 0 && (i + 1) * cache.page > stored) writers->emplace(entry, b);
    }
  }
  return {};
}

Status check_writers(const Pages& cache, const std::map<int64_t, size_t>& writers) {
  for (size_t b = 0; b < cache.lengths.size() && !writers.empty(); ++b) {
    if (cache.lengths[b] < 0) continue;  // padding
    for (int64_t i = 0; i * cache.page < cache.keys(b); ++i) {
      const auto writer = writers.find(cache.entry(b, i));
      if (writer == writers.end() || writer->second == b) continue;
      return invalid(text(cache.at(b, i), ", the page that sequence ", writer->second,
                          " appends to; allowed are pages that nobody appends to, and one's own"));
    }
  }
  return {};
}

// Positions lie within the tables of the rotary embedding.
Status check_positions(const Values& values, const Pages& cache) {
  using namespace attention_decode;
  if (!values.problem().has(rope_cos)) return {};
  const int64_t most = values[Dim::positions];
  const std::vector<int64_t> given =
      values.has(rope_positions) ? values.integers(rope_positions) : std::vector<int64_t>();
  const auto check = [&](int64_t position, const std::string& whose) -> Status {
    if (position >= 0 && position < most) return {};
    return invalid(text(whose, " stands at position ", position, "; allowed are 0 to ", most - 1,
                        ", the rows of rope_cos"));
  };
  if (!given.empty() && given.size() != cache.lengths.size()) {
    for (size_t i = 0; i < given.size(); ++i) LATHE_TRY(check(given[i], text("row ", i)));
    return {};
  }
  for (size_t b = 0; b < cache.lengths.size(); ++b) {
    if (cache.lengths[b] < 0 || cache.rows[b] == 0) continue;
    const int64_t first = !given.empty()  ? given[b]
                          : cache.appends ? cache.lengths[b]
                                          : cache.lengths[b] - cache.rows[b];
    LATHE_TRY(check(first, text("the first row of sequence ", b)));
    LATHE_TRY(check(first + cache.rows[b] - 1, text("the last row of sequence ", b)));
  }
  return {};
}

}  // namespace

Status check_decode_values(const Values& values) {
  LATHE_TRY(check_sinks(values, attention_decode::sinks));
  if (!values.has(attention_decode::block_table)) return {};
  if (!values.has(attention_decode::cache_seqlens)) return {};
  if (values[Dim::page] < 1) return invalid("k_cache has page = 0; allowed are 1 and more");
  const bool packed = values.problem().has(attention_decode::cu_seqlens_q);
  if (packed && !values.has(attention_decode::cu_seqlens_q)) return {};
  const Pages cache(values);
  LATHE_TRY(check_positions(values, cache));
  std::map<int64_t, size_t> writers;
  LATHE_TRY(check_entries(cache, &writers));
  return check_writers(cache, writers);
}

}  // namespace lathe
