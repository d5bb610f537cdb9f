// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file keeps what a program registers before main, and loads it when it is used.
#include "sim/runtime/registry.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "sim/runtime/fat_binary.h"

namespace sim::runtime {
namespace {

struct FatBinary {
  const FatWrapper* wrapper = nullptr;
  CUlibrary library = nullptr;
  cudaError_t error = cudaSuccess;  // what is wrong with the code
};

struct Kernel {
  FatBinary* binary;
  const char* name;
  CUkernel handle = nullptr;
};

struct Variable {
  FatBinary* binary;
  const char* name;
  void** host_pointer = nullptr;  // of a __managed__ one: where the host's code finds its address
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<FatBinary*, std::unique_ptr<FatBinary>> binaries;
  std::unordered_map<const void*, Kernel> kernels;
  std::unordered_map<const void*, Variable> variables;
  std::unordered_set<const void*> handles;  // of kernels, all that were handed out
};

// Programs register before main and unregister after it: the registry is never destroyed.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

// Once the process is on its way out the driver may have gone first.
bool leaving = false;
void watch_exit() {
  static const int once = std::atexit([] { leaving = true; });
  (void)once;
}

// Returns true for errors of the code itself, which no other attempt would mend. Others pass: a
// fault does when the device is reset.
bool is_about_code(cudaError_t error) {
  return error == cudaErrorInvalidKernelImage || error == cudaErrorNoKernelImageForDevice ||
         error == cudaErrorInvalidPtx || error == cudaErrorUnsupportedPtxVersion;
}

Result load(FatBinary& binary) {
  if (binary.library != nullptr || binary.error != cudaSuccess) return binary.error;
  watch_exit();
  const Result result = load_fat_binary(*binary.wrapper, &binary.library);
  if (is_about_code(result.error)) binary.error = result.error;
  return result;
}

Result resolve(Registry& all, Kernel& kernel, CUkernel* out) {
  if (kernel.handle == nullptr) {
    Result result = load(*kernel.binary);
    if (result.failed()) return result;
    result = driver().cuLibraryGetKernel(&kernel.handle, kernel.binary->library, kernel.name);
    if (result.error == cudaErrorSymbolNotFound) return cudaErrorInvalidDeviceFunction;
    if (result.failed()) return result;
    all.handles.insert(kernel.handle);
  }
  *out = kernel.handle;
  return cudaSuccess;
}

Result locate(const Variable& variable, CUdeviceptr* address, size_t* bytes) {
  const Result result = load(*variable.binary);
  if (result.failed()) return result;
  const auto get =
      variable.host_pointer != nullptr ? driver().cuLibraryGetManaged : driver().cuLibraryGetGlobal;
  return get(address, bytes, variable.binary->library, variable.name);
}

// Tells the host where its __managed__ variables are, those that wanted(variable) picks.
template <typename F>
Result place_managed(F wanted) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (auto& [symbol, variable] : all.variables) {
    if (variable.host_pointer == nullptr || !wanted(variable)) continue;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const Result result = locate(variable, &address, &bytes);
    if (result.failed()) return result;
    *variable.host_pointer = reinterpret_cast<void*>(address);
  }
  return cudaSuccess;
}

template <typename Map>
void forget(Map& map, const FatBinary* binary) {
  std::erase_if(map, [&](const auto& each) { return each.second.binary == binary; });
}

}  // namespace

Result find_kernel(const void* symbol, CUkernel* out) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto it = all.kernels.find(symbol);
  if (it != all.kernels.end()) return resolve(all, it->second, out);
  if (all.handles.count(symbol) == 0) return cudaErrorInvalidDeviceFunction;
  *out = reinterpret_cast<CUkernel>(const_cast<void*>(symbol));
  return cudaSuccess;
}

Result find_variable(const void* symbol, CUdeviceptr* address, size_t* bytes) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto it = all.variables.find(symbol);
  if (it == all.variables.end()) {
    // The name of a __managed__ variable in the host's code is the variable itself.
    it = std::find_if(all.variables.begin(), all.variables.end(), [&](const auto& each) {
      return each.second.host_pointer != nullptr && *each.second.host_pointer == symbol;
    });
  }
  return it == all.variables.end() ? Result(cudaErrorInvalidSymbol)
                                   : locate(it->second, address, bytes);
}

Result find_range(const void* symbol, size_t offset, size_t bytes, void** out) {
  CUdeviceptr start = 0;
  size_t size = 0;
  const Result result = find_variable(symbol, &start, &size);
  if (result.failed()) return result;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *out = reinterpret_cast<void*>(start + offset);
  return cudaSuccess;
}

Result renew_managed() {
  return place_managed([](const Variable& it) { return *it.host_pointer != nullptr; });
}

void know_kernel(CUkernel kernel) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.handles.insert(kernel);
}

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME void** __cudaRegisterFatBinary(void* wrapper) {
  auto binary = std::make_unique<FatBinary>();
  binary->wrapper = static_cast<const FatWrapper*>(wrapper);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  FatBinary* handle = binary.get();
  all.binaries[handle] = std::move(binary);
  return reinterpret_cast<void**>(handle);
}

SIM_RUNTIME void __cudaRegisterFatBinaryEnd(void**) {}

SIM_RUNTIME void __cudaUnregisterFatBinary(void** handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto* binary = reinterpret_cast<FatBinary*>(handle);
  const auto it = all.binaries.find(binary);
  if (it == all.binaries.end()) return;
  forget(all.kernels, binary);
  forget(all.variables, binary);
  if (binary->library != nullptr && !leaving) driver().cuLibraryUnload(binary->library);
  all.binaries.erase(it);
}

SIM_RUNTIME void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name,
                                        int, void*, void*, void*, void*, int*) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.kernels[host] = {reinterpret_cast<FatBinary*>(handle), name};
}

SIM_RUNTIME void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t,
                                   int, int) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.variables[host] = {reinterpret_cast<FatBinary*>(handle), name};
}

SIM_RUNTIME void __cudaRegisterManagedVar(void** handle, void** host_pointer, char*,
                                          const char* name, int, size_t, int, int) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.variables[host_pointer] = {reinterpret_cast<FatBinary*>(handle), name, host_pointer};
}

// The host's code calls this before it first touches a __managed__ variable.
SIM_RUNTIME char __cudaInitModule(void** handle) {
  const auto* binary = reinterpret_cast<FatBinary*>(handle);
  const cudaError_t error = with_context([&](const Driver&) {
    return place_managed([&](const Variable& variable) { return variable.binary == binary; });
  });
  return error == cudaSuccess ? 1 : 0;
}

SIM_RUNTIME cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* symbol) {
  return with_context([&](const Driver&) -> Result {
    // The launch tells why a kernel cannot be had, if it cannot.
    if (find_kernel(symbol, out).failed()) {
      *out = reinterpret_cast<cudaKernel_t>(const_cast<void*>(symbol));
    }
    return cudaSuccess;
  });
}

SIM_RUNTIME cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  return with_context([&](const Driver&) -> Result {
    size_t bytes = 0;
    if (pointer == nullptr) return cudaErrorInvalidValue;
    return find_variable(symbol, reinterpret_cast<CUdeviceptr*>(pointer), &bytes);
  });
}

SIM_RUNTIME cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return with_context([&](const Driver&) -> Result {
    CUdeviceptr address = 0;
    if (bytes == nullptr) return cudaErrorInvalidValue;
    return find_variable(symbol, &address, bytes);
  });
}
