// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file compiles CUDA C++ to PTX by NVRTC, if NVRTC can be opened.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "abi/nvrtc.h"

namespace sim::test {

class Nvrtc {
 public:
  Nvrtc() {
    for (const char* name :
         {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if ((handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
    }
    Dl_info where = {};
    if (handle_ && dladdr(dlsym(handle_, "nvrtcVersion"), &where)) hold_builtins(where.dli_fname);
  }
  bool available() const { return handle_ != nullptr; }

  // NVRTC opens its builtins by name, which leads nowhere from a folder that only this program's
  // run path knows; opened once by their path, they are found.
  static void hold_builtins(const std::filesystem::path& nvrtc) {
    for (const auto& file : std::filesystem::directory_iterator(nvrtc.parent_path())) {
      if (file.path().filename().string().rfind("libnvrtc-builtins.so.", 0) == 0) {
        dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
      }
    }
  }

  // Returns an empty text, and the log in `log`, on failure.
  std::string compile(const std::string& source, const std::string& arch, std::string* log,
                      std::vector<std::string> extra = {}) {
    nvrtcProgram program = nullptr;
    get<decltype(&nvrtcCreateProgram)>("nvrtcCreateProgram")(&program, source.c_str(), "test.cu", 0,
                                                             nullptr, nullptr);
    extra.push_back("--gpu-architecture=compute_" + arch.substr(3));
    extra.push_back("-I" SIM_CUDA_INCLUDE);
    extra.push_back("-lineinfo");
    std::vector<const char*> options;
    for (const std::string& o : extra) options.push_back(o.c_str());
    const nvrtcResult result = get<decltype(&nvrtcCompileProgram)>("nvrtcCompileProgram")(
        program, static_cast<int>(options.size()), options.data());
    size_t bytes = 0;
    get<decltype(&nvrtcGetProgramLogSize)>("nvrtcGetProgramLogSize")(program, &bytes);
    log->resize(bytes);
    get<decltype(&nvrtcGetProgramLog)>("nvrtcGetProgramLog")(program, log->data());
    std::string ptx;
    if (result == NVRTC_SUCCESS) {
      get<decltype(&nvrtcGetPTXSize)>("nvrtcGetPTXSize")(program, &bytes);
      ptx.resize(bytes);
      get<decltype(&nvrtcGetPTX)>("nvrtcGetPTX")(program, ptx.data());
    }
    get<decltype(&nvrtcDestroyProgram)>("nvrtcDestroyProgram")(&program);
    while (!ptx.empty() && ptx.back() == '\0') ptx.pop_back();
    return ptx;
  }

 private:
  template <class F>
  F get(const char* name) const {
    return reinterpret_cast<F>(dlsym(handle_, name));
  }
  void* handle_ = nullptr;
};

}  // namespace sim::test
