// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/rank.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>

namespace apitest {
namespace {

const std::vector<std::string> kKeyDims = {"Sk", "Tk"};

int64_t tokens_of(const Intervals& intervals) {
  int64_t sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

// Returns the offsets of packed sequences.
std::vector<int64_t> offsets_in(const Call& call, const std::vector<const char*>& names) {
  for (const char* name : names) {
    const auto found = call.tensors.find(name);
    if (found == call.tensors.end()) continue;
    return {found->second.values.begin(), found->second.values.end()};
  }
  return {};
}

// Holds options of a shard with what they point to.
class ShardOptions {
 public:
  ShardOptions(const Call& call, const Ranks& ranks, int rank) {
    if (ranks.offsets) {
      cu_ = offsets_in(call, {"cu_seqlens_q", "cu_seqlens"});
      cu_k_ = offsets_in(call, {"cu_seqlens_k"});
    }
    bounds_ = ranks.bounds;
    options_.world = ranks.world, options_.rank = rank, options_.balance = ranks.balance;
    options_.length = length_of(call, kQueryDims), options_.key_length = length_of(call, kKeyDims);
    options_.cu_seqlens = data(cu_), options_.cu_seqlens_k = data(cu_k_);
    options_.offsets = cu_.size();
    options_.bounds = data(bounds_);
    options_.block_size = ranks.block_size;
    options_.capacity_tokens = ranks.capacity_tokens;
    options_.capacity_pieces = ranks.capacity_pieces;
    for (const Intervals& own : ranks.ranges) {
      counts_.push_back(own.size());
      for (const auto& [first, last] : own) flat_.insert(flat_.end() - 1, {first, last});
    }
    if (!counts_.empty()) options_.ranges = flat_.data(), options_.range_counts = counts_.data();
  }
  ShardOptions(const ShardOptions&) = delete;
  ShardOptions& operator=(const ShardOptions&) = delete;
  const lathe_shard_options* get() const { return &options_; }

 private:
  static const int64_t* data(const std::vector<int64_t>& values) {
    return values.empty() ? nullptr : values.data();
  }

  std::vector<int64_t> cu_, cu_k_, bounds_, flat_ = {0};  // a table of no range has an address, too
  std::vector<size_t> counts_;
  lathe_shard_options options_ = LATHE_SHARD_OPTIONS_INIT;
};

Shard make_shard(const Call& call, const Ranks& ranks, int rank) {
  const ShardOptions options(call, ranks, rank);
  lathe_shard* made = nullptr;
  API(lathe_shard_create_with(&made, options.get()));
  return Shard(made);
}

Intervals intervals_of(const lathe_shard* shard, lathe_axis axis) {
  const int64_t* ends = nullptr;
  size_t count = 0;
  API(lathe_shard_intervals(shard, axis, &ends, &count));
  Intervals out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(ends[2 * i], ends[2 * i + 1]);
  return out;
}

// Runs `body` for each number below `world` in a thread of its own, calls `failed` where it throws,
// and throws what failed first.
void on_threads(size_t world, const std::function<void(size_t)>& body,
                const std::function<void(size_t)>& failed = {}) {
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        if (failed) failed(r);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace

const std::vector<std::string> kQueryDims = {"Sq", "Tq", "T"};

int dimension_of(const Call& call, const std::string& name, const std::vector<std::string>& dims) {
  const auto own = dims_of(call.op, name, call.tensors.at(name).shape.size());
  const auto found = std::find_first_of(own.begin(), own.end(), dims.begin(), dims.end());
  return found == own.end() ? -1 : static_cast<int>(found - own.begin());
}

int64_t length_of(const Call& call, const std::vector<std::string>& dims) {
  for (const auto& [name, tensor] : call.tensors) {
    const int dimension = dimension_of(call, name, dims);
    if (dimension >= 0) return tensor.shape[static_cast<size_t>(dimension)];
  }
  return -1;
}
void each_piece(const std::vector<int64_t>& shape, int axis, const Intervals& intervals,
                const CopyPiece& copy, int64_t rows) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[static_cast<size_t>(i)];
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t whole = shape[static_cast<size_t>(axis)] * inner;
  if (rows == 0) rows = tokens_of(intervals);
  for (int64_t o = 0; o < outer; ++o) {
    int64_t local = o * rows * inner;
    for (const auto& [begin, end] : intervals) {
      const int64_t count = (end - begin) * inner;
      copy(o * whole + begin * inner, local, count);
      local += count;
    }
  }
}

std::string Ranks::text() const {
  static const char* const kBalances[] = {"none", "head_tail", "per_document", "ptrr"};
  std::string out = "ranks " + std::to_string(world) + " " + kBalances[balance] + " flags " +
                    std::to_string(flags);
  for (const int64_t bound : bounds) out += " " + std::to_string(bound);
  for (const Intervals& own : ranges) {
    out += " |";
    for (const auto& [first, last] : own) {
      out += " " + std::to_string(first) + "-" + std::to_string(last);
    }
  }
  return out;
}

Rank::Rank(const Call& call, const Ranks& ranks, int number, const char* id)
    : number_(number),
      flags_(ranks.flags),
      capacity_(ranks.capacity_tokens),
      context_(make_context()) {
  lathe_group* group = nullptr;
  API(lathe_group_create(&group, context_.get(), id, ranks.world, number, 20000));
  group_.reset(group);
  shard_ = make_shard(call, ranks, number);
  queries = intervals_of(shard_.get(), LATHE_QUERIES);
  keys = intervals_of(shard_.get(), LATHE_KEYS);
  for (const auto& [dim, counts] : ranks.counts) {
    const auto own = counts.begin() + number;
    const int64_t begin = std::reduce(counts.begin(), own);
    counted_[dim] = {{begin, begin + *own}};
  }
  for (const auto& [dim, held] : ranks.entries) counted_[dim] = held[static_cast<size_t>(number)];
}

void Rank::update(const Call& call, const Ranks& ranks, void* stream) {
  API(lathe_shard_update(shard_.get(), ShardOptions(call, ranks, number_).get(), stream));
  queries = intervals_of(shard_.get(), LATHE_QUERIES);
  keys = intervals_of(shard_.get(), LATHE_KEYS);
}

Rank::Axis Rank::axis_of(const Call& whole, const std::string& name) const {
  for (const auto& [dim, held] : counted_) {
    const int dimension = dimension_of(whole, name, {dim});
    if (dimension >= 0) return {dimension, held};
  }
  const int dimension = dimension_of(whole, name, kQueryDims);
  if (dimension >= 0) return {dimension, queries};
  return {dimension_of(whole, name, kKeyDims), keys};
}

Values Rank::part(const Call& whole, const std::string& name, const Values& values) const {
  const Axis axis = axis_of(whole, name);
  if (axis.dimension < 0 || values.empty()) return values;
  std::vector<int64_t> shape = whole.tensors.at(name).shape;
  shape[static_cast<size_t>(axis.dimension)] = capacity_ > 0 ? capacity_ : tokens_of(axis.held);
  Values own(Call::count(shape), std::numeric_limits<double>::quiet_NaN());
  each_piece(
      whole.tensors.at(name).shape, axis.dimension, axis.held,
      [&](int64_t from, int64_t to, int64_t count) {
        std::copy_n(values.begin() + from, count, own.begin() + to);
      },
      capacity_);
  return own;
}

Call Rank::part(const Call& whole) const {
  Call own = whole;
  for (auto& [name, tensor] : own.tensors) {
    const Axis axis = axis_of(whole, name);
    if (axis.dimension < 0) continue;
    tensor.values = part(whole, name, tensor.values);
    tensor.shape[static_cast<size_t>(axis.dimension)] =
        capacity_ > 0 ? capacity_ : tokens_of(axis.held);
  }
  return own;
}

std::vector<std::unique_ptr<Rank>> make_ranks(const Call& call, const Ranks& ranks) {
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  std::vector<std::unique_ptr<Rank>> all(static_cast<size_t>(ranks.world));
  on_threads(all.size(), [&](size_t r) {
    all[r] = std::make_unique<Rank>(call, ranks, static_cast<int>(r), id.data());
  });
  return all;
}

void each_rank(std::vector<std::unique_ptr<Rank>>* ranks, const std::function<void(size_t)>& body) {
  on_threads(ranks->size(), body, [&](size_t r) { (*ranks)[r]->abort(); });
}

void on_ranks(const Call& call, const Ranks& ranks, const std::function<void(Rank&)>& body) {
  auto all = make_ranks(call, ranks);
  each_rank(&all, [&](size_t r) { body(*all[r]); });
  on_threads(all.size(), [&](size_t r) { all[r].reset(); });
}

}  // namespace apitest
