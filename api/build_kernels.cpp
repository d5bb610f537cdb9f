// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Hits are found one after another on the caller's thread; the first miss brings a second thread,
// and so on.
#include "api/build_kernels.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "api/plan.h"
#include "api/tune_choices.h"

namespace lathe {

using Built = Result<std::shared_ptr<const BuiltKernel>>;

Result<std::vector<KernelSpec>> kernels_to_warm(const lathe_context& context,
                                                const lathe_problem& problem) {
  LATHE_ASSIGN(const Extents promised, promised_by(problem));
  DeviceFacts facts = facts_for(context, problem);
  LATHE_ASSIGN(const auto work, make_work(problem, promised, facts));
  std::vector<KernelSpec> specs = work->specs();
  // Ranks that are connected make their plans together, and know what they share.
  const bool line = problem.group && problem.group->group && !problem.group->group->connected();
  if (!line || facts.choices || !context.tuned) return specs;
  facts.choices = context.tuned;
  LATHE_ASSIGN(const auto tuned, make_work(problem, promised, facts));
  for (const KernelSpec& spec : tuned->specs()) {
    const auto same = [&](const KernelSpec& each) { return each.text() == spec.text(); };
    if (std::none_of(specs.begin(), specs.end(), same)) specs.push_back(spec);
  }
  return specs;
}

Built build_safely(lathe_context& context, const KernelSpec& spec, const Busy& busy) {
  try {
    return build_counted(context, spec, busy);
  } catch (const std::exception& error) {
    return Status(Code::internal, error.what());
  }
}

Result<std::vector<std::shared_ptr<const BuiltKernel>>> build_kernels(
    lathe_context& context, const std::vector<KernelSpec>& specs, int most) {
  // Equal ones after the others: which of them was compiled does not depend on threads then.
  std::unordered_map<std::string, size_t> seen;
  std::vector<size_t> distinct, repeated;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool fresh = specs.size() == 1 || seen.emplace(specs[i].text(), i).second;
    (fresh ? distinct : repeated).push_back(i);
  }
  std::vector<std::optional<Built>> results(specs.size());
  work_through(distinct.size(), most, [&](size_t item, const Busy& busy) {
    const size_t i = distinct[item];
    results[i] = build_safely(context, specs[i], busy);
    return results[i]->ok();
  });
  // Whatever stands before a failure was begun before it, and has ended.
  for (const size_t i : distinct) {
    if (results[i]) LATHE_TRY(*results[i]);
  }
  for (const size_t i : repeated) {
    results[i] = build_counted(context, specs[i]);
    LATHE_TRY(*results[i]);
  }
  std::vector<std::shared_ptr<const BuiltKernel>> out;
  for (const auto& result : results) out.push_back(**result);
  return out;
}

}  // namespace lathe
