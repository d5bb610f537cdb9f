// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>

#include "codegen/base/invalid.h"
#include "ops/attention/block/schema.h"
#include "ops/attention/run.h"

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

// Rows qa to qb see keys ka to kb.
struct Range {
  int64_t qa, qb, ka, kb, shift, q0, k0;
};

Status check_interval(size_t row, const char* names, int64_t begin, int64_t end, const char* dim,
                      int64_t length) {
  if (0 <= begin && begin <= end && end <= length) return {};
  return invalid(text("ranges, row ", row, ": ", names, " is ", begin, ", ", end,
                      "; allowed are 0 <= first <= second <= ", dim, " = ", length));
}

Status check_order(const std::vector<Range>& ranges, size_t row) {
  const Range& range = ranges[row];
  if (row > 0 && range.qa < ranges[row - 1].qa) {
    return invalid(text("ranges, row ", row, ": qa is ", range.qa, " after ", ranges[row - 1].qa,
                        "; allowed are ranges that ascend by qa"));
  }
  const auto overlap = [](int64_t a, int64_t b, int64_t c, int64_t d) {
    return std::max(a, c) < std::min(b, d);
  };
  for (size_t other = 0; other < row; ++other) {
    const Range& before = ranges[other];
    if (!overlap(range.qa, range.qb, before.qa, before.qb)) continue;
    if (!overlap(range.ka, range.kb, before.ka, before.kb)) continue;
    return invalid(text("ranges, row ", row, ": it shares rows and keys with row ", other,
                        "; allowed is that a row sees a key in one range"));
  }
  return {};
}

Status check_ranges(const Values& values) {
  constexpr size_t kWords = 7;
  const bool batch = values[Dim::Sq] != kUnknown;
  const Dim rows = batch ? Dim::Sq : Dim::Tq, keys = batch ? Dim::Sk : Dim::Tk;
  const std::vector<int64_t> words = values.integers(attention_block::ranges);
  std::vector<Range> ranges;
  for (size_t i = 0; i + kWords <= words.size(); i += kWords) {
    const int64_t* w = words.data() + i;
    const size_t row = ranges.size();
    ranges.push_back({w[0], w[1], w[2], w[3], w[4], w[5], w[6]});
    LATHE_TRY(check_interval(row, "qa, qb", w[0], w[1], name_of(rows), values[rows]));
    LATHE_TRY(check_interval(row, "ka, kb", w[2], w[3], name_of(keys), values[keys]));
    LATHE_TRY(check_order(ranges, row));
  }
  return {};
}

Status check_positions(const Values& values, int tensor) {
  constexpr int64_t kFarthest = (int64_t{1} << 30) - 1;
  if (!values.has(tensor)) return {};
  const std::vector<int64_t> positions = values.integers(tensor);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (-kFarthest <= positions[i] && positions[i] <= kFarthest) continue;
    return invalid(text(values.problem().op->tensors[tensor].name, " holds ", positions[i],
                        " at entry ", i, "; allowed are positions from -", kFarthest, " to ",
                        kFarthest));
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

Status check_block_values(const Values& values) {
  LATHE_TRY(check_positions(values, attention_block::q_pos));
  LATHE_TRY(check_positions(values, attention_block::k_pos));
  return values.has(attention_block::ranges) ? check_ranges(values) : Status();
}

}  // namespace lathe
