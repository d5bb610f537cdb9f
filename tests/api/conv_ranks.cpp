// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with a context of its own, as processes would have.
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tests/api/conv_case.h"
#include "tests/numbers.h"

namespace apitest {
namespace {

struct Rank {
  Values values;
  std::exception_ptr error;
};

void run_rank(const ConvCase& conv, const ref::Conv& inputs, const std::vector<int64_t>& bounds,
              int rank, const std::array<char, LATHE_UNIQUE_ID_BYTES>& id, unsigned flags,
              Rank& out) {
  try {
    const int world = static_cast<int>(bounds.size()) - 1;
    const auto context = make_context();
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context.get(), id.data(), world, rank, 20000));
    const Group owner(group);
    lathe_shard* shard = nullptr;
    API(lathe_shard_create(&shard, world, rank, conv.tokens, bounds.data()));
    const Shard shard_owner(shard);
    out.values = ConvRun(context.get(), conv, inputs, group, shard, flags)();
    API(lathe_group_error(group));
  } catch (...) {
    out.error = std::current_exception();
  }
}

// Rank outputs [batch, part, channels] side by side.
std::vector<double> join(const ConvCase& conv, const std::vector<Rank>& ranks,
                         const std::vector<int64_t>& bounds, const std::string& name) {
  std::vector<double> all(static_cast<size_t>(conv.batch * conv.tokens * conv.channels));
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int64_t part = (bounds[r + 1] - bounds[r]) * conv.channels;
    const auto& values = ranks[r].values.at(name);
    for (int64_t b = 0; b < conv.batch; ++b) {
      const auto from = values.begin() + b * part;
      std::copy(from, from + part, all.begin() + (b * conv.tokens + bounds[r]) * conv.channels);
    }
  }
  return all;
}

// Every row of a state is written by the rank that owns it and left as poison by the others; if
// there are no tokens at all, every rank writes the same.
std::vector<double> owned(const ConvCase& conv, const std::vector<Rank>& ranks,
                          const std::string& name) {
  const size_t row = static_cast<size_t>(conv.channels * conv.width);
  std::vector<double> all(static_cast<size_t>(conv.sequences()) * row);
  for (size_t n = 0; n < static_cast<size_t>(conv.sequences()); ++n) {
    int owners = 0;
    for (const auto& rank : ranks) {
      const auto from = rank.values.at(name).begin() + static_cast<ptrdiff_t>(n * row);
      const auto written =
          row - static_cast<size_t>(std::count_if(from, from + static_cast<ptrdiff_t>(row),
                                                  [](double value) { return std::isnan(value); }));
      if (written == 0) continue;
      const auto to = all.begin() + static_cast<ptrdiff_t>(n * row);
      if (owners++ > 0 && !std::equal(to, to + static_cast<ptrdiff_t>(row), from)) {
        throw std::runtime_error(name + " of sequence " + std::to_string(n) + " differs by rank");
      }
      std::copy(from, from + static_cast<ptrdiff_t>(row), to);
    }
    const int expected = conv.tokens == 0 ? static_cast<int>(ranks.size()) : 1;
    if (owners != expected) {
      throw std::runtime_error(name + " of sequence " + std::to_string(n) + " was written by " +
                               std::to_string(owners) + " ranks, expected " +
                               std::to_string(expected));
    }
  }
  return all;
}

std::vector<double> added(const std::vector<Rank>& ranks, const std::string& name, bool reduced) {
  std::vector<double> sum = ranks[0].values.at(name);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const auto& values = ranks[r].values.at(name);
    for (size_t i = 0; i < sum.size(); ++i) {
      if (reduced && values[i] != sum[i]) {
        throw std::runtime_error(name + " of rank " + std::to_string(r) +
                                 " differs from that of rank 0 after the reduction");
      }
      if (!reduced) sum[i] += values[i];
    }
  }
  return sum;
}

}  // namespace

Values run_conv_ranks(const ConvCase& conv, const ref::Conv& inputs,
                      const std::vector<int64_t>& parts, unsigned flags) {
  std::vector<int64_t> bounds(parts.size() + 1, 0);
  std::partial_sum(parts.begin(), parts.end(), bounds.begin() + 1);
  if (bounds.back() != conv.tokens) throw std::logic_error("the parts are not the whole");
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  std::vector<Rank> ranks(parts.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < parts.size(); ++r) {
    threads.emplace_back(
        [&, r] { run_rank(conv, inputs, bounds, static_cast<int>(r), id, flags, ranks[r]); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
  }
  Values out;
  for (const auto& [name, unused] : ranks[0].values) {
    if (name == "y" || name == "dx") {
      out[name] = join(conv, ranks, bounds, name);
    } else if (name == "dweight" || name == "dbias") {
      out[name] = added(ranks, name, (flags & LATHE_REDUCE_PARAMETER_GRADS) != 0);
    } else {
      out[name] = owned(conv, ranks, name);
    }
  }
  return out;
}

}  // namespace apitest
