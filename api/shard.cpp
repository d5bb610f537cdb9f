// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cuts sequence axes, prepares plans for a cut before their first run, and gives a rank's view of
// packed sequences. All ranks prepare with the same: a rank that is about to do something else is
// found out by name, where later it would be a hang.
#include "api/boundary.h"
#include "api/plan.h"
#include "collective/agreement.h"
#include "ops/group.h"

namespace lathe {
namespace {

Status require_contiguous(const lathe_shard& shard, const char* function) {
  if (shard.layout.contiguous()) return {};
  return invalid(text(function,
                      " needs a shard of contiguous parts in rank order; this one has others "
                      "(lathe_shard_intervals)"));
}

// Returns the intervals of an axis that the shard's rank holds.
Result<const std::vector<Interval>*> intervals_of(const lathe_shard& shard, lathe_axis axis) {
  if (axis == LATHE_QUERIES) return &shard.layout.queries[shard.rank];
  if (axis == LATHE_KEYS) return &shard.layout.keys[shard.rank];
  return invalid(text("axis is ", static_cast<int>(axis),
                      "; allowed are LATHE_QUERIES (0) and LATHE_KEYS (1)"));
}

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

Status create(lathe_shard** out, const lathe_shard_options& options) {
  if (options.world < 1) {
    return invalid(text("world is ", options.world, ", but must be 1 or more"));
  }
  if (options.rank < 0 || options.rank >= options.world) {
    return invalid(text("rank is ", options.rank, "; allowed are 0 to ", options.world - 1));
  }
  auto shard = std::make_unique<lathe_shard>();
  shard->rank = options.rank;
  LATHE_ASSIGN(const LayoutOptions wanted, layout_options(options));
  LATHE_ASSIGN(shard->layout, make_layout(wanted));
  // Intervals are pairs of offsets, as lathe_shard_intervals lends them.
  static_assert(sizeof(Interval) == 2 * sizeof(int64_t));
  *out = shard.release();
  return {};
}

// Returns every rank's intervals, one after another, each list behind its length.
std::vector<int64_t> flat(const ShardLayout& layout) {
  std::vector<int64_t> out;
  for (const std::vector<Interval>& intervals : layout) {
    out.push_back(static_cast<int64_t>(intervals.size()));
    for (const auto& [begin, end] : intervals) out.insert(out.end(), {begin, end});
  }
  return out;
}

Status agree_on(const lathe_plan& plan, const Layout& layout) {
  const auto number = [](int64_t value) { return static_cast<uint64_t>(value); };
  const NamedDigest digests[] = {
      {"the operator", digest_of(std::string_view(plan.op->name))},
      {"the declared tensors", plan.digests.tensors},
      {"the options", plan.digests.options},
      {"the tuned choices", plan.digests.choices},
      {"the group's flags", number(plan.group_flags)},
      {"length", number(layout.length)},
      {"key_length", number(layout.key_length)},
      {"cu_seqlens", digest_of(std::span(layout.cu_seqlens))},
      {"cu_seqlens_k", digest_of(std::span(layout.cu_seqlens_k))},
      {"balance", number(static_cast<int64_t>(layout.balance))},
      {"the cut of queries", digest_of(std::span<const int64_t>(flat(layout.queries)))},
      {"the cut of keys", digest_of(std::span<const int64_t>(flat(layout.keys)))},
  };
  return agree(*plan.group, digests);
}

// Without the axes of which each rank may have declared its own part.
std::string extents_text(const Declared& declared) {
  std::string out;
  for (int axis = 0; axis < declared.shape.rank; ++axis) {
    const TokenAxis cut = info_of(declared.shape.dims[axis].dim).axis;
    if (cut == TokenAxis::queries || cut == TokenAxis::keys) continue;
    out += text(" ", declared.extents[axis]);
  }
  return out;
}

}  // namespace

PlanDigests digests_of(const lathe_problem& problem) {
  std::string tensors, options;
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    tensors += text(problem.op->tensors[i].name, " ", word(declared.dtype), " ",
                    shape_text(declared.shape), extents_text(declared), "\n");
  }
  for (size_t i = 0; i < problem.op->options.size(); ++i) {
    const auto& option = problem.op->options[i];
    options += text(option.name, "=", problem.option(option.name), "\n");
  }
  for (const Mod& mod : problem.mods) options += mod.text + "\n";
  return {digest_of(tensors), digest_of(options),
          problem.group ? problem.group->choices_digest : 0};
}

}  // namespace lathe

using namespace lathe;

const lathe::ShardState* lathe_shard::find(uint64_t plan) const {
  for (const ForPlan& each : states) {
    if (each.plan == plan) return each.state.get();
  }
  return nullptr;
}

extern "C" {

lathe_status lathe_shard_create(lathe_shard** out, int world, int rank, int64_t length,
                                const int64_t* bounds) {
  return boundary({{out, "out"}}, [&] {
    return create(
        out, {.world = world, .rank = rank, .length = length, .key_length = -1, .bounds = bounds});
  });
}

lathe_status lathe_shard_create_with(lathe_shard** out, const lathe_shard_options* options) {
  return boundary({{out, "out"}, {options, "options"}}, [&]() -> Status {
    lathe_shard_options taken = LATHE_SHARD_OPTIONS_INIT;
    constexpr size_t kLeast = offsetof(lathe_shard_options, ranges);  // before tables of ranges
    LATHE_TRY(take_sized(options, "options", &taken, kLeast));
    return create(out, taken);
  });
}

void lathe_shard_destroy(lathe_shard* shard) { delete shard; }

lathe_status lathe_shard_range(const lathe_shard* shard, int64_t* begin, int64_t* end) {
  return boundary({{shard, "shard"}, {begin, "begin"}, {end, "end"}}, [&]() -> Status {
    LATHE_TRY(require_contiguous(*shard, "lathe_shard_range"));
    const Interval part = shard->layout.partition.part(shard->rank);
    *begin = part.begin;
    *end = part.end;
    return {};
  });
}

lathe_status lathe_shard_indices(const lathe_shard* shard, lathe_axis axis, int32_t* out,
                                 size_t count) {
  return boundary({{shard, "shard"}}, [&]() -> Status {
    LATHE_ASSIGN(const auto* mine, intervals_of(*shard, axis));
    const auto tokens = static_cast<size_t>(total_size(*mine));
    if (tokens > count) {
      return invalid(
          text("count is ", count, ", but rank ", shard->rank, " holds ", tokens, " tokens"));
    }
    if (tokens > 0) LATHE_TRY(require(out, "out"));
    for (const Interval& each : *mine) {
      for (int64_t t = each.begin; t < each.end; ++t) *out++ = static_cast<int32_t>(t);
    }
    return {};
  });
}

lathe_status lathe_shard_intervals(const lathe_shard* shard, lathe_axis axis,
                                   const int64_t** begin_end, size_t* count) {
  return boundary({{shard, "shard"}, {begin_end, "begin_end"}, {count, "count"}}, [&]() -> Status {
    LATHE_ASSIGN(const auto* mine, intervals_of(*shard, axis));
    *begin_end = reinterpret_cast<const int64_t*>(mine->data());
    *count = mine->size();
    return {};
  });
}

lathe_status lathe_shard_view_of(lathe_shard* shard, const int64_t* cu_seqlens, size_t count,
                                 lathe_shard_view* out) {
  return boundary({{shard, "shard"}, {cu_seqlens, "cu_seqlens"}}, [&]() -> Status {
    LATHE_TRY(check_sized(out));
    LATHE_TRY(require_contiguous(*shard, "lathe_shard_view_of"));
    const Partition& partition = shard->layout.partition;
    const std::vector<int64_t> offsets(cu_seqlens, cu_seqlens + count);
    LATHE_ASSIGN(auto contexts, part_contexts(offsets, partition));
    shard->view = std::move(contexts[shard->rank]);
    const PartContext& found = shard->view;
    return give_sized({.cu_seqlens = found.cu_seqlens.data(),
                       .sequence_ids = found.seq_ids.data(),
                       .sequences = found.seq_ids.size(),
                       .pre = found.pre,
                       .post = found.post,
                       .is_first = found.is_first,
                       .is_last = found.is_last,
                       .pre_tokens = found.pre_tokens},
                      out);
  });
}

lathe_status lathe_shard_prepare(lathe_shard* shard, const lathe_plan* plan) {
  return boundary({{shard, "shard"}, {plan, "plan"}}, [&]() -> Status {
    LATHE_TRY(check_group_of(*plan, *shard));
    LATHE_TRY(require_ranks(*plan));
    for (const lathe_shard::ForPlan& each : shard->states) {
      if (each.plan == plan->id) return {};
    }
    LATHE_TRY(require_device(*plan->context, "a shard's preparation"));
    const Device::Scope scope(*plan->context->device);
    LATHE_TRY(scope.status());
    LATHE_TRY(agree_on(*plan, shard->layout));
    LATHE_ASSIGN(auto state, plan->executor->prepare(*shard));
    shard->states.push_back({plan->id, std::move(state)});
    return {};
  });
}

}  // extern "C"
