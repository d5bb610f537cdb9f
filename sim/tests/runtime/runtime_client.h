// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file opens the runtimes under test as the loader does for a program, and registers code by
// the calls that nvcc's start-up code makes.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "abi/cuda_runtime_api.h"
#include "sim/tests/driver/fat_binaries.h"

// Code that nvcc makes calls these; no header of the tool kit's interface has it.
extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                            int limit, void*, void*, void*, void*, int*);
void __cudaRegisterVar(void** handle, char* host, char* device, const char* name, int external,
                       size_t bytes, int constant, int global);
void __cudaRegisterManagedVar(void** handle, void** host, char* device, const char* name,
                              int external, size_t bytes, int constant, int global);
char __cudaInitModule(void** handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* symbol);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream);
}

namespace sim::tests {

// One of the two libraries. call<decltype(f)>("f") is its function of that name.
class Runtime {
 public:
  explicit Runtime(int version) {
    const std::string path = SIM_LIBRARY_DIR "/libcudart.so." + std::to_string(version);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      MESSAGE(std::string(dlerror()));
      std::abort();
    }
  }

  template <typename F>
  F* call(const char* name) const {
    void* entry = dlsym(library_, name);
    if (entry == nullptr) {
      MESSAGE(std::string(dlerror()));
      std::abort();
    }
    return reinterpret_cast<F*>(entry);
  }

 private:
  void* library_;
};

// RT(runtime, cudaMalloc)(...) calls that runtime's cudaMalloc.
#define RT(runtime, name) (*(runtime).call<decltype(name)>(#name))

inline const Runtime& cudart(int version) {
  static const Runtime twelve(12), thirteen(13);
  return version == 12 ? twelve : thirteen;
}

template <typename T>
T* allocate_on_device(const Runtime& runtime, size_t count) {
  void* pointer = nullptr;
  REQUIRE(RT(runtime, cudaMalloc)(&pointer, count * sizeof(T)) == cudaSuccess);
  return static_cast<T*>(pointer);
}

// A program's code, registered while the object lives. Its kernels and variables are known by the
// addresses of the names here, as a program's are by those of its functions.
class Registered {
 public:
  // `parts`: as nvcc -rdc=true leaves them, with machine code in their linked place.
  Registered(const Runtime& runtime, const void* image, const void* const* parts = nullptr)
      : runtime_(runtime), wrapper_{0x466243B1, parts == nullptr ? 1u : 2u, image, parts} {
    handle_ = RT(runtime_, __cudaRegisterFatBinary)(&wrapper_);
  }
  ~Registered() { RT(runtime_, __cudaUnregisterFatBinary)(handle_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  void kernel(const void* host, const char* name) {
    RT(runtime_, __cudaRegisterFunction)
    (handle_, static_cast<const char*>(host), nullptr, name, -1, nullptr, nullptr, nullptr, nullptr,
     nullptr);
  }
  void variable(void* host, const char* name, size_t bytes) {
    RT(runtime_, __cudaRegisterVar)
    (handle_, static_cast<char*>(host), nullptr, name, 0, bytes, 0, 0);
  }
  void managed(void** host, const char* name, size_t bytes) {
    RT(runtime_, __cudaRegisterManagedVar)(handle_, host, nullptr, name, 0, bytes, 0, 0);
  }
  char init_module() { return RT(runtime_, __cudaInitModule)(handle_); }

 private:
  struct Wrapper {
    uint32_t magic, version;
    const void* image;
    const void* const* parts;
  };
  const Runtime& runtime_;
  Wrapper wrapper_;
  void** handle_;
};

// `count` words on the device, all `value`.
class Words {
 public:
  Words(const Runtime& runtime, int count, int value) : runtime_(runtime), count_(count) {
    void* pointer = nullptr;
    REQUIRE(RT(runtime_, cudaMalloc)(&pointer, bytes()) == cudaSuccess);
    words_ = static_cast<int*>(pointer);
    const std::vector<int> here(static_cast<size_t>(count), value);
    REQUIRE(RT(runtime_, cudaMemcpy)(words_, here.data(), bytes(), cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  ~Words() { CHECK(RT(runtime_, cudaFree)(words_) == cudaSuccess); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(int); }
  int** pointer() const { return &words_; }
  std::vector<int> read() const {
    std::vector<int> here(static_cast<size_t>(count_));
    CHECK(RT(runtime_, cudaMemcpy)(here.data(), words_, bytes(), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
    return here;
  }

 private:
  const Runtime& runtime_;
  int count_;
  mutable int* words_ = nullptr;  // arguments of a launch are pointers to what is not const
};

// This is what <<<4, 32>>>(*pointer, n, by) compiles to since CUDA 12.
inline cudaError_t launch_as_nvcc(const Runtime& runtime, const void* symbol, int** pointer, int n,
                                  int by) {
  REQUIRE(RT(runtime, __cudaPushCallConfiguration)({4, 1, 1}, {32, 1, 1}, 0, nullptr) == 0);
  cudaKernel_t kernel = nullptr;
  REQUIRE(RT(runtime, __cudaGetKernel)(&kernel, symbol) == cudaSuccess);
  dim3 grid = {}, block = {};
  size_t shared_bytes = 1;
  cudaStream_t stream = nullptr;
  REQUIRE(RT(runtime, __cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &stream) ==
          cudaSuccess);
  void* arguments[] = {pointer, &n, &by};
  return RT(runtime, __cudaLaunchKernel)(kernel, grid, block, arguments, shared_bytes, stream);
}

// Returns what a call answers on a host thread of its own.
inline int in_thread(const std::function<int()>& body) {
  int answer = -1;
  std::thread([&] { answer = body(); }).join();
  return answer;
}

}  // namespace sim::tests
