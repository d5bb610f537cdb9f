// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cuts sequence axes, prepares plans for a cut before their first run, and gives a rank's view of
// packed sequences. All ranks prepare with the same: a rank that is about to do something else is
// found out by name, where later it would be a hang.
#include "api/boundary.h"
#include "api/plan.h"
#include "api/shard_layout.h"
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

Status create(lathe_shard** out, const lathe_shard_options& options) {
  if (options.world < 1) {
    return invalid(text("world is ", options.world, ", but must be 1 or more"));
  }
  if (options.rank < 0 || options.rank >= options.world) {
    return invalid(text("rank is ", options.rank, "; allowed are 0 to ", options.world - 1));
  }
  auto shard = std::make_unique<lathe_shard>();
  shard->rank = options.rank;
  LATHE_ASSIGN(shard->layout, layout_of(options));
  // Intervals are pairs of offsets, as lathe_shard_intervals lends them.
  static_assert(sizeof(Interval) == 2 * sizeof(int64_t));
  *out = shard.release();
  return {};
}

Status agree_on(const lathe_plan& plan, const Layout& layout) {
  std::vector<NamedDigest> digests = {
      {"the operator", digest_of(std::string_view(plan.op->name))},
      {"the declared tensors", plan.digests.tensors},
      {"the options", plan.digests.options},
      {"the tuned choices", plan.digests.choices},
      {"the group's flags", uint64_t{plan.group_flags}},
  };
  add_digests(layout, &digests);
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

lathe_status lathe_shard_update(lathe_shard* shard, const lathe_shard_options* options,
                                void* stream) {
  return boundary({{shard, "shard"}, {options, "options"}}, [&]() -> Status {
    lathe_shard_options taken = LATHE_SHARD_OPTIONS_INIT;
    LATHE_TRY(take_sized(options, "options", &taken, offsetof(lathe_shard_options, ranges)));
    return update_layout(shard, taken, static_cast<CUstream>(stream));
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
    if (shard->layout.capacity) LATHE_TRY(plan->executor->check_capacity());
    LATHE_TRY(require_device(*plan->context, "a shard's preparation"));
    const Device::Scope scope(*plan->context->device);
    LATHE_TRY(scope.status());
    LATHE_TRY(agree_on(*plan, shard->layout));
    LATHE_ASSIGN(auto state, plan->executor->prepare(*shard));
    shard->states.push_back({plan->id, std::move(state)});
    if (!shard->group) shard->group = plan->group;
    return {};
  });
}

}  // extern "C"
