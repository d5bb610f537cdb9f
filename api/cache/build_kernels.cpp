// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Hits are found one after another on the caller's thread; the first miss brings a second thread,
// and so on.
#include "api/cache/build_kernels.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include "api/plan.h"
#include "api/tune/tune_choices.h"

namespace lathe {

using Built = Result<std::shared_ptr<const BuiltKernel>>;

Result<std::vector<KernelSpec>> kernels_to_warm(const lathe_context& context,
                                                const lathe_problem& problem) {
  LATHE_ASSIGN(const Resolved resolved, declared_by(problem));
  DeviceFacts facts = facts_for(context, problem);
  LATHE_ASSIGN(const auto executor, make_executor(resolved, facts));
  std::vector<KernelSpec> specs = executor->specs();
  // Ranks that are connected make their plans together, and know what they share.
  const bool line = problem.group && problem.group->group && !problem.group->group->connected();
  if (!line || facts.choices || !context.tuned) return specs;
  facts.choices = context.tuned;
  LATHE_ASSIGN(const auto tuned, make_executor(resolved, facts));
  for (const KernelSpec& spec : tuned->specs()) {
    const auto same = [&](const KernelSpec& each) { return each.text() == spec.text(); };
    if (std::none_of(specs.begin(), specs.end(), same)) specs.push_back(spec);
  }
  return specs;
}

Built build_safely(lathe_context& context, const KernelSpec& spec, const Busy& busy) {
  return guarded([&] { return build_counted(context, spec, busy); });
}

namespace {

// Puts equal specs behind the others: which of them was compiled does not depend on threads then.
struct Order {
  std::vector<size_t> distinct, repeated;
};

Order order_of(const std::vector<KernelSpec>& specs) {
  Order order;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto same = [&](size_t other) {
      return specs[other].kernel == specs[i].kernel && specs[other].text() == specs[i].text();
    };
    const auto& earlier = order.distinct;
    const bool fresh = std::none_of(earlier.begin(), earlier.end(), same);
    (fresh ? order.distinct : order.repeated).push_back(i);
  }
  return order;
}

using BuiltList = std::vector<std::optional<Built>>;

// Builds those of `order.distinct`; `done(item)` follows each that succeeds, on its thread.
Status build_distinct(lathe_context& context, const std::vector<KernelSpec>& specs,
                      const Order& order, int most, BuiltList* results,
                      const std::function<bool(size_t)>& done) {
  work_through(order.distinct.size(), most, [&](size_t item, const Busy& busy) {
    const size_t i = order.distinct[item];
    (*results)[i] = build_safely(context, specs[i], busy);
    return (*results)[i]->ok() && done(item);
  });
  // Whatever stands before a failure was begun before it, and has ended.
  for (const size_t i : order.distinct) {
    if ((*results)[i]) LATHE_TRY(*(*results)[i]);
  }
  return {};
}

}  // namespace

Result<std::vector<std::shared_ptr<const BuiltKernel>>> build_kernels(
    lathe_context& context, const std::vector<KernelSpec>& specs, int most) {
  const Order order = order_of(specs);
  BuiltList results(specs.size());
  LATHE_TRY(build_distinct(context, specs, order, most, &results, [](size_t) { return true; }));
  for (const size_t i : order.repeated) {
    results[i] = build_counted(context, specs[i]);
    LATHE_TRY(*results[i]);
  }
  std::vector<std::shared_ptr<const BuiltKernel>> out;
  for (const auto& result : results) out.push_back(**result);
  return out;
}

Result<std::vector<LoadedKernel>> load_kernels(lathe_context& context,
                                               const std::vector<KernelSpec>& specs) {
  const Order order = order_of(specs);
  BuiltList results(specs.size());
  std::vector<LoadedKernel> out(specs.size());
  const auto load = [&](size_t i) -> Status {
    out[i].built = std::move(**results[i]);
    if (!context.device) return {};
    LATHE_ASSIGN(out[i], context.registry->load(*out[i].built));
    return {};
  };
  // In the order of the plan and by this thread alone, which finds what is cached.
  const auto caller = std::this_thread::get_id();
  size_t loaded = 0;
  Status failure;
  const auto load_next = [&](size_t item) {
    if (std::this_thread::get_id() != caller || item != loaded) return true;
    ++loaded;
    failure = guarded([&] { return load(order.distinct[item]); });
    return failure.ok();
  };
  const Status built = build_distinct(context, specs, order, 0, &results, load_next);
  LATHE_TRY(failure);
  LATHE_TRY(built);
  for (; loaded < order.distinct.size(); ++loaded) LATHE_TRY(load(order.distinct[loaded]));
  for (const size_t i : order.repeated) {
    results[i] = build_counted(context, specs[i]);
    LATHE_TRY(*results[i]);
    LATHE_TRY(load(i));
  }
  return out;
}

}  // namespace lathe
