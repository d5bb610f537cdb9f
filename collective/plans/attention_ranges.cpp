// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes rectangles of rows and keys, and joins them where the mask allows.
#include "collective/plans/attention_ranges.h"

#include <algorithm>
#include <optional>

namespace lathe {
namespace {

// Holds an unfinished rectangle, counted in buffers. Row r keeps key c iff -left <= c - r -
// diagonal <= right.
struct Rectangle {
  Interval rows, keys;
  int64_t diagonal = 0;
  bool full = false;
  int64_t q0 = 0, k0 = 0;
};

class Joiner {
 public:
  explicit Joiner(const VisibleRange& range) : range_(range) {}

  RangeKind kind(Interval rows, Interval keys, int64_t diagonal) const {
    return range_rule(rows, keys, diagonal, range_).kind;
  }

  // Joins rectangles of the same rows if the keys of `b` begin where those of `a` end.
  std::optional<Rectangle> beside(const Rectangle& a, const Rectangle& b) const {
    if (a.keys.end != b.keys.begin) return {};
    return as_one(a, b, a.rows, {a.keys.begin, b.keys.end});
  }
  // Joins rectangles if the rows of `b` begin where those of `a` end, and their keys touch. If only
  // one of them has a key, the other's rows must not see that key.
  std::optional<Rectangle> below(const Rectangle& a, const Rectangle& b) const {
    if (a.rows.end != b.rows.begin) return {};
    if (a.keys.end < b.keys.begin || b.keys.end < a.keys.begin) return {};
    return as_one(a, b, {a.rows.begin, b.rows.end},
                  {std::min(a.keys.begin, b.keys.begin), std::max(a.keys.end, b.keys.end)});
  }

 private:
  // Returns whether, with `diagonal`, the part's rows see the same keys of `all` as they see of the
  // part's own keys.
  bool fits(const Rectangle& part, Interval all, int64_t diagonal) const {
    const bool same = part.diagonal == diagonal ||
                      (part.full && kind(part.rows, part.keys, diagonal) == RangeKind::full);
    return same && sees_none(part.rows, {all.begin, part.keys.begin}, diagonal) &&
           sees_none(part.rows, {part.keys.end, all.end}, diagonal);
  }
  bool sees_none(Interval rows, Interval keys, int64_t diagonal) const {
    return keys.size() == 0 || kind(rows, keys, diagonal) == RangeKind::none;
  }
  std::optional<Rectangle> as_one(const Rectangle& a, const Rectangle& b, Interval rows,
                                  Interval keys) const {
    const bool side_by_side = a.rows == b.rows;
    for (const int64_t diagonal : {a.diagonal, b.diagonal}) {
      const bool fit = fits(a, side_by_side ? a.keys : keys, diagonal) &&
                       fits(b, side_by_side ? b.keys : keys, diagonal);
      if (!fit) continue;
      Rectangle out = {rows, keys, diagonal};
      out.full = kind(rows, keys, diagonal) == RangeKind::full;
      out.q0 = a.q0;
      out.k0 = b.keys.begin < a.keys.begin ? b.k0 : a.k0;
      return out;
    }
    return {};
  }

  VisibleRange range_;
};

// Cuts rows and keys without a visible pair. Returns whether anything is left.
bool trim(Rectangle* rectangle, const VisibleRange& range) {
  const Rectangle whole = *rectangle;
  Interval &rows = rectangle->rows, &keys = rectangle->keys;
  const int64_t left = range.left, right = range.right, diagonal = rectangle->diagonal;
  if (right >= 0) rows.begin = std::max(rows.begin, whole.keys.begin - diagonal - right);
  if (left >= 0) rows.end = std::min(rows.end, whole.keys.end - diagonal + left);
  if (right >= 0) keys.end = std::min(keys.end, rows.end + diagonal + right);
  if (left >= 0) keys.begin = std::max(keys.begin, rows.begin + diagonal - left);
  rectangle->q0 += rows.begin - whole.rows.begin;
  rectangle->k0 += keys.begin - whole.keys.begin;
  return rows.size() > 0 && keys.size() > 0;
}

AttentionRange as_row(const Rectangle& rectangle) {
  const auto word = [](int64_t value) { return static_cast<int32_t>(value); };
  return {word(rectangle.rows.begin),
          word(rectangle.rows.end),
          word(rectangle.keys.begin),
          word(rectangle.keys.end),
          word(rectangle.diagonal + rectangle.rows.begin - rectangle.keys.begin),
          word(rectangle.q0),
          word(rectangle.k0)};
}

// Returns the rectangles of one run of rows with each run of its sequence's keys, joined along the
// keys.
std::vector<Rectangle> row_of_pairs(const TokenRun& rows, std::span<const TokenRun> keys,
                                    int64_t offset, const VisibleRange& range,
                                    const Joiner& joiner) {
  std::vector<Rectangle> out;
  for (const TokenRun& each : keys) {
    const RangeRule rule = range_rule(rows.positions, each.positions, offset, range);
    if (rule.visible == 0) continue;
    Rectangle rectangle;
    rectangle.rows = {rows.begin, rows.begin + rows.positions.size()};
    rectangle.keys = {each.begin, each.begin + each.positions.size()};
    rectangle.diagonal = rule.shift + rectangle.keys.begin - rectangle.rows.begin;
    rectangle.full = rule.kind == RangeKind::full;
    rectangle.q0 = rows.positions.begin;
    rectangle.k0 = each.positions.begin;
    if (!range.positions && !out.empty()) {
      if (const auto joined = joiner.beside(out.back(), rectangle)) {
        out.back() = *joined;
        continue;
      }
    }
    out.push_back(rectangle);
  }
  return out;
}

// Joins each rectangle of `next` with one that ends at its first row, or appends it. `open` has the
// indices of the rectangles that can still be joined, before the call and after.
void append(std::vector<Rectangle>* rectangles, std::vector<size_t>* open,
            const std::vector<Rectangle>& next, const Joiner& joiner) {
  std::vector<size_t> now;
  for (const Rectangle& rectangle : next) {
    size_t place = rectangles->size();
    for (const size_t each : *open) {
      if (const auto one = joiner.below((*rectangles)[each], rectangle)) {
        (*rectangles)[each] = *one;
        place = each;
        break;
      }
    }
    if (place == rectangles->size()) rectangles->push_back(rectangle);
    now.push_back(place);
  }
  *open = std::move(now);
}

}  // namespace

std::vector<TokenRun> token_runs(const std::vector<Interval>& intervals,
                                 const std::vector<int64_t>& cu_seqlens, int64_t begin) {
  std::vector<TokenRun> out;
  for (const Interval& interval : intervals) {
    // The last sequence that begins at or before the interval's first token: the others are empty.
    auto next = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), interval.begin);
    for (int64_t at = interval.begin; at < interval.end; ++next) {
      const int64_t start = *(next - 1), end = std::min(*next, interval.end);
      if (end <= at) continue;
      out.push_back({static_cast<int>(next - cu_seqlens.begin()) - 1,
                     {at - start, end - start},
                     begin + at - interval.begin});
      at = end;
    }
    begin += interval.size();
  }
  return out;
}

std::vector<AttentionRange> attention_ranges(const std::vector<TokenRun>& rows,
                                             const std::vector<TokenRun>& keys,
                                             const Layout& layout, const VisibleRange& range) {
  // The sort puts runs of a sequence side by side, in the order of their buffer.
  std::vector<TokenRun> sorted = keys;
  const auto by_sequence = [](const TokenRun& a, const TokenRun& b) {
    return a.sequence < b.sequence;
  };
  std::stable_sort(sorted.begin(), sorted.end(), by_sequence);
  const Joiner joiner(range);
  std::vector<Rectangle> rectangles;
  std::vector<size_t> open;
  for (const TokenRun& each : rows) {
    const auto [begin, end] = std::equal_range(sorted.begin(), sorted.end(), each, by_sequence);
    const int n = each.sequence;
    const int64_t queries = layout.cu_seqlens[n + 1] - layout.cu_seqlens[n];
    const int64_t all_keys = layout.cu_seqlens_k[n + 1] - layout.cu_seqlens_k[n];
    const std::vector<Rectangle> seen =
        row_of_pairs(each, {begin, end}, all_keys - queries, range, joiner);
    if (range.positions) {
      rectangles.insert(rectangles.end(), seen.begin(), seen.end());
      continue;
    }
    append(&rectangles, &open, seen, joiner);
  }
  std::vector<AttentionRange> out;
  for (Rectangle& rectangle : rectangles) {
    if (trim(&rectangle, range)) out.push_back(as_row(rectangle));
  }
  std::stable_sort(out.begin(), out.end(), [](const AttentionRange& a, const AttentionRange& b) {
    return a.qa != b.qa ? a.qa < b.qa : a.ka < b.ka;
  });
  return out;
}

int64_t visible_in(std::span<const AttentionRange> ranges, const VisibleRange& range) {
  int64_t sum = 0;
  for (const AttentionRange& each : ranges) {
    sum += range_rule({0, each.qb - each.qa}, {0, each.kb - each.ka}, each.shift, range).visible;
  }
  return sum;
}

}  // namespace lathe
