// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These cases need a process of their own: other devices, and what is told on stderr.
#include "sim/tests/child.h"
#include "sim/tests/runtime/runtime_client.h"
#include "sim/tests/runtime/runtime_texts.h"

using namespace sim::tests;

namespace {

const Runtime& rt() { return cudart(13); }
char add_here, other_here, total_here;

int device_now() {
  int device = -1;
  return RT(rt(), cudaGetDevice)(&device) == cudaSuccess ? device : -1;
}

int total_now() {
  int total = -1;
  const cudaError_t error =
      RT(rt(), cudaMemcpyFromSymbol)(&total, &total_here, 4, 0, cudaMemcpyDeviceToHost);
  return error == cudaSuccess ? total : -1;
}

}  // namespace

TEST_CASE("what is not supported says so, once, and is the last error") {
  const Child child = in_child({}, [] {
    for (int time = 0; time < 2; ++time) {
      if (RT(rt(), cudaGetLastError)() != cudaSuccess) return 1;
      const int error = (*rt().call<int()>("cudaMallocArray"))();
      if (error != cudaErrorNotSupported) return 2;
      if (RT(rt(), cudaGetLastError)() != cudaErrorNotSupported) return 3;
    }
    return 0;
  });
  CHECK(child.status == 0);
  CHECK(child.error == "lathe sim: cudaMallocArray is not supported\n");
}

TEST_CASE("a context is made by the first call that needs one") {
  const Child child = in_child({}, [] {
    int count = 0, active = 1;
    unsigned flags = 0;
    cudaDeviceProp about = {};
    if (RT(rt(), cudaGetDeviceCount)(&count) != cudaSuccess) return 1;
    if (RT(rt(), cudaGetDeviceProperties)(&about, 0) != cudaSuccess) return 2;
    cuda().device_primary_ctx_get_state(0, &flags, &active);
    if (active != 0) return 3;
    if (RT(rt(), cudaFree)(nullptr) != cudaSuccess) return 4;  // what programs call for this
    cuda().device_primary_ctx_get_state(0, &flags, &active);
    return active == 1 ? 0 : 5;
  });
  CHECK(child.status == 0);
}

TEST_CASE("a context that the program made current by the driver is the one that is used") {
  const Child child = in_child({{"LATHE_SIM_DEVICES", "2"}}, [] {
    CUcontext mine = nullptr, used = nullptr;
    if (cuda().init(0) != CUDA_SUCCESS) return 1;
    if (cuda().ctx_create(&mine, nullptr, 0, 1) != CUDA_SUCCESS) return 2;
    if (device_now() != 1) return 3;
    const Words words(rt(), 4, 1);
    const auto address = reinterpret_cast<CUdeviceptr>(*words.pointer());
    cuda().pointer_get_attribute(&used, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    return used == mine ? 0 : 4;
  });
  CHECK(child.status == 0);
}

TEST_CASE("each thread has its device") {
  const Child child = in_child({{"LATHE_SIM_DEVICES", "2"}}, [] {
    int count = 0;
    if (RT(rt(), cudaGetDeviceCount)(&count) != cudaSuccess || count != 2) return 1;
    if (RT(rt(), cudaSetDevice)(1) != cudaSuccess || device_now() != 1) return 2;
    if (in_thread(device_now) != 0) return 3;
    if (RT(rt(), cudaSetDevice)(2) != cudaErrorInvalidDevice || device_now() != 1) return 4;
    return 0;
  });
  CHECK(child.status == 0);
}

TEST_CASE("each device has its variables and its attributes of kernels") {
  const Child child = in_child({{"LATHE_SIM_DEVICES", "2"}}, [] {
    const std::vector<uint64_t> image = fat_binary_of(adding_text());
    Registered code(rt(), image.data());
    code.kernel(&add_here, "add");
    code.variable(&total_here, "total", 4);
    RT(rt(), cudaSetDevice)(1);
    const int given = 77;
    RT(rt(), cudaMemcpyToSymbol)(&total_here, &given, 4, 0, cudaMemcpyHostToDevice);
    RT(rt(), cudaFuncSetAttribute)(&add_here, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    cudaFuncAttributes there = {}, here = {};
    RT(rt(), cudaFuncGetAttributes)(&there, &add_here);
    if (total_now() != 77 || there.maxDynamicSharedSizeBytes != 100000) return 1;
    RT(rt(), cudaSetDevice)(0);
    RT(rt(), cudaFuncGetAttributes)(&here, &add_here);
    return total_now() == 5 && here.maxDynamicSharedSizeBytes == 48 * 1024 ? 0 : 2;
  });
  CHECK(child.status == 0);
}

TEST_CASE("copies between devices, and peer access") {
  const Child child = in_child({{"LATHE_SIM_DEVICES", "2"}}, [] {
    const Words here(rt(), 4, 1);
    RT(rt(), cudaSetDevice)(1);
    const Words there(rt(), 4, 9);
    int* from = *there.pointer();
    if (RT(rt(), cudaMemcpyPeer)(*here.pointer(), 0, from, 1, 12) != cudaSuccess) return 1;
    if (here.read() != std::vector<int>{9, 9, 9, 1}) return 2;
    cudaMemcpy3DPeerParms box = {};
    box.srcPtr = {from, 8, 8, 2};
    box.srcDevice = 1;
    box.dstPtr = {*here.pointer(), 8, 8, 2};
    box.dstDevice = 0;
    box.dstPos = {4, 1, 0};
    box.extent = {4, 1, 1};
    if (RT(rt(), cudaMemcpy3DPeer)(&box) != cudaSuccess) return 3;
    if (here.read() != std::vector<int>(4, 9)) return 4;
    int possible = 0;
    RT(rt(), cudaDeviceCanAccessPeer)(&possible, 1, 0);
    if (possible != 1) return 5;
    if (RT(rt(), cudaDeviceEnablePeerAccess)(0, 0) != cudaSuccess) return 6;
    if (RT(rt(), cudaDeviceEnablePeerAccess)(0, 0) != cudaErrorPeerAccessAlreadyEnabled) return 7;
    if (RT(rt(), cudaDeviceDisablePeerAccess)(0) != cudaSuccess) return 8;
    return RT(rt(), cudaDeviceDisablePeerAccess)(0) == cudaErrorPeerAccessNotEnabled ? 0 : 9;
  });
  CHECK(child.status == 0);
}

TEST_CASE("code that cannot be loaded: the launch fails, and the reason is told") {
  struct Case {
    std::string text;
    cudaError_t error;
    const char* reason;
  };
  std::string unknown = adding_text(), other = adding_text();
  unknown.replace(unknown.find("mad.lo.s32"), 10, "mud.lo.s32");
  other.replace(other.find("sm_80"), 5, "sm_100");
  for (const Case& each : {Case{unknown, cudaErrorInvalidPtx, "mud.lo.s32"},
                           Case{other, cudaErrorNoKernelImageForDevice, "sm_100"}}) {
    const Child child = in_child({}, [&] {
      const std::vector<uint64_t> image = fat_binary_of(each.text);
      Registered code(rt(), image.data());
      code.kernel(&add_here, "add");
      const Words words(rt(), 8, 0);
      const cudaError_t error = launch_as_nvcc(rt(), &add_here, words.pointer(), 8, 2);
      return error == each.error && RT(rt(), cudaGetLastError)() == each.error ? 0 : 1;
    });
    CHECK(child.status == 0);
    CHECK(has(child.error, each.reason));
  }
}

TEST_CASE("a fault stays until the device is reset") {
  const Child child = in_child({}, [] {
    const std::vector<uint64_t> image = fat_binary_of(adding_text());
    Registered code(rt(), image.data());
    code.kernel(&add_here, "add");
    int* wild = reinterpret_cast<int*>(0x1000);
    if (launch_as_nvcc(rt(), &add_here, &wild, 8, 1) != cudaSuccess) return 1;
    if (RT(rt(), cudaDeviceSynchronize)() != cudaErrorIllegalAddress) return 2;
    for (int time = 0; time < 2; ++time) {
      if (RT(rt(), cudaGetLastError)() != cudaErrorIllegalAddress) return 3;
    }
    void* pointer = nullptr;
    if (RT(rt(), cudaMalloc)(&pointer, 4) != cudaErrorIllegalAddress) return 4;
    // Code that is used for the first time now is not spoilt by the fault.
    Registered other(rt(), image.data());
    other.kernel(&other_here, "add");
    if (launch_as_nvcc(rt(), &other_here, &wild, 8, 1) != cudaErrorIllegalAddress) return 11;
    if (RT(rt(), cudaSetDevice)(9) != cudaErrorInvalidDevice) return 5;
    if (RT(rt(), cudaPeekAtLastError)() != cudaErrorIllegalAddress) return 6;
    if (RT(rt(), cudaDeviceReset)() != cudaSuccess) return 7;
    if (RT(rt(), cudaGetLastError)() != cudaSuccess) return 8;
    const Words words(rt(), 8, 0);
    if (launch_as_nvcc(rt(), &add_here, words.pointer(), 8, 1) != cudaSuccess) return 9;
    if (launch_as_nvcc(rt(), &other_here, words.pointer(), 8, 1) != cudaSuccess) return 12;
    return words.read() == std::vector<int>(8, 2) ? 0 : 10;
  });
  CHECK(child.status == 0);
}
