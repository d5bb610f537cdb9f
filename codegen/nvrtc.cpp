// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The compiler library: found with dlopen, identified by its build id, called with fixed options.
#include "codegen/nvrtc.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "codegen/base/env.h"
#include "codegen/base/text.h"
#include "codegen/compiler_library.h"
#include "codegen/saved_unit.h"
#include "codegen/snippets.h"

namespace lathe {

struct Compiler::Api {
  int major = 0, minor = 0;
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) arch_count = nullptr;
  decltype(&nvrtcGetSupportedArchs) archs = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_size = nullptr;
  decltype(&nvrtcGetPTX) ptx = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
};

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
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '\\') result += '\\';
      result += c;
    }
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

// What the first comment lines of the PTX say about the compiler.
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

// A debug or fast-compile build changes every later compile of the process (reference:
// jit_cache.md, section 1.3).
bool poisons_the_process(const std::string& flags) {
  return (' ' + flags + ' ').find(" -G ") != std::string::npos ||
         flags.find("--device-debug") != std::string::npos ||
         flags.find("-Ofc") != std::string::npos ||
         flags.find("--Ofast-compile") != std::string::npos;
}

// One program of the compiler, destroyed on every way out.
template <typename Destroy>
struct Program {
  explicit Program(Destroy function) : destroy(function) {}
  ~Program() {
    if (handle != nullptr) destroy(&handle);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Destroy destroy;
  nvrtcProgram handle = nullptr;
};

template <typename Size, typename Get>
std::string fetch(nvrtcProgram program, Size size_of, Get get) {
  size_t size = 0;
  if (size_of(program, &size) != NVRTC_SUCCESS || size == 0) return {};
  std::string bytes(size, '\0');
  if (get(program, bytes.data()) != NVRTC_SUCCESS) return {};
  return bytes;
}

// Text comes with its terminating zero.
std::string without_zero(std::string value) {
  while (!value.empty() && value.back() == '\0') value.pop_back();
  return value;
}

// NVRTC opens its builtins by bare name and says nothing about where it lies itself, so outside the
// system's folders (a wheel) it finds them only if they are loaded already. Failing is fine.
void hold_builtins(const std::string& compiler_path, int major, int minor) {
  const auto folder = std::filesystem::path(compiler_path).parent_path();
  const auto file = folder / text("libnvrtc-builtins.so.", major, ".", minor);
  dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
}

template <typename Function>
bool resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

Compiler::Compiler() : api_(std::make_unique<Api>()) {}
// The library stays loaded: it starts threads and registers handlers that outlive any one object.
Compiler::~Compiler() = default;

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

Result<std::shared_ptr<const Compiler>> Compiler::open(const std::string& path) {
  std::shared_ptr<Compiler> compiler(new Compiler());
  LATHE_ASSIGN(void* const library, open_compiler_library(path, &compiler->asked_));
  Api& api = *compiler->api_;
  const bool complete = resolve(library, "nvrtcVersion", &api.version) &&
                        resolve(library, "nvrtcGetErrorString", &api.error_string) &&
                        resolve(library, "nvrtcGetNumSupportedArchs", &api.arch_count) &&
                        resolve(library, "nvrtcGetSupportedArchs", &api.archs) &&
                        resolve(library, "nvrtcCreateProgram", &api.create) &&
                        resolve(library, "nvrtcDestroyProgram", &api.destroy) &&
                        resolve(library, "nvrtcCompileProgram", &api.compile) &&
                        resolve(library, "nvrtcGetProgramLogSize", &api.log_size) &&
                        resolve(library, "nvrtcGetProgramLog", &api.log) &&
                        resolve(library, "nvrtcGetPTXSize", &api.ptx_size) &&
                        resolve(library, "nvrtcGetPTX", &api.ptx) &&
                        resolve(library, "nvrtcGetCUBINSize", &api.cubin_size) &&
                        resolve(library, "nvrtcGetCUBIN", &api.cubin);
  if (!complete || api.version(&api.major, &api.minor) != NVRTC_SUCCESS || api.major < 12) {
    return Status(Code::compile_failed, text("NVRTC ", api.major, ".", api.minor,
                                             " is too old; needed is 12.0 or later"));
  }
  Dl_info where{};
  if (dladdr(reinterpret_cast<const void*>(api.version), &where) != 0) {
    compiler->path_ = where.dli_fname;
    hold_builtins(compiler->path_, api.major, api.minor);
  }
  const std::string id = build_id_of(reinterpret_cast<const void*>(api.version));
  compiler->identity_ =
      text("nvrtc ", api.major, ".", api.minor, " ", id.empty() ? "no-build-id" : id);
  int count = 0;
  if (api.arch_count(&count) == NVRTC_SUCCESS && count > 0) {
    std::vector<int> numbers(static_cast<size_t>(count));
    if (api.archs(numbers.data()) == NVRTC_SUCCESS) {
      for (const int number : numbers) compiler->archs_.push_back(text("sm_", number));
    }
  }
  return std::shared_ptr<const Compiler>(std::move(compiler));
}

Result<CompiledUnit> Compiler::compile(const std::string& unit, const std::string& arch,
                                       const std::vector<Snippet>& snippets,
                                       std::string* told) const {
  if (poisons_the_process(appended_flags())) {
    return Status(Code::compile_failed,
                  text("NVRTC_APPEND_FLAGS is '", appended_flags(),
                       "': -G and -Ofc would alter every later compile of this process"));
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> options = fixed_options();
  options.push_back("-arch=" + arch);
  // NVRTC's own cache (since 12.9) looks for the driver and swallows the report; ours replaces it.
  if (api_->major > 12 || api_->minor >= 9) options.push_back("-no-cache");
  std::vector<const char*> arguments, names, texts;
  std::string option_text;
  for (const std::string& option : options) {
    arguments.push_back(option.c_str());
    option_text += ' ' + option;
  }
  for (const TemplateFile& file : template_files()) {
    names.push_back(file.name);
    texts.push_back(file.text.data());
  }
  std::vector<std::string> held;
  held.reserve(2 * snippets.size());
  for (const Snippet& snippet : snippets) {
    names.push_back(held.emplace_back(snippet.header()).c_str());
    texts.push_back(held.emplace_back(snippet_header_text(snippet)).c_str());
  }

  Program program(api_->destroy);
  nvrtcResult result = api_->create(&program.handle, unit.c_str(), "/lathe/entry.cu",
                                    static_cast<int>(names.size()), texts.data(), names.data());
  std::string log;
  if (result == NVRTC_SUCCESS) {
    const HeldInterrupt held_back;
    result = api_->compile(program.handle, static_cast<int>(arguments.size()), arguments.data());
    log = without_zero(fetch(program.handle, api_->log_size, api_->log));
    for (const Snippet& snippet : snippets) log = name_snippet_file(std::move(log), snippet);
  }
  if (result != NVRTC_SUCCESS && told != nullptr) {
    *told = log.empty() ? std::string(api_->error_string(result)) : log;
    return Status(Code::compile_failed, *told);
  }
  if (result != NVRTC_SUCCESS) {
    const std::string saved = save_failed_unit(unit);
    return Status(Code::compile_failed,
                  text(unit.substr(0, unit.find('\n')), "\n", api_->error_string(result),
                       "; options:", option_text, "; unit saved in ",
                       saved.empty() ? "no file (it could not be written)" : saved, "\n", log));
  }
  CompiledUnit compiled;
  compiled.cubin = fetch(program.handle, api_->cubin_size, api_->cubin);
  compiled.ptx = without_zero(fetch(program.handle, api_->ptx_size, api_->ptx));
  if (compiled.cubin.empty() || compiled.ptx.empty()) {
    return Status(Code::compile_failed,
                  text("NVRTC gave ", compiled.cubin.size(), " bytes of cubin and ",
                       compiled.ptx.size(), " of PTX for ", arch, "; options:", option_text));
  }
  compiled.report = parse_compile_log(log);
  compiled.report.ptx_banner = banner_of(compiled.ptx);
  compiled.report.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return compiled;
}

}  // namespace lathe
