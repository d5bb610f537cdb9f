// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Messages are put together with +: streams would triple the size of the compile process.
#include "codegen/nvrtc_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <charconv>
#include <cstring>

#include "abi/nvrtc.h"
#include "codegen/base/hex.h"

namespace lathe {

// The functions of NVRTC that are called. All are required.
#define LATHE_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                \
  X(nvrtcGetErrorString)         \
  X(nvrtcGetNumSupportedArchs)   \
  X(nvrtcGetSupportedArchs)      \
  X(nvrtcCreateProgram)          \
  X(nvrtcDestroyProgram)         \
  X(nvrtcCompileProgram)         \
  X(nvrtcGetProgramLogSize)      \
  X(nvrtcGetProgramLog)          \
  X(nvrtcGetPTXSize)             \
  X(nvrtcGetPTX)                 \
  X(nvrtcGetCUBINSize)           \
  X(nvrtcGetCUBIN)

struct NvrtcLibrary::Api {
#define LATHE_NVRTC_MEMBER(name) decltype(&::name) name = nullptr;
  LATHE_NVRTC_FUNCTIONS(LATHE_NVRTC_MEMBER)
#undef LATHE_NVRTC_MEMBER
};

namespace {

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
void hold_builtins(const std::string& path, int major, int minor) {
  const std::string file = path.substr(0, path.rfind('/') + 1) + "libnvrtc-builtins.so." +
                           std::to_string(major) + "." + std::to_string(minor);
  dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
}

template <typename Function>
bool resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The build id in the notes of one segment; empty if it is not there.
std::string build_id_in(const char* note, const char* end) {
  while (note + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof(header));
    const char* name = note + sizeof(header);
    const char* bytes = name + (header.n_namesz + 3u) / 4u * 4u;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(name, "GNU", 4) == 0) {
      return hex_of({bytes, header.n_descsz});
    }
    note = bytes + (header.n_descsz + 3u) / 4u * 4u;
  }
  return {};
}

std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// Says why no candidate would do. `newer`: those that opened and are too new for the driver.
Status none_of(const std::string& tried, const std::string& newer, int driver_version) {
  if (newer.empty()) {
    return Status(Code::compile_failed,
                  "the compiler library NVRTC could not be opened; set LATHE_NVRTC to "
                  "libnvrtc.so.13 or .so.12. Tried:" +
                      tried);
  }
  const int major = driver_version / 1000;
  const std::string needed = std::to_string(major);
  return Status(Code::compile_failed,
                "the driver, of CUDA " + version_text(major, driver_version % 1000 / 10) +
                    ", loads no code of a newer major version; found is " + newer +
                    ", needed is NVRTC " + needed + ": pip install nvidia-cuda-nvrtc-cu" + needed +
                    " and set LATHE_NVRTC to its libnvrtc.so." + needed);
}

}  // namespace

std::mutex& loader_mutex() {
  static std::mutex mutex;
  return mutex;
}

bool driver_loads(int compiler_major, int driver_version) {
  return driver_version == 0 || compiler_major <= driver_version / 1000;
}

CompilerVersion version_of_identity(std::string_view identity) {
  constexpr std::string_view kName = "nvrtc ";
  CompilerVersion version;
  if (!identity.starts_with(kName)) return {};
  const char* const end = identity.data() + identity.size();
  const auto [after, error] = std::from_chars(identity.data() + kName.size(), end, version.major);
  if (error != std::errc() || version.major <= 0 || version.major > 1000) return {};
  if (after == end || *after != '.') return {};
  if (std::from_chars(after + 1, end, version.minor).ec != std::errc()) return {};
  return version.minor >= 0 && version.minor <= 1000 ? version : CompilerVersion{};
}

std::string build_id_of(const void* address) {
  Dl_info where{};
  if (dladdr(address, &where) == 0) return {};
  // The loader has mapped the file's first page, which begins with the table of its segments.
  const auto* const base = static_cast<const char*>(where.dli_fbase);
  const auto* const file = reinterpret_cast<const ElfW(Ehdr)*>(base);
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(base + file->e_phoff);
  std::string id;
  for (int i = 0; i < file->e_phnum && id.empty(); ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    const char* const note = base + segments[i].p_vaddr;
    id = build_id_in(note, note + segments[i].p_memsz);
  }
  return id;
}

NvrtcLibrary::NvrtcLibrary() : api_(std::make_unique<Api>()) {}
NvrtcLibrary::~NvrtcLibrary() = default;

bool NvrtcLibrary::resolve_all(void* library) {
  bool all = true;
#define LATHE_NVRTC_RESOLVE(name) all = all && resolve(library, #name, &api_->name);
  LATHE_NVRTC_FUNCTIONS(LATHE_NVRTC_RESOLVE)
#undef LATHE_NVRTC_RESOLVE
  return all;
}

void NvrtcLibrary::take_facts() {
  const Api& api = *api_;
  const auto* const inside = reinterpret_cast<const void*>(api.nvrtcVersion);
  Dl_info where{};
  if (dladdr(inside, &where) != 0) {
    facts_.path = where.dli_fname;
    hold_builtins(facts_.path, facts_.major, facts_.minor);
  }
  const std::string id = build_id_of(inside);
  facts_.identity =
      "nvrtc " + version_text(facts_.major, facts_.minor) + " " + (id.empty() ? "no-build-id" : id);
  int count = 0;
  if (api.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0) return;
  std::vector<int> numbers(static_cast<size_t>(count));
  if (api.nvrtcGetSupportedArchs(numbers.data()) != NVRTC_SUCCESS) return;
  for (const int number : numbers) facts_.archs.push_back("sm_" + std::to_string(number));
}

Result<std::shared_ptr<const NvrtcLibrary>> NvrtcLibrary::open(
    const std::vector<CompilerCandidate>& candidates, int driver_version) {
  std::string tried, newer;
  const std::lock_guard<std::mutex> guard(loader_mutex());
  for (const CompilerCandidate& candidate : candidates) {
    void* const library = dlopen(candidate.file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      const char* const why = dlerror();
      tried += "\n  " + candidate.file + ": " + (why == nullptr ? "not found" : why);
      continue;
    }
    std::shared_ptr<NvrtcLibrary> opened(new NvrtcLibrary());
    CompilerFacts& facts = opened->facts_;
    facts.asked = candidate.asked;
    if (!opened->resolve_all(library) ||
        opened->api_->nvrtcVersion(&facts.major, &facts.minor) != NVRTC_SUCCESS ||
        facts.major < 12) {
      return Status(Code::compile_failed, "NVRTC " + version_text(facts.major, facts.minor) + " (" +
                                              candidate.file +
                                              ") is too old; needed is 12.0 or later");
    }
    if (driver_loads(facts.major, driver_version)) {
      opened->take_facts();
      return std::shared_ptr<const NvrtcLibrary>(std::move(opened));
    }
    if (newer.empty()) {
      newer = "NVRTC " + version_text(facts.major, facts.minor) + " (" + candidate.file + ")";
    }
  }
  return none_of(tried, newer, driver_version);
}

CompileOutcome NvrtcLibrary::compile(const CompileJob& job) const {
  std::vector<const char*> options, names, texts;
  for (const std::string& option : job.options) options.push_back(option.c_str());
  for (const CompileHeader& header : job.headers) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  CompileOutcome outcome;
  nvrtcProgram program = nullptr;
  const auto destroy = [this](nvrtcProgram* made) {
    if (*made != nullptr) api_->nvrtcDestroyProgram(made);
  };
  const std::unique_ptr<nvrtcProgram, decltype(destroy)> on_every_way_out(&program, destroy);
  nvrtcResult result =
      api_->nvrtcCreateProgram(&program, job.unit.c_str(), "/lathe/entry.cu",
                               static_cast<int>(names.size()), texts.data(), names.data());
  if (result == NVRTC_SUCCESS) {
    result = api_->nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
    outcome.log =
        without_zero(fetch(program, api_->nvrtcGetProgramLogSize, api_->nvrtcGetProgramLog));
  }
  if (result != NVRTC_SUCCESS) {
    const char* const word = api_->nvrtcGetErrorString(result);
    outcome.error = word == nullptr || *word == '\0' ? "unknown error of NVRTC" : word;
    return outcome;
  }
  outcome.cubin = fetch(program, api_->nvrtcGetCUBINSize, api_->nvrtcGetCUBIN);
  outcome.ptx = without_zero(fetch(program, api_->nvrtcGetPTXSize, api_->nvrtcGetPTX));
  return outcome;
}

}  // namespace lathe
