// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads on one context, each with its group, its stream and its part of the tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tests/api/kda_case.h"

namespace apitest {
namespace {

using ref::Array;

struct Rank {
  KdaSeat seat;
  KdaValues values;
  std::exception_ptr error;
};

int64_t rows_of(const KdaCase& kda) { return kda.cu_seqlens.empty() ? kda.batch : 1; }

// Chunks of a row before token `until`.
int64_t chunks_before(const KdaCase& kda, int64_t until) {
  const std::vector<int64_t> fixed = {0, kda.tokens};
  const std::vector<int64_t>& begin = kda.cu_seqlens.empty() ? fixed : kda.cu_seqlens;
  int64_t chunks = 0;
  for (size_t n = 0; n + 1 < begin.size(); ++n) {
    const int64_t tokens = std::min(begin[n + 1], until) - begin[n];
    if (tokens > 0) chunks += (tokens + kda.chunk - 1) / kda.chunk;
  }
  return chunks;
}

void run_rank(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs,
              const std::vector<int64_t>& bounds, int number,
              const std::array<char, LATHE_UNIQUE_ID_BYTES>& id, unsigned flags, Rank& out) {
  lathe_group* group = nullptr;
  try {
    const int world = static_cast<int>(bounds.size()) - 1;
    API(lathe_group_create(&group, context, id.data(), world, number, 20000));
    const Group owner(group);
    lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
    options.world = world, options.rank = number;
    options.length = bounds.back(), options.bounds = bounds.data();
    if (!kda.cu_seqlens.empty()) options.cu_seqlens = kda.cu_seqlens.data();
    options.offsets = kda.cu_seqlens.size();
    lathe_shard* shard = nullptr;
    API(lathe_shard_create_with(&shard, &options));
    const Shard shard_owner(shard);
    const Stream stream(context);
    const int64_t begin = bounds[number], end = bounds[number + 1];
    out.seat = {group,        shard,       flags,
                stream.get(), end - begin, chunks_before(kda, end) - chunks_before(kda, begin),
                kda.captured};
    KdaCase own = kda;
    own.seat = &out.seat;
    try {
      out.values = run_kda(context, own, kda_part(kda, inputs, begin, end));
    } catch (...) {
      (void)lathe_group_abort(group);  // the others would wait for this rank
      throw;
    }
  } catch (...) {
    out.error = std::current_exception();
  }
}

// Pieces [rows, each of a rank] side by side.
Array join(const KdaCase& kda, const std::vector<Rank>& ranks, const std::string& name) {
  Array all;
  for (int64_t row = 0; row < rows_of(kda); ++row) {
    for (const Rank& rank : ranks) {
      const Array& values = rank.values.at(name);
      const auto each = static_cast<std::ptrdiff_t>(values.size()) / rows_of(kda);
      const auto from = values.begin() + row * each;
      all.insert(all.end(), from, from + each);
    }
  }
  return all;
}

// A state is written by its owner whole and by nobody else at all; without any token by everybody.
Array owned(const KdaCase& kda, const std::vector<Rank>& ranks, const std::string& name,
            bool no_tokens) {
  const auto state = static_cast<std::ptrdiff_t>(kda.value_heads() * kda.key_dim * kda.value_dim);
  Array all(static_cast<size_t>(kda.sequences() * state));
  for (int64_t n = 0; n < kda.sequences(); ++n) {
    size_t owners = 0;
    for (const Rank& rank : ranks) {
      const auto from = rank.values.at(name).begin() + n * state;
      const auto unwritten =
          std::count_if(from, from + state, [](double x) { return std::isnan(x); });
      if (unwritten == state) continue;
      std::copy(from, from + state, all.begin() + n * state);
      ++owners;
    }
    if (owners == (no_tokens ? ranks.size() : 1)) continue;
    throw std::runtime_error(name + " of sequence " + std::to_string(n) + " was written by " +
                             std::to_string(owners) + " ranks");
  }
  return all;
}

Array added(const std::vector<Rank>& ranks, const std::string& name, bool reduced) {
  Array sum = ranks[0].values.at(name);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Array& values = ranks[r].values.at(name);
    if (reduced && values != sum) {
      throw std::runtime_error(name + " of rank " + std::to_string(r) +
                               " is not that of rank 0 after the reduction");
    }
    for (size_t i = 0; i < sum.size() && !reduced; ++i) sum[i] += values[i];
  }
  return sum;
}

}  // namespace

KdaInputs kda_part(const KdaCase& kda, const KdaInputs& inputs, int64_t begin, int64_t end) {
  KdaInputs out = inputs;
  ref::Kda& a = out.kda;
  for (Array* each : {&a.q, &a.k, &a.v, &a.g, &a.beta, &a.d_o}) {
    const auto row = static_cast<std::ptrdiff_t>(each->size()) / rows_of(kda);
    const int64_t tokens = kda.cu_seqlens.empty() ? kda.tokens : kda.cu_seqlens.back();
    const auto token = tokens == 0 ? 0 : row / tokens;
    Array part;
    for (int64_t b = 0; b < rows_of(kda); ++b) {
      const auto from = each->begin() + b * row;
      part.insert(part.end(), from + begin * token, from + end * token);
    }
    *each = std::move(part);
  }
  return out;
}

KdaValues run_kda_ranks(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs,
                        const std::vector<int64_t>& parts, unsigned flags) {
  std::vector<int64_t> bounds(parts.size() + 1, 0);
  std::partial_sum(parts.begin(), parts.end(), bounds.begin() + 1);
  if (bounds.back() != kda.rows() / rows_of(kda)) {
    throw std::logic_error("the parts are not the whole");
  }
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(context, id.data()));
  std::vector<Rank> ranks(parts.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < parts.size(); ++r) {
    threads.emplace_back([&, r] {
      run_rank(context, kda, inputs, bounds, static_cast<int>(r), id, flags, ranks[r]);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Rank& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
  }
  KdaValues out;
  for (const auto& [name, unused] : ranks[0].values) {
    if (name == "final_state" || name == "dinitial_state") {
      out[name] = owned(kda, ranks, name, bounds.back() == 0);
    } else if (name == "dA_log" || name == "ddt_bias") {
      out[name] = added(ranks, name, (flags & LATHE_REDUCE_PARAMETER_GRADS) != 0);
    } else {
      out[name] = join(kda, ranks, name);
    }
  }
  return out;
}

}  // namespace apitest
