// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a plan makes of a shard before its first run. All ranks come here with the same: a rank that
// is about to do something else is found out now, by name, where later it would be a hang.
#include "api/boundary.h"
#include "api/plan.h"
#include "collective/agreement.h"
#include "ops/group.h"

namespace lathe {
namespace {

// Every rank's intervals, one after another, each list behind its length.
std::vector<int64_t> flat(const ShardLayout& layout) {
  std::vector<int64_t> out;
  for (const std::vector<Interval>& intervals : layout) {
    out.push_back(static_cast<int64_t>(intervals.size()));
    for (const Interval& each : intervals) {
      out.push_back(each.begin);
      out.push_back(each.end);
    }
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

Status prepare(lathe_shard* shard, const lathe_plan* plan) {
  LATHE_TRY(require(shard, "shard"));
  LATHE_TRY(require(plan, "plan"));
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
}

// Without the axes of which each rank may have declared its own part.
std::string extents_text(const Declared& declared) {
  std::string out;
  for (int axis = 0; axis < declared.shape.rank; ++axis) {
    const auto at = static_cast<size_t>(axis);
    const Dim dim = declared.shape.dims[at].dim;
    const bool cut =
        dim == Dim::T || dim == Dim::Sq || dim == Dim::Tq || dim == Dim::Sk || dim == Dim::Tk;
    if (!cut) out += text(" ", declared.extents[at]);
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

extern "C" lathe_status lathe_shard_prepare(lathe_shard* shard, const lathe_plan* plan) {
  return boundary([&] { return prepare(shard, plan); });
}
