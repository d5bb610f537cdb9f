// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Spec -> compiled -> loaded, each once: memory, the tiers, compiler. The miss path of every plan.
//
// Thread-safe: different keys compile in parallel, equal keys once, in the process and between
// processes that share a cache directory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/tiers.h"
#include "codegen/nvrtc.h"
#include "device/kernel.h"

namespace lathe {

struct EmittedKernel {
  EmittedKernel(const KernelSpec& of, const std::string& arch);
  KernelSpec spec;
  std::string spec_text;
  std::string unit;  // the emitted source
  Digest id;         // of the unit, which holds all that reaches the code
};

struct BuiltKernel {
  std::shared_ptr<const EmittedKernel> emitted;
  Origin origin = Origin::compiler;
  bool cached = false;  // a tier had it: what is left out of the entry can be read there again
  std::shared_ptr<const Entry> entry;  // key, metadata; the code, as far as it was not left out

  const KernelSpec& spec() const { return emitted->spec; }
  const std::string& spec_text() const { return emitted->spec_text; }
  const std::string& unit() const { return emitted->unit; }
};

struct LoadedKernel {
  std::shared_ptr<const BuiltKernel> built;  // without the code, if a tier has it
  std::shared_ptr<const Kernel> kernel;
};

struct RegistryStat {
  uint64_t compiled = 0, hits = 0;
};

class Registry {
 public:
  // The compiler is opened at the first miss. `device` null: compile only, for `arch`.
  Registry(std::shared_ptr<Tiers> tiers, std::shared_ptr<const Device> device, std::string arch);
  // With that one tier.
  Registry(std::shared_ptr<Store> store, std::shared_ptr<const Device> device, std::string arch);
  ~Registry();

  // Compiles or finds; needs no device. `busy`, if given, is called before it compiles or waits for
  // somebody who does.
  Result<std::shared_ptr<const BuiltKernel>> build(const KernelSpec& spec,
                                                   const std::function<void()>& busy = {});
  // Into the device, once per kernel.
  Result<LoadedKernel> load(const BuiltKernel& built);

  // The kernel's entry with all its code, which a start from disk leaves there: read again, or
  // compiled if it has gone since.
  Result<std::shared_ptr<const Entry>> whole(const BuiltKernel& built);

  // Returns Compiler::identity() of what compiles here; fails where nothing does.
  Result<std::string> compiler_identity();

  RegistryStat stat() const;
  Tiers& tiers() { return *tiers_; }

 private:
  struct State;
  std::shared_ptr<Tiers> tiers_;
  std::unique_ptr<State> state_;
};

}  // namespace lathe
