// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles libraries: code that belongs to no context, and its kernels.
#include <algorithm>

#include "sim/driver/code/function.h"
#include "sim/driver/code/image.h"
#include "sim/driver/code/members.h"
#include "sim/driver/context.h"
#include "sim/driver/entry.h"
#include "sim/driver/graph/capture.h"
#include "sim/driver/report/report.h"

namespace sim::driver {
namespace {

// Returns whether the library has a managed variable: of this name, or any without a name.
bool has_managed(const Library& library, const char* name) {
  const auto& variables = library.code->variables();
  return std::any_of(variables.begin(), variables.end(), [&](const Variable& variable) {
    return variable.managed && (name == nullptr || variable.name == name);
  });
}

CUresult module_in(Driver& driver, Context& context, Library& library,
                   std::shared_ptr<Module>* out) {
  auto it = library.modules.find(context.handle);
  if (it != library.modules.end()) {
    *out = it->second;
    return CUDA_SUCCESS;
  }
  // A managed variable is one for all devices; here it has a place on one.
  if (!library.modules.empty() && has_managed(library, nullptr)) {
    report_note("a library with managed variables is not supported on more than one device");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::string log;
  const CUresult result = instantiate(driver, context, library.code, out, &log);
  if (result == CUDA_SUCCESS) library.modules[context.handle] = *out;
  return result;
}

}  // namespace

CUresult function_of_kernel(Driver& driver, Context& context, LibraryKernel& kernel,
                            std::shared_ptr<Function>* out) {
  const bool fresh = kernel.library->modules.count(context.handle) == 0;
  std::shared_ptr<Module> module;
  const CUresult result = module_in(driver, context, *kernel.library, &module);
  if (result != CUDA_SUCCESS) return result;
  if (fresh) {
    for (const auto& [name, other] : kernel.library->kernels) {
      for (const auto& [key, value] : other->attributes) {
        if (key.first == context.device->ordinal) {
          set_attribute(*module->functions.at(name), context.device->profile, key.second, value);
        }
      }
    }
  }
  *out = module->functions.at(kernel.kernel->name);
  return CUDA_SUCCESS;
}

CUresult resolve_function(Driver& driver, Context& context, CUfunction handle,
                          std::shared_ptr<Function>* out) {
  if ((*out = driver.find<Function>(handle))) return CUDA_SUCCESS;
  auto kernel = driver.find<LibraryKernel>(handle);
  return kernel ? function_of_kernel(driver, context, *kernel, out) : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace sim::driver

using namespace sim::driver;

namespace {

// Answers with what `make` makes of an object in the current context.
template <typename Object, typename Made, typename Out, typename Handle, typename F>
CUresult made_here(Out* out, Handle handle, F make) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    const auto object = driver.find<Object>(handle);
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!object) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Made> made;
    const CUresult result = make(driver, context, *object, &made);
    if (result == CUDA_SUCCESS) *out = handle_of<Out>(made);
    return result;
  });
}

}  // namespace

SIM_API cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option* options, void** values,
                          unsigned count, CUlibraryOption* library_options, void** library_values,
                          unsigned library_count) {
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    if (out == nullptr || (library_count > 0 && library_options == nullptr)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    (void)library_values;  // host universal functions and "preserve the binary": nothing to do
    auto use = [&](CUresult parsed, const std::shared_ptr<const sim::Module>& code, std::string*) {
      if (parsed != CUDA_SUCCESS) return parsed;
      auto library = driver.add(std::make_shared<Library>());
      library->code = code;
      for (const sim::Kernel& each : code->kernels()) {
        auto kernel = driver.add(std::make_shared<LibraryKernel>());
        kernel->library = library.get();
        kernel->kernel = &each;
        library->kernels[each.name] = kernel;
      }
      driver.libraries[library->handle] = library;
      *out = handle_of<CUlibrary>(library);
      return CUDA_SUCCESS;
    };
    return load_code(driver, lock, driver.devices[0]->profile, image, {count, options, values},
                     use);
  });
}

SIM_API cuLibraryUnload(CUlibrary handle) {
  return with_driver([&](Driver& driver, Lock& lock) -> CUresult {
    auto library = driver.find<Library>(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = check_unsafe_in_capture(driver);
    if (result != CUDA_SUCCESS) return result;
    driver.libraries.erase(library->handle);
    driver.objects.erase(library->handle);
    for (auto& [name, kernel] : library->kernels) driver.objects.erase(kernel->handle);
    for (auto& [context, module] : library->modules) {
      const bool dead = module->context->error != CUDA_SUCCESS;
      unload_module(driver, lock, module, dead);
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return with_driver([&](Driver& driver, Lock&) {
    return find_member(out, driver.find<Library>(handle), &Library::kernels, name);
  });
}

SIM_API cuLibraryGetKernelCount(unsigned* out, CUlibrary handle) {
  return with_driver([&](Driver& driver, Lock&) {
    return count_members(out, driver.find<Library>(handle), &Library::kernels);
  });
}

SIM_API cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary handle) {
  return with_driver([&](Driver& driver, Lock&) {
    return list_members(out, count, driver.find<Library>(handle), &Library::kernels);
  });
}

SIM_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  return made_here<Library, Module>(out, handle, module_in);
}

SIM_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                           const char* name) {
  CUmodule module = nullptr;
  const CUresult result = cuLibraryGetModule(&module, handle);
  return result != CUDA_SUCCESS ? result : cuModuleGetGlobal(address, bytes, module, name);
}

SIM_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                            const char* name) {
  const CUresult known = with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto library = driver.find<Library>(handle);
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    return has_managed(*library, name) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
  return known != CUDA_SUCCESS ? known : cuLibraryGetGlobal(address, bytes, handle, name);
}

SIM_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  return made_here<LibraryKernel, Function>(out, handle, function_of_kernel);
}

namespace {

// Returns the kernel as a function of a fresh module on the device, attributes included.
Function as_function(const LibraryKernel& kernel, const Device& device) {
  Function function;
  function.code = kernel.library->code;
  function.kernel = kernel.kernel;
  function.max_dynamic_shared = std::max(
      0, device.profile.shared_per_block - static_cast<int>(kernel.kernel->static_shared_bytes));
  for (const auto& [key, value] : kernel.attributes) {
    if (key.first == device.ordinal) set_attribute(function, device.profile, key.second, value);
  }
  return function;
}

}  // namespace

SIM_API cuKernelGetAttribute(int* out, CUfunction_attribute attribute, CUkernel handle,
                             CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device& device) -> CUresult {
    auto kernel = driver.find<LibraryKernel>(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    return get_attribute(as_function(*kernel, device), device.profile, attribute, out);
  });
}

SIM_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                             CUdevice ordinal) {
  return with_device(ordinal, [&](Driver& driver, Lock&, Device& device) -> CUresult {
    auto kernel = driver.find<LibraryKernel>(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    Function trial = as_function(*kernel, device);
    const CUresult result = set_attribute(trial, device.profile, attribute, value);
    if (result != CUDA_SUCCESS) return result;
    kernel->attributes[{ordinal, attribute}] = value;
    for (auto& [context, module] : kernel->library->modules) {
      if (module->context->device == &device) {
        set_attribute(*module->functions.at(kernel->kernel->name), device.profile, attribute,
                      value);
      }
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuKernelGetName(const char** out, CUkernel handle) {
  return ask<LibraryKernel>(
      out, handle, [](const LibraryKernel& kernel) { return kernel.kernel->name.c_str(); });
}

SIM_API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    auto kernel = driver.find<LibraryKernel>(handle);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    return param_info(*kernel->kernel, index, offset, bytes);
  });
}
