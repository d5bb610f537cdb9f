// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A step of an operator is a list of implementations. An implementation is one kernel for the step,
// made for some architectures or some cases. Those that support the case compete: the choices that
// were measured for the device decide, else the order of the list. What an implementation makes,
// its launcher, launches itself; nobody else asks which of them a plan has.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/base/invalid.h"
#include "codegen/choice.h"
#include "codegen/spec.h"

namespace lathe {

// Describes one implementation. Everything but the launcher is a pure function of integers: it
// needs no driver. `Launcher` is the step's own base class. It has the kernel's slot, and virtual
// functions for what differs: the blocks, workspace and cost of a call, and the launch, which fills
// the kernel's parameters and encodes its tensor maps from the tensors of the call.
template <typename Problem, typename Launcher>
struct Implementation {
  const char* family;  // "portable", or of one architecture alone, "sm90"
  // Returns why the implementation does not cover the case, as `explain` prints it; empty if it
  // does.
  std::string (*refusal)(const Problem&, const DeviceFacts&);
  // Returns the configurations worth trying, the default first; at least one if there is no
  // refusal.
  std::vector<KernelSpec> (*candidates)(const Problem&, const DeviceFacts&);
  // `tile` names the constants that a configuration fixes, beside the number of warps.
  std::vector<const char*> tile;
  std::unique_ptr<Launcher> (*make)(KernelSpec, const Problem&, const DeviceFacts&);
};

// The first implementation is the one to prefer. The last one's family covers most cases: a case
// that it does not support is not supported, for the reason that it gives.
template <typename Problem, typename Launcher>
using Implementations = std::span<const Implementation<Problem, Launcher>* const>;

template <typename Problem, typename Launcher, typename... More>
constexpr auto addresses_of(const Implementation<Problem, Launcher>& first, const More&... more) {
  return std::array{&first, &more...};
}

// Declares the implementations of a step, each of which a file of its own defines, and a function
// that returns them.
#define LATHE_STEP(Type, steps, ...)                          \
  extern const Type __VA_ARGS__;                              \
  inline std::span<const Type* const> steps() {               \
    static constexpr auto kSteps = addresses_of(__VA_ARGS__); \
    return kSteps;                                            \
  }

// Returns why a plan cannot take the implementation: what the caller asked for forbids its family,
// or it does not cover the case. Empty if a plan can.
template <typename Problem, typename Launcher>
std::string refusal_of(const Implementation<Problem, Launcher>& how, const Problem& problem,
                       const DeviceFacts& facts) {
  std::string refusal;
  if (how.family != std::string_view("portable")) refusal = facts.family_refusal();
  return refusal.empty() ? how.refusal(problem, facts) : refusal;
}

// Says in a spec which implementation it is of. `first_refusal` is why the step's first one was not
// taken; empty: the tuned choice is another.
template <typename Problem, typename Launcher>
void name_family(Implementations<Problem, Launcher> step,
                 const Implementation<Problem, Launcher>& how, const std::string& first_refusal,
                 KernelSpec* spec) {
  const std::string_view first = step.front()->family, last = step.back()->family;
  spec->family = how.family;
  spec->may_be_rejected = how.family != last;
  if (how.family == first) return;
  spec->family_reason =
      text("not ", first, ": ",
           first_refusal.empty() ? text("the tuned choice is a ", how.family, " kernel")
                                 : first_refusal);
}

// Returns the launcher of the implementation and the configuration that a plan takes. UNSUPPORTED
// if no implementation covers the case.
template <typename Launcher, typename Problem>
Result<std::unique_ptr<Launcher>> make_step(Implementations<Problem, Launcher> step,
                                            const Problem& problem, const DeviceFacts& facts) {
  std::vector<const Implementation<Problem, Launcher>*> able;
  std::vector<CandidateGroup> groups;
  std::string first_refusal, last_refusal;  // of the first one, and of the last one's family
  const bool measured = facts.choices && !facts.choices->silent();
  for (const auto* each : step) {
    const std::string refusal = refusal_of(*each, problem, facts);
    if (each == step.front()) first_refusal = refusal;
    const bool last = each->family == std::string_view(step.back()->family);
    if (last && last_refusal.empty()) last_refusal = refusal;
    if (!refusal.empty() || (!able.empty() && !measured)) continue;
    able.push_back(each);
    groups.push_back({each->candidates(problem, facts), each->tile});
  }
  if (able.empty()) return unsupported(last_refusal);
  const CandidateIndex chosen = pick(groups, facts);
  const auto* how = able[chosen.group];
  KernelSpec spec = std::move(groups[chosen.group].specs[chosen.spec]);
  name_family(step, *how, first_refusal, &spec);
  return how->make(std::move(spec), problem, facts);
}

}  // namespace lathe
