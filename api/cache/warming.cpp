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
#include "codegen/source.h"

namespace lathe {
namespace {

struct WarmKernel {
  lathe_context* context = nullptr;
  KernelSpec spec;
  std::string spec_text, key;  // the key once it is built
  const char* from = "";       // "" before
  Status status;
  double milliseconds = 0;

  bool done() const { return *from != '\0' || !status.ok(); }
};

struct WarmItem {
  std::string op, arch;
  Status status;                // that of choosing kernels
  std::vector<size_t> kernels;  // numbers, each once
  std::vector<size_t> first;    // those that no earlier item needs
};

}  // namespace
}  // namespace lathe

struct lathe_warming {
  std::vector<lathe::WarmItem> items;
  std::vector<lathe::WarmKernel> kernels;
  std::map<std::string, size_t> known;  // by where it goes, architecture and emitted unit
};

namespace lathe {
namespace {

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
    if (fresh) {
      WarmKernel kernel;
      kernel.context = context;
      kernel.spec = spec;
      kernel.spec_text = spec.text();
      warming->kernels.push_back(std::move(kernel));
      item->first.push_back(found->second);
    }
    const auto& all = item->kernels;
    if (std::find(all.begin(), all.end(), found->second) == all.end()) {
      item->kernels.push_back(found->second);
    }
  }
  return {};
}

// `busy` brings further threads.
void build_one(WarmKernel* kernel, const Busy& busy) {
  const auto start = std::chrono::steady_clock::now();
  const auto built = build_safely(*kernel->context, kernel->spec, busy);
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

Status run(lathe_warming* warming, int jobs, lathe_warming_progress progress, void* user) {
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
}

lathe_warming_item_info describe(const lathe_warming& warming, const WarmItem& item) {
  lathe_warming_item_info out = {};
  out.op = item.op.c_str();
  out.arch = item.arch.c_str();
  const Status* wrong = &item.status;
  out.kernels = item.kernels.size();
  for (const size_t number : item.kernels) {
    const WarmKernel& kernel = warming.kernels[number];
    const bool own = std::find(item.first.begin(), item.first.end(), number) != item.first.end();
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
    const auto all = build_kernels(*context, specs);
    LATHE_TRY(with_problem(all.status(), *problem));
    uint64_t fresh = 0, found = 0;
    for (const auto& built : *all) {
      ++(built->origin == Origin::compiler ? fresh : found);
    }
    if (compiled) *compiled = fresh;
    if (hits) *hits = found;
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
                    WarmItem item;
                    item.op = problem->op->name;
                    item.arch = context->facts.arch;
                    item.status = add_kernels(warming, context, *problem, &item);
                    warming->items.push_back(std::move(item));
                    return warming->items.back().status;
                  });
}

lathe_status lathe_warming_run(lathe_warming* warming, int jobs, lathe_warming_progress progress,
                               void* user) {
  return boundary({{warming, "warming"}}, [&]() -> Status {
    if (jobs < 0) return invalid(text("jobs is ", jobs, ", but must be 0 or more"));
    return run(warming, jobs, progress, user);
  });
}

size_t lathe_warming_item_count(const lathe_warming* warming) {
  return warming ? warming->items.size() : 0;
}

lathe_status lathe_warming_item(const lathe_warming* warming, size_t index,
                                lathe_warming_item_info* out) {
  return boundary({{warming, "warming"}}, [&]() -> Status {
    LATHE_TRY(check_index(index, warming->items.size(), "items"));
    return give_sized(describe(*warming, warming->items[index]), out);
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
    lathe_warming_kernel_info info = {};
    info.name = kernel.spec.kernel.c_str();
    info.spec = kernel.spec_text.c_str();
    info.arch = kernel.context->facts.arch.c_str();
    info.key = kernel.key.c_str();
    info.from = kernel.from;
    info.status = static_cast<lathe_status>(kernel.status.code());
    info.error = kernel.status.text().c_str();
    info.milliseconds = kernel.milliseconds;
    return give_sized(info, out);
  });
}

}  // extern "C"
