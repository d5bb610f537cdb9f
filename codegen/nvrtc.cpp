// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The compiler with its fixed options: what it is asked, and what its answers mean.
#include "codegen/nvrtc.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "codegen/base/env.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"
#include "codegen/compiler_library.h"
#include "codegen/kernel_text.h"
#include "codegen/mods.h"

namespace lathe {

namespace {

const std::vector<std::string>& fixed_options() {
  static const std::vector<std::string> options = {
      "--no-source-include",  // only embedded names resolve, never a file of the caller's folder
      "--ptxas-options=-v",   // registers and spills; ptxas notes its options in the cubin
      "-std=c++17",
  };
  return options;
}

// NVRTC reads this variable at every compile. Its value of the first use is the one in the keys.
const std::string& appended_flags() {
  static const std::string flags = environment("NVRTC_APPEND_FLAGS").value_or("");
  return flags;
}

// Key texts are lines: a newline becomes \n, and a backslash \\ so that nothing else reads alike.
std::string escaped(const std::string& value) {
  std::string result;
  for (const char c : value) {
    if (c == '\n' || c == '\\') result += '\\';
    result += c == '\n' ? 'n' : c;
  }
  return result;
}

// NVRTC's front end puts a handler of SIGINT in place of the program's for as long as the first
// compile of a process takes, and that one exits. This thread takes the signal behind the compile.
class HeldInterrupt {
 public:
  HeldInterrupt() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  }
  ~HeldInterrupt() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldInterrupt(const HeldInterrupt&) = delete;
  HeldInterrupt& operator=(const HeldInterrupt&) = delete;

 private:
  sigset_t before_ = {};
};

// Returns what the first comment lines of the PTX say about the compiler.
std::string banner_of(const std::string& ptx) {
  std::string banner;
  for (const char* word : {"Compiler Build ID: ", "Cuda compilation tools, "}) {
    const size_t at = ptx.find(word);
    if (at == std::string::npos) continue;
    const size_t from = at + std::strlen(word);
    banner += (banner.empty() ? "" : ", ") + ptx.substr(from, ptx.find('\n', from) - from);
  }
  return banner;
}

// Returns whether flags ask for a debug or fast-compile build, which changes every later compile of
// the process.
bool poisons_the_process(const std::string& flags) {
  return (' ' + flags + ' ').find(" -G ") != std::string::npos ||
         flags.find("--device-debug") != std::string::npos ||
         flags.find("-Ofc") != std::string::npos ||
         flags.find("--Ofast-compile") != std::string::npos;
}

// True if the compiler runs in a process of its own.
bool in_own_process() {
  const auto value = environment("LATHE_COMPILE_PROCESS");
  if (!value || *value == "on") return true;
  if (*value == "off") return false;
  log_message(LogLevel::warning,
              text("LATHE_COMPILE_PROCESS is '", *value, "', allowed are on and off; taken as on"));
  return true;
}

// Returns "option score_mod: bias.cuh", or the first line of a unit without mods.
std::string subject(const std::string& unit, const std::vector<Mod>& mods) {
  if (mods.empty()) return unit.substr(0, unit.find('\n'));
  return comma_list(mods, [](const Mod& mod) {
    return mod.is_kernel ? mod.file : text("option ", mod.name, ": ", mod.file);
  });
}

}  // namespace

const std::vector<std::string>& Compiler::options() {
  static const std::vector<std::string> options = [] {
    std::vector<std::string> all = fixed_options();
    if (!appended_flags().empty()) {
      all.push_back("NVRTC_APPEND_FLAGS=" + escaped(appended_flags()));
    }
    std::sort(all.begin(), all.end());
    return all;
  }();
  return options;
}

Result<std::shared_ptr<const Compiler>> Compiler::open(const std::string& path,
                                                       int driver_version) {
  std::shared_ptr<Compiler> compiler(new Compiler());
  if (in_own_process()) {
    LATHE_ASSIGN(compiler->processes_, CompileProcesses::open(compiler_files(path, driver_version),
                                                              driver_version, appended_flags()));
    compiler->facts_ = compiler->processes_->facts();
  } else {
    LATHE_ASSIGN(compiler->library_,
                 NvrtcLibrary::open(compiler_candidates(path, driver_version), driver_version));
    compiler->facts_ = compiler->library_->facts();
  }
  return std::shared_ptr<const Compiler>(std::move(compiler));
}

Result<CompileOutcome> Compiler::compile_job(const CompileJob& job, bool users_text) const {
  if (processes_) return processes_->compile(job, users_text);
  CompileJob whole = job;
  for (CompileHeader& header : template_headers()) whole.headers.push_back(std::move(header));
  const HeldInterrupt held_back;
  return library_->compile(whole);
}

Result<CompiledUnit> Compiler::compile(const std::string& unit, const std::string& arch,
                                       const std::vector<Mod>& mods, std::string* told) const {
  if (poisons_the_process(appended_flags())) {
    return Status(Code::compile_failed,
                  text("NVRTC_APPEND_FLAGS is '", appended_flags(),
                       "': -G and -Ofc would alter every later compile of this process"));
  }
  const auto begin = std::chrono::steady_clock::now();
  CompileJob job{unit, fixed_options(), {}};
  job.options.push_back("-arch=" + arch);
  // NVRTC's own cache (since 12.9) looks for the driver and swallows the report; ours replaces it.
  if (facts_.major > 12 || facts_.minor >= 9) job.options.push_back("-no-cache");
  const bool own = std::ranges::any_of(mods, [](const Mod& mod) { return mod.is_kernel; });
  if (own) job.options.push_back(kLineOption);
  std::string option_text;
  for (const std::string& option : job.options) option_text += ' ' + option;
  for (const Mod& mod : mods) job.headers.push_back({mod.header(), mod_header_text(mod)});
  auto answered = compile_job(job, !mods.empty());
  if (!answered.ok()) {
    return Status(answered.status().code(),
                  text(subject(unit, mods), ": ", answered.status().text()));
  }
  CompileOutcome& outcome = *answered;
  for (const Mod& mod : mods) {
    outcome.log = name_mod_file(std::move(outcome.log), mod);
  }
  if (!outcome.error.empty() && told != nullptr) {
    *told = outcome.log.empty() ? outcome.error : outcome.log;
    return Status(Code::compile_failed, *told);
  }
  if (!outcome.error.empty()) {
    const std::string saved = save_failed_unit(unit);
    return Status(
        Code::compile_failed,
        text(unit.substr(0, unit.find('\n')), "\n", outcome.error, "; options:", option_text,
             "; unit saved in ", saved.empty() ? "no file (it could not be written)" : saved, "\n",
             outcome.log));
  }
  CompiledUnit compiled;
  compiled.cubin = std::move(outcome.cubin);
  compiled.ptx = std::move(outcome.ptx);
  if (compiled.cubin.empty() || compiled.ptx.empty()) {
    return Status(Code::compile_failed,
                  text("NVRTC gave ", compiled.cubin.size(), " bytes of cubin and ",
                       compiled.ptx.size(), " of PTX for ", arch, "; options:", option_text));
  }
  compiled.report = parse_compile_log(outcome.log);
  compiled.report.ptx_banner = banner_of(compiled.ptx);
  compiled.report.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return compiled;
}

}  // namespace lathe
