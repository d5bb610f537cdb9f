// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// NVRTC: unit -> cubin, PTX, registers, spills; or COMPILE_FAILED with the whole log. It runs in a
// process of its own (codegen/process/), or in this one with LATHE_COMPILE_PROCESS=off.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"
#include "codegen/compile_log.h"
#include "codegen/nvrtc_library.h"
#include "codegen/process/compile_process.h"
#include "codegen/spec.h"
#include "codegen/templates.h"

namespace lathe {

struct CompiledUnit {
  std::string cubin, ptx;
  CompileReport report;
};

// Thread-safe.
class Compiler {
 public:
  // Opens libnvrtc: `path` if not empty, else LATHE_NVRTC, else the newest of the usual names and
  // places whose code a driver of this CUDA version loads (driver_loads(); 0: any driver). Fails
  // naming what was tried or what is needed.
  static Result<std::shared_ptr<const Compiler>> open(const std::string& path = {},
                                                      int driver_version = 0);

  // Returns "nvrtc 13.0 65be0db3...": version and the GNU build id of the loaded object.
  const std::string& identity() const { return facts_.identity; }
  const std::string& path() const { return facts_.path; }
  const std::string& asked() const { return facts_.asked; }  // the name or path that led to path()
  const std::vector<std::string>& archs() const { return facts_.archs; }  // "sm_90", ...

  // Options that can alter bytes, sorted: what goes into the key. -arch is in the key apart.
  static const std::vector<std::string>& options();

  // `arch` is "sm_90a"; `mods` are what the unit includes beside the embedded files. On failure
  // the text holds the log, the options and the path of the saved unit. With `log` nothing is saved
  // and the compiler's own words go there, mods under their files.
  Result<CompiledUnit> compile(const std::string& unit, const std::string& arch,
                               const std::vector<Mod>& mods = {}, std::string* log = nullptr) const;

 private:
  Compiler() = default;
  Result<CompileOutcome> compile_job(const CompileJob& job, bool users_text) const;
  // One of the two.
  std::shared_ptr<const CompileProcesses> processes_;
  std::shared_ptr<const NvrtcLibrary> library_;
  CompilerFacts facts_;
};

// Saves `unit` in the temporary directory as lathe-failed-<user id>/<kernel>-<digest>.cu, for
// whoever reads the message, and returns that path; empty if it cannot. The folder is the user's
// own, and it keeps the 16 files that were saved last: the same failure again takes no more room.
std::string save_failed_unit(std::string_view unit);

}  // namespace lathe
