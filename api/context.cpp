// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Opens contexts. The device is never guessed: the one that was asked for is there, or opening
// fails.
#include "api/context.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "api/boundary.h"
#include "api/compile_monitor.h"
#include "api/tune/tune_choices.h"
#include "codegen/base/env.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

Result<lathe_device_kind> kind_of(lathe_device_kind asked) {
  if (asked == LATHE_DEVICE_CUDA || asked == LATHE_DEVICE_SIM || asked == LATHE_DEVICE_NONE) {
    return asked;
  }
  if (asked != LATHE_DEVICE_DEFAULT) {
    return invalid(text("options.device is ", static_cast<int>(asked),
                        "; allowed are LATHE_DEVICE_DEFAULT, _CUDA, _SIM and _NONE (0 to 3)"));
  }
  const std::string word = environment("LATHE_DEVICE").value_or("cuda");
  // The library never falls back, so auto means the real device; the program may do otherwise.
  if (word == "cuda" || word == "auto") return LATHE_DEVICE_CUDA;
  if (word == "sim") return LATHE_DEVICE_SIM;
  return invalid(text("LATHE_DEVICE is ", in_quotes(word), "; allowed are auto, cuda and sim"));
}

// A context without a device may be of a GPU by its name as well.
Status check_arch(const std::string& arch, lathe_device_kind kind) {
  const auto& archs = supported_archs();
  if (std::ranges::find(archs, arch) != archs.end()) return {};
  std::string allowed = comma_list(archs);
  if (kind == LATHE_DEVICE_NONE) allowed += ", " + comma_list(known_gpus());
  return invalid(text("arch is ", in_quotes(arch), "; allowed are ", allowed));
}

// "sm_90a" runs what "sm_90" runs: the profile is the number.
std::string profile_of(std::string arch) {
  if (!arch.empty() && arch.back() == 'a') arch.pop_back();
  return arch;
}

// Holds the arch of the simulator once it is open. The text is never freed: a thread may read it
// while the process ends.
std::atomic<const std::string*> sim_arch{nullptr};

Status check_sim_profile(const std::string& arch) {
  const std::string* opened = sim_arch;
  if (arch.empty() || !opened || profile_of(*opened) == profile_of(arch)) return {};
  return invalid(text("arch is ", arch, ", but this process has opened the simulator as ", *opened,
                      "; it has one profile for the whole process"));
}

Status open_device(const std::string& arch, int ordinal, lathe_context* context) {
  const bool sim = context->kind == LATHE_DEVICE_SIM;
  if (sim) LATHE_TRY(check_sim_profile(arch));
  LATHE_ASSIGN(auto driver, open_driver(sim ? DeviceChoice::sim : DeviceChoice::cuda, arch));
  LATHE_ASSIGN(context->device, Device::open(std::move(driver), ordinal, arch));
  context->facts = context->device->facts();
  if (sim) sim_opened(context->facts.arch);
  return {};
}

// The option decides, and without it the environment does.
Status take_family(const char* option, DeviceFacts* facts) {
  const char* const name = option ? "options.family" : "LATHE_FAMILY";
  const std::string family = option ? option : environment(name).value_or("auto");
  if (family != "auto" && family != "portable" && family != "sm90") {
    return invalid(text(name, " is ", in_quotes(family), "; allowed are auto, portable and sm90"));
  }
  facts->family = family;
  facts->family_reason = text(name, " is portable");
  return {};
}

Status create(const lathe_context_options& options, lathe_context* context) {
  LATHE_ASSIGN(context->kind, kind_of(options.device));
  const std::string arch = options.arch ? options.arch : "";
  const bool without_device = context->kind == LATHE_DEVICE_NONE;
  const Result<DeviceFacts> gpu = facts_of_gpu(arch);
  const bool is_gpu = without_device && gpu.ok();
  if (!is_gpu && !arch.empty()) LATHE_TRY(check_arch(arch, context->kind));
  if (options.ordinal < 0) {
    return invalid(text("options.ordinal is ", options.ordinal, ", but must be 0 or more"));
  }
  if (without_device && arch.empty()) {
    return invalid("options.arch is not given, but LATHE_DEVICE_NONE needs it, as sm_90a");
  }
  if (without_device) {
    LATHE_ASSIGN(context->facts, is_gpu ? gpu : facts_of_arch(arch));
  } else {
    LATHE_TRY(open_device(arch, options.ordinal, context));
  }
  LATHE_TRY(take_family(options.family, &context->facts));
  context->tiers = Tiers::open(options.cache_dir ? options.cache_dir : "");
  context->store = context->tiers->shared_store();
  context->registry =
      std::make_unique<Registry>(context->tiers, context->device, context->facts.arch);
  context->recorder = Recorder::from_environment();
  context->tuned = open_tuned(*context);
  return {};
}

}  // namespace

void sim_opened(const std::string& arch) {
  static const std::string* const first = new std::string(arch);
  sim_arch = first;
}

Result<std::shared_ptr<const BuiltKernel>> build_counted(lathe_context& context,
                                                         const KernelSpec& spec,
                                                         const std::function<void()>& busy,
                                                         const lathe_problem* asker) {
  LATHE_ASSIGN(auto built, context.registry->build(spec, busy));
  if (built->origin == Origin::compiler) tell_compiled(*built, context.facts.arch, asker);
  ++(built->origin == Origin::compiler ? context.compiled : context.hits);
  if (const auto compiler = built->entry->metadata.find("nvrtc")) {
    const std::lock_guard<std::mutex> lock(context.mutex);
    if (context.compiler.empty()) context.compiler = *compiler;
  }
  return built;
}

Status require_device(const lathe_context& context, const char* what) {
  if (context.device) return {};
  return Status(Code::no_device, text(what,
                                      " needs a device, but the context was made with "
                                      "LATHE_DEVICE_NONE; use LATHE_DEVICE_CUDA or _SIM"));
}

}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_context_create(lathe_context** out, const lathe_context_options* options) {
  return boundary({{out, "out"}}, [&]() -> Status {
    lathe_context_options taken = LATHE_CONTEXT_OPTIONS_INIT;
    if (options)
      LATHE_TRY(take_sized(options, "options", &taken, offsetof(lathe_context_options, family)));
    auto context = std::make_unique<lathe_context>();
    LATHE_TRY(create(taken, context.get()));
    *out = context.release();
    return {};
  });
}

void lathe_context_destroy(lathe_context* context) { delete context; }

lathe_status lathe_context_get_info(const lathe_context* context, lathe_context_info* out) {
  return boundary({{context, "context"}}, [&]() -> Status {
    const Device* device = context->device.get();
    const std::lock_guard<std::mutex> lock(context->mutex);
    return give_sized({.device = context->kind,
                       .ordinal = device ? device->ordinal() : 0,
                       .device_name = device ? device->name().c_str() : "",
                       .arch = context->facts.arch.c_str(),
                       .driver_path = device ? device->driver().path.c_str() : "",
                       .driver_version = device ? device->driver().version : 0,
                       .compiler = context->compiler.empty() ? "" : context->compiler.c_str(),
                       .cache_dir = context->store->root().c_str(),
                       .cache_problem = context->store->problem().c_str(),
                       .compiled = context->compiled,
                       .hits = context->hits},
                      out);
  });
}

}  // extern "C"
