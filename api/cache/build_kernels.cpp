// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Hits are found one after another on the caller's thread; the first miss brings a second thread,
// and so on.
#include "api/cache/build_kernels.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "api/cache/workers.h"

namespace lathe {

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

}  // namespace

Result<std::vector<LoadedKernel>> build_kernels(lathe_context& context,
                                                const std::vector<KernelSpec>& specs, Load load,
                                                int most, size_t* failed,
                                                const lathe_problem* asker) {
  const Order order = order_of(specs);
  std::vector<std::optional<Result<std::shared_ptr<const BuiltKernel>>>> results(specs.size());
  std::vector<LoadedKernel> out(specs.size());
  const auto take = [&](size_t i) -> Status {
    out[i].built = std::move(**results[i]);
    if (load == Load::no || !context.device) return {};
    LATHE_ASSIGN(out[i], context.registry->load(*out[i].built));
    return {};
  };
  // This thread alone loads kernels, in the order of the plan: it finds what is cached.
  const auto caller = std::this_thread::get_id();
  size_t taken = 0;
  Status failure;
  work_through(order.distinct.size(), most, [&](size_t item, const Busy& busy) {
    const size_t i = order.distinct[item];
    results[i] = guarded([&] { return build_counted(context, specs[i], busy, asker); });
    if (!results[i]->ok()) return false;
    if (std::this_thread::get_id() != caller || item != taken) return true;
    ++taken;
    failure = guarded([&] { return take(i); });
    return failure.ok();
  });
  LATHE_TRY(failure);
  // Whatever stands before a failure was begun before it, and has ended.
  for (const size_t i : order.distinct) {
    if (!results[i] || results[i]->ok()) continue;
    if (failed) *failed = i;
    return results[i]->status();
  }
  for (; taken < order.distinct.size(); ++taken) LATHE_TRY(take(order.distinct[taken]));
  for (const size_t i : order.repeated) {
    results[i] = build_counted(context, specs[i], {}, asker);
    LATHE_TRY(*results[i]);
    LATHE_TRY(take(i));
  }
  return out;
}

}  // namespace lathe
