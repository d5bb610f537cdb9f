// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This compiler library is for tests, which name it in LATHE_NVRTC. It runs each compile of the
// real compiler once and keeps the result in the folder LATHE_TEST_NVRTC_MEMO. The compiler gives
// the same bytes for the same text and options, so a test cannot tell, save by the clock. A failure
// is never kept. A file that LATHE_TEST_NVRTC_PLANT names is compiled behind the text of each unit.
// A file NAME.ptx in the folder that LATHE_TEST_NVRTC_PTX names has PTX for the units that speak of
// the template NAME: what it holds is given in place of the compiler's. An empty one gets that. The
// library says that it is of version LATHE_TEST_NVRTC_VERSION, "12.3", if that is set.
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "abi/nvrtc.h"
#include "tests/nvrtc_memo/memo.h"

namespace {

struct Real {
  void* library = nullptr;
  std::string identity;

  template <typename Function>
  Function get(const char* name) const {
    return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
  }
};

const Real& real() {
  static const Real opened = [] {
    Real result;
    for (const char* name :
         {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      result.library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (result.library != nullptr) break;
    }
    if (result.library == nullptr) return result;
    Dl_info where = {};
    dladdr(dlsym(result.library, "nvrtcVersion"), &where);
    const std::filesystem::path path = std::filesystem::canonical(where.dli_fname);
    struct stat status = {};
    stat(path.c_str(), &status);
    result.identity = path.string() + ' ' + std::to_string(status.st_size) + ' ' +
                      std::to_string(status.st_mtim.tv_sec) + '.' +
                      std::to_string(status.st_mtim.tv_nsec);
    // It opens its builtins by bare name, which only the system's folders answer.
    for (const auto& file : std::filesystem::directory_iterator(path.parent_path())) {
      if (file.path().filename().string().rfind("libnvrtc-builtins.so.", 0) == 0) {
        dlopen(file.path().c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
      }
    }
    return result;
  }();
  return opened;
}

#define REAL(name) real().get<decltype(&name)>(#name)

struct Program {
  memo::Source source;
  memo::Outputs outputs;
};

Program& of(nvrtcProgram handle) { return *reinterpret_cast<Program*>(handle); }

std::string fetch(nvrtcProgram program, nvrtcResult (*size_of)(nvrtcProgram, size_t*),
                  nvrtcResult (*get)(nvrtcProgram, char*)) {
  size_t size = 0;
  if (size_of(program, &size) != NVRTC_SUCCESS || size == 0) return {};
  std::string bytes(size, '\0');
  return get(program, bytes.data()) == NVRTC_SUCCESS ? bytes : std::string();
}

nvrtcResult compile(const memo::Source& source, int count, const char* const* options,
                    memo::Outputs* outputs) {
  std::vector<const char*> names, texts;
  for (const auto& [name, text] : source.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  nvrtcProgram program = nullptr;
  nvrtcResult result =
      REAL(nvrtcCreateProgram)(&program, source.text.c_str(), source.name.c_str(),
                               static_cast<int>(names.size()), texts.data(), names.data());
  if (result != NVRTC_SUCCESS) return result;
  result = REAL(nvrtcCompileProgram)(program, count, options);
  outputs->log = fetch(program, REAL(nvrtcGetProgramLogSize), REAL(nvrtcGetProgramLog));
  if (result == NVRTC_SUCCESS) {
    outputs->ptx = fetch(program, REAL(nvrtcGetPTXSize), REAL(nvrtcGetPTX));
    outputs->cubin = fetch(program, REAL(nvrtcGetCUBINSize), REAL(nvrtcGetCUBIN));
  }
  REAL(nvrtcDestroyProgram)(&program);
  return result;
}

void exchange_ptx(const std::filesystem::path& folder, const std::string& unit, std::string* ptx) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (unit.find(file.path().stem().string() + '<') == std::string::npos) continue;
    std::ostringstream given;
    given << std::ifstream(file.path(), std::ios::binary).rdbuf();
    if (!given.str().empty()) {
      *ptx = given.str() + '\0';
    } else {
      std::ofstream(file.path(), std::ios::binary) << ptx->c_str();
    }
  }
}

nvrtcResult give(const std::string& bytes, size_t* size) {
  *size = bytes.size();
  return NVRTC_SUCCESS;
}

nvrtcResult give(const std::string& bytes, char* out) {
  bytes.copy(out, bytes.size());
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) {
  const auto function = REAL(nvrtcGetErrorString);
  return function == nullptr ? "no NVRTC" : function(result);
}

nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (const char* told = std::getenv("LATHE_TEST_NVRTC_VERSION")) {
    return std::sscanf(told, "%d.%d", major, minor) == 2 ? NVRTC_SUCCESS
                                                         : NVRTC_ERROR_INVALID_INPUT;
  }
  const auto function = REAL(nvrtcVersion);
  return function == nullptr ? NVRTC_ERROR_INTERNAL_ERROR : function(major, minor);
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) { return REAL(nvrtcGetNumSupportedArchs)(count); }

nvrtcResult nvrtcGetSupportedArchs(int* archs) { return REAL(nvrtcGetSupportedArchs)(archs); }

nvrtcResult nvrtcCreateProgram(nvrtcProgram* out, const char* text, const char* name, int count,
                               const char* const* headers, const char* const* names) {
  auto* program = new Program;
  program->source.text = text;
  if (const char* planted = std::getenv("LATHE_TEST_NVRTC_PLANT")) {
    std::ostringstream more;
    more << std::ifstream(planted).rdbuf();
    program->source.text += more.str();
  }
  program->source.name = name == nullptr ? "" : name;
  for (int i = 0; i < count; ++i) program->source.headers.emplace_back(names[i], headers[i]);
  *out = reinterpret_cast<nvrtcProgram>(program);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* handle) {
  delete reinterpret_cast<Program*>(*handle);
  *handle = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int count, const char* const* options) {
  Program& program = of(handle);
  const char* folder = std::getenv("LATHE_TEST_NVRTC_MEMO");
  const char* exchange = std::getenv("LATHE_TEST_NVRTC_PTX");
  std::string key;
  if (folder != nullptr && *folder != '\0' && std::getenv("NVRTC_APPEND_FLAGS") == nullptr) {
    key = memo::key_of(real().identity, program.source, {options, options + count});
  }
  nvrtcResult result = NVRTC_SUCCESS;
  if (auto kept = key.empty() ? std::nullopt : memo::load(folder, key)) {
    program.outputs = std::move(*kept);
  } else {
    result = compile(program.source, count, options, &program.outputs);
    if (result == NVRTC_SUCCESS && !key.empty()) memo::save(folder, key, program.outputs);
  }
  if (result == NVRTC_SUCCESS && exchange != nullptr) {
    exchange_ptx(exchange, program.source.text, &program.outputs.ptx);
  }
  return result;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  return give(of(program).outputs.log, size);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* out) {
  return give(of(program).outputs.log, out);
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  return give(of(program).outputs.ptx, size);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* out) {
  return give(of(program).outputs.ptx, out);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  return give(of(program).outputs.cubin, size);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* out) {
  return give(of(program).outputs.cubin, out);
}

}  // extern "C"
