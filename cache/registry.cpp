// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The miss path, in one order: memory, the tiers, lock, the user's directory again, compiler. The
// bytes in memory are used as they are; publishing them is for others.
#include "cache/registry.h"

#include <atomic>
#include <ctime>

#include "cache/key.h"
#include "cache/once.h"
#include "cache/report.h"
#include "cache/shared_compiler.h"
#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "codegen/kernel_text.h"
#include "codegen/mods.h"
#include "codegen/source.h"

namespace lathe {
namespace {

using Busy = std::function<void()>;

Entry make_entry(Key key, CompiledUnit compiled, const KernelSpec& spec,
                 const std::string& compiler) {
  Entry entry;
  entry.key = std::move(key);
  entry.metadata = {
      {"created", text(static_cast<long long>(time(nullptr)))},
      {"kernel", spec.kernel},
      {"nvrtc", compiler},
      {"smem_dynamic", text(spec.smem_bytes)},
      {"spec", spec.text()},
      {"threads", text(spec.threads)},
  };
  add_report(compiled.report, &entry.metadata);
  entry.cubin = std::move(compiled.cubin);
  entry.ptx = std::move(compiled.ptx);
  return entry;
}

bool compiling_allowed() {
  const auto value = environment("LATHE_JIT");
  if (!value || *value == "on") return true;
  if (*value == "off") return false;
  log_message(LogLevel::warning,
              text("LATHE_JIT is ", in_quotes(*value), ", allowed are on and off; taken as on"));
  return true;
}

std::vector<std::string> with_lines(std::vector<std::string> options) {
  options.emplace_back(kLineOption);
  return options;
}

}  // namespace

struct Registry::State {
  State(std::shared_ptr<Tiers> all, std::shared_ptr<const Device> of, std::string name)
      : tiers(std::move(all)), device(std::move(of)), arch(std::move(name)) {}

  // A kernel that was built, and the same kernel as later callers see it.
  struct Built {
    std::shared_ptr<const BuiltKernel> first, again;
  };
  std::shared_ptr<Tiers> tiers;
  std::shared_ptr<const Device> device;
  std::string arch;
  const bool may_compile = compiling_allowed();
  const int driver_version = device ? device->driver().version : 0;
  SharedCompiler compiler{tiers->store(), driver_version};
  const std::vector<std::string>& options = Compiler::options();
  const std::vector<std::string> own_options = with_lines(options);  // of a caller's kernels

  struct Loaded {
    std::shared_ptr<const Kernel> kernel;
    std::shared_ptr<const Entry> entry;  // as it is kept from then on
  };
  // By EmittedKernel::id.
  Once<Built> built;
  Once<Loaded> loaded;
  Once<bool> probed;  // mods that were found good, by their probe
  std::atomic<uint64_t> compiled{0}, hits{0};

  // Returns which code stays in memory of an entry that a tier has.
  Keep keep() const { return device ? Keep::cubin : Keep::no_code; }

  Result<Built> make(std::shared_ptr<const EmittedKernel> emitted, const Busy& busy);
  Result<std::shared_ptr<const Entry>> find_or_compile(const EmittedKernel& kernel,
                                                       const std::string& identity, Origin& origin,
                                                       const Busy& busy);
  Result<std::shared_ptr<const Entry>> compile(Key key, const EmittedKernel& kernel,
                                               const Compiler& with);
  Result<Key> key_of(const EmittedKernel& kernel, const std::string& identity) const {
    return make_key(kernel.spec_text, kernel.unit, arch, identity,
                    kernel.spec.own() != nullptr ? own_options : options);
  }
  Result<CompiledUnit> compile_unit(const EmittedKernel& kernel, const Compiler& with);
  // The probe runs before the kernel is compiled, so that an error names the mod and not the
  // kernel.
  Status probe(const KernelSpec& spec, const Mod& mod, const Compiler& with);
  Result<std::shared_ptr<const Entry>> find_for_any_compiler(const EmittedKernel& kernel,
                                                             const std::string& why_not_compiled,
                                                             Origin& origin);
};

EmittedKernel::EmittedKernel(const KernelSpec& of, const std::string& arch)
    : spec(of), spec_text(of.text()), unit(emit_unit(of, spec_text, arch)), id(digest(unit)) {
  // They are kept, and were written into room for longer ones.
  spec_text.shrink_to_fit();
  unit.shrink_to_fit();
}

Registry::Registry(std::shared_ptr<Store> store, std::shared_ptr<const Device> device,
                   std::string arch)
    : Registry(std::make_shared<Tiers>(std::move(store)), std::move(device), std::move(arch)) {}

Registry::Registry(std::shared_ptr<Tiers> tiers, std::shared_ptr<const Device> device,
                   std::string arch)
    : tiers_(std::move(tiers)),
      state_(std::make_unique<State>(tiers_, std::move(device), std::move(arch))) {}

Registry::~Registry() = default;

// The compiler's identity is in the key: without one, each that the tiers know is tried.
Result<std::shared_ptr<const Entry>> Registry::State::find_for_any_compiler(
    const EmittedKernel& kernel, const std::string& why_not_compiled, Origin& origin) {
  std::vector<std::string> identities = tiers->compilers();
  const size_t too_new = std::erase_if(identities, [this](const std::string& identity) {
    return !driver_loads(version_of_identity(identity).major, driver_version);
  });
  Key last;
  for (const std::string& identity : identities) {
    LATHE_ASSIGN(last, key_of(kernel, identity));
    if (auto hit = tiers->get(last, keep())) {
      origin = hit->origin;
      return std::shared_ptr<const Entry>(std::make_shared<Entry>(std::move(hit->entry)));
    }
  }
  std::string why = text(kernel.spec.kernel, " is not cached in ", tiers->names(), ", and ",
                         why_not_compiled, "\n");
  if (identities.empty()) {
    why += too_new > 0 ? "the compilers that published there are too new for the driver; spec="
                       : "no compiler has published there yet; spec=";
    why += kernel.spec_text;
  } else {
    const std::string nearest = tiers->nearest_difference(last);
    why += last.text;
    if (!nearest.empty()) why += "the nearest entry differs first in " + nearest;
  }
  return Status(Code::not_cached, why);
}

Status Registry::State::probe(const KernelSpec& spec, const Mod& mod, const Compiler& with) {
  const KernelSpec alone = mod_probe_spec(spec, mod);
  bool first = false;
  const Result<bool> good =
      probed.get(digest(emit_unit(alone, arch)), first, [&]() -> Result<bool> {
        LATHE_TRY(probe_mod(alone, with, arch));
        return true;
      });
  return good.status();
}

// A kernel of a caller that does not compile is an argument of his: he gets the compiler's words.
Result<CompiledUnit> Registry::State::compile_unit(const EmittedKernel& kernel,
                                                   const Compiler& with) {
  const KernelSpec& spec = kernel.spec;
  const Mod* own = spec.own();
  if (own == nullptr) {
    for (const Mod& mod : spec.mods) LATHE_TRY(probe(spec, mod, with));
    return with.compile(kernel.unit, arch, spec.mods);
  }
  std::string log;
  auto made = with.compile(kernel.unit, arch, spec.mods, &log);
  if (made.ok() || log.empty()) return made;
  return Status(Code::invalid_argument, text(own->file, " does not compile for ", arch, "\n", log));
}

Result<std::shared_ptr<const Entry>> Registry::State::compile(Key key, const EmittedKernel& kernel,
                                                              const Compiler& with) {
  const KernelSpec& spec = kernel.spec;
  LATHE_ASSIGN(CompiledUnit compiled_unit, compile_unit(kernel, with));
  ++compiled;
  auto entry = std::make_shared<const Entry>(
      make_entry(std::move(key), std::move(compiled_unit), spec, with.identity()));
  tiers->store().put(*entry);
  return entry;
}

Result<std::shared_ptr<const Entry>> Registry::State::find_or_compile(const EmittedKernel& kernel,
                                                                      const std::string& identity,
                                                                      Origin& origin,
                                                                      const Busy& busy) {
  LATHE_ASSIGN(Key key, key_of(kernel, identity));
  if (auto hit = tiers->get(key, keep())) {
    origin = hit->origin;
    return {std::make_shared<const Entry>(std::move(hit->entry))};
  }
  if (busy) busy();
  Store& store = tiers->store();
  std::shared_ptr<const Compiler> with;
  {
    const Store::Lock lock = store.lock_to_compile(key);
    // Whoever held the lock before us has published by now.
    origin = Origin::disk;
    if (auto entry = store.get(key, true, keep()))
      return {std::make_shared<const Entry>(std::move(*entry))};
    LATHE_ASSIGN(with, compiler.open());
    origin = Origin::compiler;
    if (with->identity() == identity) return compile(std::move(key), kernel, *with);
  }
  // The compiler that opened is not the remembered one: it has its own key and its own lock.
  return find_or_compile(kernel, with->identity(), origin, busy);
}

Result<Registry::State::Built> Registry::State::make(std::shared_ptr<const EmittedKernel> emitted,
                                                     const Busy& busy) {
  BuiltKernel kernel;
  kernel.emitted = std::move(emitted);
  if (!may_compile) {
    LATHE_ASSIGN(
        kernel.entry,
        find_for_any_compiler(*kernel.emitted, "LATHE_JIT=off forbids compiling", kernel.origin));
  } else if (const auto identity = compiler.identity(); identity.ok()) {
    LATHE_ASSIGN(kernel.entry, find_or_compile(*kernel.emitted, *identity, kernel.origin, busy));
  } else {
    auto found = find_for_any_compiler(*kernel.emitted, "there is no compiler", kernel.origin);
    // The error is the compiler's, not the cache's.
    if (!found.ok()) return identity.status();
    kernel.entry = *found;
  }
  kernel.cached = kernel.origin != Origin::compiler;
  if (kernel.cached) ++hits;
  log_message(LogLevel::info,
              text(kernel.spec().kernel, " for ", arch, " comes from the ", word(kernel.origin)));
  Built out;
  out.first = std::make_shared<const BuiltKernel>(kernel);
  kernel.origin = Origin::memory;
  out.again = std::make_shared<const BuiltKernel>(std::move(kernel));
  return out;
}

Result<std::shared_ptr<const BuiltKernel>> Registry::build(const KernelSpec& spec,
                                                           const Busy& busy) {
  auto emitted = std::make_shared<const EmittedKernel>(spec, state_->arch);
  const Digest id = emitted->id;
  bool first = false;
  LATHE_ASSIGN(const State::Built built,
               state_->built.get(
                   id, first, [&] { return state_->make(std::move(emitted), busy); }, busy));
  if (first) return built.first;
  ++state_->hits;
  return built.again;
}

Result<std::string> Registry::compiler_identity() { return state_->compiler.identity(); }

Result<LoadedKernel> Registry::load(const BuiltKernel& built) {
  if (!state_->device)
    return Status(Code::no_device, text(built.spec().kernel,
                                        " cannot be loaded: no device was opened, "
                                        "only compiling is possible"));
  const Digest& id = built.emitted->id;
  bool first = false;
  const std::shared_ptr<const KernelSpec> spec(built.emitted, &built.spec());
  const auto load = [&]() -> Result<State::Loaded> {
    State::Loaded out{nullptr, built.entry};
    auto kernel = Kernel::load(state_->device, built.entry->cubin, built.entry->ptx, spec);
    if (!kernel.ok() && built.entry->partial) {
      LATHE_ASSIGN(const std::shared_ptr<const Entry> entry, whole(built));
      kernel = Kernel::load(state_->device, entry->cubin, entry->ptx, spec);
    }
    LATHE_ASSIGN(out.kernel, std::move(kernel));
    if (!built.cached) return out;
    // The device has a copy and so has a tier; the next kernel is read into the memory of this one.
    out.entry =
        std::make_shared<const Entry>(Entry{built.entry->key, built.entry->metadata, "", "", true});
    BuiltKernel later = built;
    later.entry = out.entry;
    later.origin = Origin::memory;
    const auto again = std::make_shared<const BuiltKernel>(std::move(later));
    state_->built.replace(id, {again, again});
    return out;
  };
  LATHE_ASSIGN(State::Loaded loaded, state_->loaded.get(id, first, load));
  BuiltKernel kept = built;
  kept.entry = std::move(loaded.entry);
  return LoadedKernel{std::make_shared<const BuiltKernel>(std::move(kept)),
                      std::move(loaded.kernel)};
}

Result<std::shared_ptr<const Entry>> Registry::whole(const BuiltKernel& built) {
  if (!built.entry->partial) return built.entry;
  if (auto hit = tiers_->get(built.entry->key))
    return {std::make_shared<const Entry>(std::move(hit->entry))};
  if (!state_->may_compile)
    return Status(Code::not_cached, text(built.spec().kernel, " has gone from ", tiers_->names(),
                                         ", and LATHE_JIT=off forbids compiling"));
  LATHE_ASSIGN(const auto with, state_->compiler.open());
  LATHE_ASSIGN(Key key, state_->key_of(*built.emitted, with->identity()));
  return state_->compile(std::move(key), *built.emitted, *with);
}

RegistryStat Registry::stat() const {
  RegistryStat out;
  out.compiled = state_->compiled;
  out.hits = state_->hits;
  return out;
}

}  // namespace lathe
