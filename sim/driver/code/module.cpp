// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles modules: code that belongs to one context.
#include "sim/driver/code/image.h"
#include "sim/driver/code/members.h"
#include "sim/driver/context.h"
#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/work.h"

namespace sim::driver {

void unload_module(Driver& driver, Lock& lock, const std::shared_ptr<Module>& module, bool now) {
  Context& context = *module->context;
  context.modules.erase(module->handle);
  driver.objects.erase(module->handle);
  for (auto& [name, function] : module->functions) driver.objects.erase(function->handle);
  for (const auto& [name, address] : module->image->symbols) driver.blocks.erase(address);
  auto unload = [image = module->image, memory = context.device->memory.get()] {
    unload_image(*image, *memory);
    return CUDA_SUCCESS;
  };
  if (now) {
    unload();
  } else {
    after_everything(driver, lock, context, unload);
  }
}

namespace {

CUresult load_module(CUmodule* out, const void* image, unsigned count, CUjit_option* options,
                     void** values) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto use = [&](CUresult parsed, const std::shared_ptr<const sim::Module>& code,
                   std::string* log) {
      if (!context.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      if (parsed != CUDA_SUCCESS) return parsed;
      std::shared_ptr<Module> module;
      const CUresult result = instantiate(driver, context, code, &module, log);
      if (result == CUDA_SUCCESS) *out = handle_of<CUmodule>(module);
      return result;
    };
    return load_code(driver, lock, context.device->profile, image, {count, options, values}, use);
  });
}

}  // namespace
}  // namespace sim::driver

using namespace sim::driver;

SIM_API cuModuleLoadData(CUmodule* out, const void* image) {
  return load_module(out, image, 0, nullptr, nullptr);
}

SIM_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, CUjit_option* options,
                           void** values) {
  return load_module(out, image, count, options, values);
}

SIM_API cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return load_module(out, image, 0, nullptr, nullptr);
}

SIM_API cuModuleLoad(CUmodule* out, const char* path) {
  return guarded([&]() -> CUresult {
    std::string text;
    const CUresult result = read_file(path, &text);
    if (result != CUDA_SUCCESS) return result;
    return load_module(out, text.c_str(), 0, nullptr, nullptr);
  });
}

SIM_API cuModuleUnload(CUmodule handle) {
  return with_context([&](Driver& driver, Lock& lock, Context&) -> CUresult {
    auto module = driver.find<Module>(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    unload_module(driver, lock, module, false);
    return module->context->error;
  });
}

SIM_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return with_context([&](Driver& driver, Lock&, Context&) {
    return find_member(out, driver.find<Module>(handle), &Module::functions, name);
  });
}

SIM_API cuModuleGetFunctionCount(unsigned* out, CUmodule handle) {
  return with_context([&](Driver& driver, Lock&, Context&) {
    return count_members(out, driver.find<Module>(handle), &Module::functions);
  });
}

SIM_API cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  return with_context([&](Driver& driver, Lock&, Context&) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto module = driver.find<Module>(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    auto it = module->image->symbols.find(name);
    if (it == module->image->symbols.end()) return CUDA_ERROR_NOT_FOUND;
    if (address != nullptr) *address = it->second;
    if (bytes != nullptr) {
      const Block* block = driver.find_block(it->second);
      *bytes = block == nullptr ? 0 : block->bytes;
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuModuleGetLoadingMode(CUmoduleLoadingMode* out) {
  return with_driver([&](Driver&, Lock&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
  });
}
