// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of many problems for many architectures: each is built once, however many need it.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "api/boundary.h"
#include "api/cache/build_kernels.h"
#include "api/cache/manifest.h"
#include "api/cache/workers.h"
#include "api/plan.h"
#include "api/tune/tune_choices.h"
#include "codegen/nvrtc_library.h"
#include "codegen/source.h"

struct lathe_warming {
  struct Kernel {
    lathe_context* context = nullptr;
    size_t item = 0;  // the first that needs it
    lathe::KernelSpec spec;
    std::string spec_text, key;  // the key once it is built
    const char* from = "";       // "" before
    lathe::Status status;
    double milliseconds = 0;

    bool done() const { return *from != '\0' || !status.ok(); }
  };
  struct Item {
    std::string op, arch;
    lathe::Status status;         // that of choosing kernels
    std::vector<size_t> kernels;  // numbers, each once
  };
  std::vector<Item> items;
  std::vector<Kernel> kernels;
  std::map<std::string, size_t> known;  // by where it goes, architecture and emitted unit
};

namespace lathe {
namespace {

using WarmKernel = lathe_warming::Kernel;
using WarmItem = lathe_warming::Item;

// From this version on ptxas makes no kernel for Hopper slow that has no mods: tests compile them
// all. Older ones spill registers of some and serialise products of others.
constexpr CompilerVersion kCleanCompiler = {12, 9};

// Says whether a plan may find that the kernel is slow. Where nothing is compiled the cache has
// what somebody else's warming found.
bool may_turn_out_slow(const lathe_context& context, const KernelSpec& spec) {
  if (!spec.may_be_rejected) return false;
  if (!spec.mods.empty()) return true;
  const auto identity = context.registry->compiler_identity();
  return identity.ok() && version_of_identity(*identity) < kCleanCompiler;
}

// Returns the specs that plans of the problem in the context are made of; nothing is compiled. If
// the problem was read from a line and names a group, choices follow the rules and what is tuned
// here, which its ranks may come to share.
Result<std::vector<KernelSpec>> kernels_to_warm(const lathe_context& context,
                                                const lathe_problem& problem) {
  LATHE_ASSIGN(const Resolved resolved, declared_by(problem));
  DeviceFacts facts = facts_for(context, problem);
  LATHE_ASSIGN(const auto executor, make_executor(resolved, facts));
  std::vector<KernelSpec> specs = executor->specs();
  const auto add = [&specs](const Executor& other) {
    for (const KernelSpec& spec : other.specs()) {
      const bool there = std::ranges::find(specs, spec.text(), &KernelSpec::text) != specs.end();
      if (!there) specs.push_back(spec);
    }
  };
  // A plan takes these instead of a kernel that turns out slow.
  DeviceFacts without = facts;
  std::vector<KernelSpec> tried = specs;
  while (true) {
    const size_t known = without.rejected.size();
    for (const KernelSpec& spec : tried) {
      if (may_turn_out_slow(context, spec)) {
        without.reject(spec.kernel, spec.text(), "the compiler may make it slow", known);
      }
    }
    if (without.rejected.size() == known) break;
    LATHE_ASSIGN(const auto instead, make_executor(resolved, without));
    add(*instead);
    tried = instead->specs();
  }
  // Ranks that are connected make their plans together, and know what they share.
  const bool line = problem.group && problem.group->group && !problem.group->group->connected();
  if (!line || facts.choices || !context.tuned) return specs;
  facts.choices = context.tuned;
  LATHE_ASSIGN(const auto tuned, make_executor(resolved, facts));
  add(*tuned);
  return specs;
}

// Contexts of one directory share what is in it; what is kept in memory is each context's own.
std::string name_of(const lathe_context& context, const KernelSpec& spec) {
  const std::string& root = context.store->root();
  const std::string place = root.empty() ? text(&context) : root;
  return text(place, "\n", context.facts.arch, "\n", emit_unit(spec, context.facts.arch));
}

Status add_kernels(lathe_warming* warming, lathe_context* context, const lathe_problem& problem,
                   WarmItem* item) {
  LATHE_ASSIGN(const std::vector<KernelSpec> specs, kernels_to_warm(*context, problem));
  for (const KernelSpec& spec : specs) {
    const auto [found, fresh] =
        warming->known.emplace(name_of(*context, spec), warming->kernels.size());
    if (fresh) warming->kernels.push_back({context, warming->items.size(), spec, spec.text()});
    auto& all = item->kernels;
    if (std::ranges::find(all, found->second) == all.end()) all.push_back(found->second);
  }
  return {};
}

// `busy` brings further threads.
void build_one(WarmKernel* kernel, const Busy& busy) {
  const auto start = std::chrono::steady_clock::now();
  const auto built =
      guarded([&] { return build_counted(*kernel->context, kernel->spec, busy, nullptr); });
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  kernel->milliseconds = spent.count();
  kernel->status = built.status();
  if (!built.ok()) return;
  kernel->from = word((*built)->origin);
  kernel->key = (*built)->entry->key.digest.hex();
}

bool was_compiled(const WarmKernel& kernel) {
  return std::string_view(kernel.from) == word(Origin::compiler);
}

lathe_warming_item_info describe(const lathe_warming& warming, size_t index) {
  const WarmItem& item = warming.items[index];
  lathe_warming_item_info out = {
      .op = item.op.c_str(), .arch = item.arch.c_str(), .kernels = item.kernels.size()};
  const Status* wrong = &item.status;
  for (const size_t number : item.kernels) {
    const WarmKernel& kernel = warming.kernels[number];
    const bool own = kernel.item == index;
    if (own) out.milliseconds += kernel.milliseconds;
    if (!kernel.done()) {
      ++out.left;
    } else if (!kernel.status.ok()) {
      ++out.failed;
      if (wrong->ok()) wrong = &kernel.status;
    } else if (!own) {
      ++out.shared;
    } else {
      ++(was_compiled(kernel) ? out.compiled : out.hits);
    }
  }
  out.status = static_cast<lathe_status>(wrong->code());
  out.error = wrong->text().c_str();
  return out;
}

Status check_index(size_t index, size_t count, const char* what) {
  if (index < count) return {};
  return invalid(text("index is ", index, "; the warming has ", count, " ", what));
}

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_warm(lathe_context* context, const lathe_problem* problem, uint64_t* compiled,
                        uint64_t* hits) {
  return boundary({{context, "context"}, {problem, "problem"}}, [&]() -> Status {
    LATHE_ASSIGN(const auto specs, kernels_to_warm(*context, *problem));
    const auto all = build_kernels(*context, specs, Load::no, 0, nullptr, problem);
    LATHE_TRY(with_problem(all.status(), *problem));
    const auto fresh = static_cast<size_t>(std::ranges::count(
        *all, Origin::compiler, [](const LoadedKernel& each) { return each.built->origin; }));
    if (compiled) *compiled = fresh;
    if (hits) *hits = all->size() - fresh;
    return {};
  });
}

lathe_status lathe_warming_create(lathe_warming** out) {
  return boundary({{out, "out"}}, [&] { *out = new lathe_warming; });
}

void lathe_warming_destroy(lathe_warming* warming) { delete warming; }

lathe_status lathe_warming_add(lathe_warming* warming, lathe_context* context,
                               const lathe_problem* problem) {
  return boundary({{warming, "warming"}, {context, "context"}, {problem, "problem"}},
                  [&]() -> Status {
                    WarmItem item = {.op = problem->op->name, .arch = context->facts.arch};
                    item.status = add_kernels(warming, context, *problem, &item);
                    warming->items.push_back(std::move(item));
                    return warming->items.back().status;
                  });
}

lathe_status lathe_warming_run(lathe_warming* warming, int jobs, lathe_warming_progress progress,
                               void* user) {
  return boundary({{warming, "warming"}}, [&]() -> Status {
    if (jobs < 0) return invalid(text("jobs is ", jobs, ", but must be 0 or more"));
    std::vector<WarmKernel*> left;
    for (WarmKernel& kernel : warming->kernels) {
      if (*kernel.from == '\0') left.push_back(&kernel);
    }
    std::mutex mutex;
    size_t done = 0, compiled = 0;
    if (progress && progress(user, 0, left.size(), 0)) return {};
    work_through(left.size(), jobs, [&](size_t i, const Busy& busy) {
      build_one(left[i], busy);
      const std::lock_guard<std::mutex> lock(mutex);
      compiled += was_compiled(*left[i]);
      ++done;
      return !progress || progress(user, done, left.size(), compiled) == 0;
    });
    for (const WarmItem& item : warming->items) {
      LATHE_TRY(item.status);
      for (const size_t kernel : item.kernels) LATHE_TRY(warming->kernels[kernel].status);
    }
    return {};
  });
}

size_t lathe_warming_item_count(const lathe_warming* warming) {
  return warming ? warming->items.size() : 0;
}

lathe_status lathe_warming_item(const lathe_warming* warming, size_t index,
                                lathe_warming_item_info* out) {
  return boundary({{warming, "warming"}}, [&]() -> Status {
    LATHE_TRY(check_index(index, warming->items.size(), "items"));
    return give_sized(describe(*warming, index), out);
  });
}

size_t lathe_warming_kernel_count(const lathe_warming* warming) {
  return warming ? warming->kernels.size() : 0;
}

lathe_status lathe_warming_kernel(const lathe_warming* warming, size_t index,
                                  lathe_warming_kernel_info* out) {
  return boundary({{warming, "warming"}}, [&]() -> Status {
    LATHE_TRY(check_index(index, warming->kernels.size(), "kernels"));
    const WarmKernel& kernel = warming->kernels[index];
    return give_sized({.name = kernel.spec.kernel.c_str(),
                       .spec = kernel.spec_text.c_str(),
                       .arch = kernel.context->facts.arch.c_str(),
                       .key = kernel.key.c_str(),
                       .from = kernel.from,
                       .status = static_cast<lathe_status>(kernel.status.code()),
                       .error = kernel.status.text().c_str(),
                       .milliseconds = kernel.milliseconds},
                      out);
  });
}

}  // extern "C"
