// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes plans and runs them. The run path allocates nothing and takes no lock.
#include "api/plan.h"

#include <algorithm>
#include <atomic>

#include "api/boundary.h"
#include "api/cache/build_kernels.h"
#include "api/cache/manifest.h"
#include "api/tune/tune_choices.h"
#include "cache/report.h"
#include "codegen/base/log.h"
#include "codegen/base/printable.h"
#include "ops/resolve.h"

namespace lathe {
namespace {

// Returns what speaks against a kernel that was compiled; empty if nothing does.
std::string rejection_of(const KernelSpec& spec, const BuiltKernel& built) {
  if (!spec.may_be_rejected) return {};
  const std::vector<std::string> found = losses(report_of(built.entry->metadata), kKeptBytes);
  if (found.empty()) return {};
  return text(spec.mods.empty() ? "" : "with these mods ", "the compiler reports ", found.front());
}

// Says whether a failure to build a kernel leaves another one to be tried: there is a compiler, and
// it failed.
bool leaves_others(const Status& failure, const lathe_context& context, const KernelSpec& spec) {
  return failure.code() == Code::compile_failed && spec.may_be_rejected &&
         context.registry->compiler_identity().ok();
}

// Chooses, compiles and loads. A mod, or an old compiler, may have ptxas spill registers of a
// kernel for Hopper, serialise its products or crash: then kernels are chosen again without that
// one. The cache has what was compiled for nothing too, so that a later plan compiles nothing,
// unless the compiler failed, which it may not do again.
Status take_kernels(lathe_plan* plan, const Resolved& resolved, DeviceFacts facts) {
  const lathe_problem* const asker = &resolved.problem;
  LATHE_ASSIGN(plan->executor, make_executor(resolved, facts));
  const std::vector<KernelSpec> specs = plan->executor->specs();
  size_t failed = 0;
  const auto kernels = build_kernels(*plan->context, specs, Load::yes, 0, &failed, asker);
  const size_t known = facts.rejected.size();
  if (!kernels.ok() && leaves_others(kernels.status(), *plan->context, specs[failed])) {
    log_message(LogLevel::warning, kernels.status().text());
    facts.reject(specs[failed].kernel, specs[failed].text(),
                 text(specs[failed].mods.empty() ? "" : "with these mods ", "the compiler fails"),
                 known);
  }
  for (size_t i = 0; kernels.ok() && i < kernels->size(); ++i) {
    const std::string reason = rejection_of(specs[i], *(*kernels)[i].built);
    if (!reason.empty()) facts.reject(specs[i].kernel, specs[i].text(), reason, known);
  }
  if (facts.rejected.size() > known) return take_kernels(plan, resolved, std::move(facts));
  LATHE_TRY(kernels.status());
  for (size_t i = 0; i < kernels->size(); ++i) {
    const auto& [built, loaded] = (*kernels)[i];
    plan->kernels.push_back({built, loaded, built->spec_text(), built->entry->key.digest.hex(),
                             specs[i].family_reason});
  }
  plan->executor->bind(plan->kernels);
  return {};
}

// Lets inputs repeat along a dimension, unless tensor maps, whose strides are never 0, are in use.
void allow_repeats(lathe_plan* plan) {
  const std::vector<KernelSpec> specs = plan->executor->specs();
  const bool mapped =
      std::ranges::any_of(specs, [](const KernelSpec& spec) { return !spec.tensor_maps.empty(); });
  for (Slot& slot : plan->slots) slot.repeats = !slot.written && !mapped;
}

Status check_shard(const lathe_plan& plan, const lathe_shard* shard, Call* call) {
  const int world = plan.group ? plan.group->world() : 1;
  if (!shard) {
    if (world == 1) return {};
    return invalid(text("the plan is for a group of ", world,
                        " ranks and needs a shard: use lathe_plan_run_sharded"));
  }
  LATHE_TRY(check_group_of(plan, *shard));
  for (int i = 0; i < kDimCount; ++i) {
    const auto dim = static_cast<Dim>(i);
    const TokenAxis axis = info_of(dim).axis;
    if (axis != TokenAxis::queries && axis != TokenAxis::keys) continue;
    const int64_t found = call->extents[dim];
    const int64_t held = axis == TokenAxis::keys ? shard->layout.key_rows(shard->rank)
                                                 : shard->layout.query_rows(shard->rank);
    if (found == kUnknown || found == held) continue;
    return invalid(text(name_of(dim), " is ", found, ", but the shard gives rank ", shard->rank,
                        " of ", world, " ", held,
                        shard->layout.capacity ? " rows (capacity_tokens)" : " tokens"));
  }
  call->shard = shard;
  call->shard_state = shard->find(plan.id);
  if (!shard->layout.capacity || call->shard_state != nullptr) return {};
  return invalid(
      "the shard has capacity_tokens and was not prepared for this plan: call lathe_shard_prepare "
      "first");
}

Status run(const lathe_plan* plan, const lathe_shard* shard, const DLTensor* const* slots,
           void* workspace, size_t workspace_bytes, void* stream) {
  LATHE_TRY(require(plan, "plan"));
  LATHE_TRY(require_ranks(*plan));
  LATHE_TRY(require_device(*plan->context, "a run"));
  Call call(plan->op->tensors.size());
  LATHE_TRY(prepare_call(*plan, shard, slots, Checks::all, &call));
  call.workspace = static_cast<char*>(workspace);
  call.workspace_bytes = workspace_bytes;
  call.stream = static_cast<CUstream>(stream);
  const Device::Scope scope(*plan->context->device);
  LATHE_TRY(scope.status());
  return plan->executor->run(call);
}

}  // namespace

Status require_ranks(const lathe_plan& plan) {
  if (!plan.group || plan.group->connected()) return {};
  return invalid(
      text("the plan is of a problem that was read from a line, which says no more of its "
           "group than its ",
           plan.group->world(),
           " ranks: give it a group (lathe_problem_group) before the plan is made"));
}

Result<Resolved> declared_by(const lathe_problem& problem) {
  LATHE_ASSIGN(Resolved resolved, resolve(problem));
  if (!problem.group) return resolved;
  for (int i = 0; i < kDimCount; ++i) {  // a rank has a shard of these
    if (kDims[i].axis != TokenAxis::none) resolved.extents[static_cast<Dim>(i)] = kUnknown;
  }
  return resolved;
}

Status check_group_of(const lathe_plan& plan, const lathe_shard& shard) {
  if (!plan.group) {
    return invalid("a shard was given, but the problem has no group (lathe_problem_group)");
  }
  const int world = plan.group->world();
  if (shard.layout.world() != world || shard.rank != plan.group->rank()) {
    return invalid(text("the shard is of rank ", shard.rank, " of ", shard.layout.world(),
                        ", the group of rank ", plan.group->rank(), " of ", world));
  }
  return {};
}

Status prepare_call(const lathe_plan& plan, const lathe_shard* shard, const DLTensor* const* slots,
                    Checks checks, Call* call) {
  const int ordinal = plan.context->device ? plan.context->device->ordinal() : 0;
  LATHE_TRY(read_call(*plan.op, plan.slots, plan.declared, slots, checks, ordinal, call));
  return check_shard(plan, shard, call);
}

}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_plan_create(lathe_plan** out, lathe_context* context,
                               const lathe_problem* problem) {
  return boundary({{out, "out"}, {context, "context"}, {problem, "problem"}}, [&]() -> Status {
    auto plan = std::make_unique<lathe_plan>();
    static std::atomic<uint64_t> plans = 0;
    plan->id = ++plans;
    plan->context = context;
    plan->op = problem->op;
    LATHE_ASSIGN(const Resolved resolved, declared_by(*problem));
    plan->declared = resolved.extents;
    plan->slots = make_slots(resolved);
    if (problem->group) {
      const lathe_context* of = problem->group->context;
      if (of != nullptr && of != context) {
        return invalid("the problem's group was made in another context than the plan");
      }
      plan->group = problem->group->group;
      plan->group_flags = problem->group_flags;
      plan->digests = digests_of(*problem);
    }
    const Status loaded = take_kernels(plan.get(), resolved, facts_for(*context, *problem));
    const bool known = loaded.ok() || loaded.code() == Code::not_cached;
    if (known && context->recorder) context->recorder->note(*problem);
    LATHE_TRY(with_problem(loaded, *problem));
    allow_repeats(plan.get());
    *out = plan.release();
    return {};
  });
}

void lathe_plan_destroy(lathe_plan* plan) { delete plan; }

lathe_status lathe_plan_slot(const lathe_plan* plan, const char* name, size_t* out) {
  return boundary({{plan, "plan"}, {name, "name"}, {out, "out"}}, [&]() -> Status {
    const auto found = std::ranges::find(plan->slots, std::string_view(name), &Slot::name);
    if (found == plan->slots.end()) {
      return invalid(text("the plan has no tensor ", in_quotes(name), "; declared are ",
                          comma_list(plan->slots, &Slot::name)));
    }
    *out = static_cast<size_t>(found - plan->slots.begin());
    return {};
  });
}

size_t lathe_plan_slot_count(const lathe_plan* plan) { return plan ? plan->slots.size() : 0; }

lathe_status lathe_plan_workspace(const lathe_plan* plan, const DLTensor* const* slots,
                                  const lathe_shard* shard, size_t* out_bytes) {
  return boundary({{plan, "plan"}, {out_bytes, "out_bytes"}}, [&]() -> Status {
    Call call;
    LATHE_TRY(prepare_call(*plan, shard, slots, Checks::shapes, &call));
    LATHE_ASSIGN(*out_bytes, plan->executor->workspace_bytes(call));
    return {};
  });
}

lathe_status lathe_plan_run(const lathe_plan* plan, const DLTensor* const* slots, void* workspace,
                            size_t workspace_bytes, void* stream) {
  return boundary([&] { return run(plan, nullptr, slots, workspace, workspace_bytes, stream); });
}

lathe_status lathe_plan_run_sharded(const lathe_plan* plan, const lathe_shard* shard,
                                    const DLTensor* const* slots, void* workspace,
                                    size_t workspace_bytes, void* stream) {
  return boundary({{shard, "shard"}},
                  [&] { return run(plan, shard, slots, workspace, workspace_bytes, stream); });
}

}  // extern "C"
