// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads a caller's options of a shard. The tables of another layout are all made, and all ranks
// agree on it, before the first table is written.
#include "api/shard_layout.h"

#include "api/boundary.h"
#include "collective/plans/pieces.h"

namespace lathe {
namespace {

// The offsets of a cu_seqlens that may be NULL.
std::vector<int64_t> offsets_of(const int64_t* cu_seqlens, size_t count) {
  return cu_seqlens ? std::vector<int64_t>(cu_seqlens, cu_seqlens + count) : std::vector<int64_t>();
}

Result<Balance> balance_of(lathe_balance balance) {
  static_assert(static_cast<int>(Balance::head_tail) == LATHE_BALANCE_HEAD_TAIL &&
                static_cast<int>(Balance::per_document) == LATHE_BALANCE_PER_DOCUMENT &&
                static_cast<int>(Balance::ptrr) == LATHE_BALANCE_PTRR);
  if (balance >= LATHE_BALANCE_NONE && balance <= LATHE_BALANCE_PTRR) {
    return static_cast<Balance>(balance);
  }
  return invalid(text("balance is ", static_cast<int>(balance),
                      "; allowed are LATHE_BALANCE_NONE (0) to LATHE_BALANCE_PTRR (3)"));
}

Result<LayoutOptions> layout_options(const lathe_shard_options& options) {
  LayoutOptions out;
  out.world = options.world;
  LATHE_ASSIGN(out.balance, balance_of(options.balance));
  out.length = options.length;
  out.key_length = options.key_length;
  if (options.cu_seqlens_k && !options.cu_seqlens) {
    return invalid("cu_seqlens_k is given without cu_seqlens");
  }
  if (options.cu_seqlens && options.offsets == 0) {
    return invalid("offsets is 0, but cu_seqlens has at least one, 0");
  }
  out.cu_seqlens = offsets_of(options.cu_seqlens, options.offsets);
  out.cu_seqlens_k = offsets_of(options.cu_seqlens_k, options.offsets);
  if (options.block_size != 0) out.block_size = options.block_size;
  if (options.bounds) out.bounds.assign(options.bounds, options.bounds + options.world + 1);
  out.capacity = {options.capacity_tokens, options.capacity_pieces};
  if (!options.ranges) return out;
  if (!options.range_counts) return invalid("ranges is given without range_counts");
  const int64_t* range = options.ranges;
  for (int rank = 0; rank < options.world; ++rank) {
    std::vector<Interval>& own = out.ranges.emplace_back();
    for (size_t i = 0; i < options.range_counts[rank]; ++i, range += 2) {
      own.push_back({range[0], range[1]});
    }
  }
  return out;
}

}  // namespace

Result<Layout> layout_of(const lathe_shard_options& options) {
  LATHE_ASSIGN(const LayoutOptions wanted, layout_options(options));
  Result<Layout> out = make_layout(wanted);
  LATHE_TRY(out);
  LATHE_TRY(check_capacity(*out));
  return out;
}

namespace {

// Returns every rank's intervals, one after another, each list behind its length.
std::vector<int64_t> flat(const ShardLayout& layout) {
  std::vector<int64_t> out;
  for (const std::vector<Interval>& intervals : layout) {
    out.push_back(static_cast<int64_t>(intervals.size()));
    for (const auto& [begin, end] : intervals) out.insert(out.end(), {begin, end});
  }
  return out;
}

uint64_t number(int64_t value) { return static_cast<uint64_t>(value); }

}  // namespace

void add_digests(const Layout& layout, std::vector<NamedDigest>* out) {
  const NamedDigest digests[] = {
      {"length", number(layout.length)},
      {"key_length", number(layout.key_length)},
      {"cu_seqlens", digest_of(std::span(layout.cu_seqlens))},
      {"cu_seqlens_k", digest_of(std::span(layout.cu_seqlens_k))},
      {"balance", number(static_cast<int64_t>(layout.balance))},
      {"the cut of queries", digest_of(std::span<const int64_t>(flat(layout.queries)))},
      {"the cut of keys", digest_of(std::span<const int64_t>(flat(layout.keys)))},
      {"capacity_tokens", number(layout.capacity.tokens)},
      {"capacity_pieces", number(layout.capacity.pieces)},
  };
  out->insert(out->end(), std::begin(digests), std::end(digests));
}

namespace {

// Returns INVALID_ARGUMENT for a layout that a shard's graphs cannot have.
Status check_update(const lathe_shard& shard, const lathe_shard_options& options,
                    const Layout& layout) {
  const Layout& old = shard.layout;
  if (!old.capacity) {
    return invalid(
        "the shard has no capacity_tokens (lathe_shard_options); allowed is one that has");
  }
  const auto same = [](const char* name, int64_t found, int64_t allowed) -> Status {
    if (found == allowed) return {};
    return invalid(text(name, " is ", found, "; the shard was made with ", allowed));
  };
  LATHE_TRY(same("world", options.world, old.world()));
  LATHE_TRY(same("rank", options.rank, shard.rank));
  LATHE_TRY(same("capacity_tokens", layout.capacity.tokens, old.capacity.tokens));
  LATHE_TRY(same("capacity_pieces", layout.capacity.pieces, old.capacity.pieces));
  if (layout.packed != old.packed) {
    return invalid(text("cu_seqlens is ", layout.packed ? "given" : "NULL",
                        ", but the shard was made ", old.packed ? "with" : "without", " it"));
  }
  return same("the number of sequences", std::ssize(layout.cu_seqlens) - 1,
              std::ssize(old.cu_seqlens) - 1);
}

Status check_not_capturing(const Device& device, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const Driver& driver = device.driver();
  LATHE_TRY(check(driver, driver.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing"));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return invalid("the stream is in a capture; allowed is lathe_shard_update outside of one");
}

}  // namespace

// Makes all tables before the first one is written.
Status update_layout(lathe_shard* shard, const lathe_shard_options& options, CUstream stream) {
  LATHE_ASSIGN(Layout layout, layout_of(options));
  LATHE_TRY(check_update(*shard, options, layout));
  std::vector<TableImage> images;
  for (const lathe_shard::ForPlan& each : shard->states) {
    LATHE_ASSIGN(TableImage image, each.state->image(layout));
    images.push_back(std::move(image));
  }
  if (shard->group) {
    Group& group = *shard->group;
    const Device::Scope scope(group.device());
    LATHE_TRY(scope.status());
    LATHE_TRY(check_not_capturing(group.device(), stream));
    std::vector<NamedDigest> digests;
    add_digests(layout, &digests);
    // A replay that is under way has the communicator to itself.
    LATHE_TRY(group.exchange_after(stream));
    LATHE_TRY(agree(group, digests));
    for (size_t i = 0; i < images.size(); ++i) {
      LATHE_TRY(shard->states[i].state->table.update(images[i].bytes(), stream));
    }
  }
  shard->layout = std::move(layout);
  return {};
}

}  // namespace lathe
