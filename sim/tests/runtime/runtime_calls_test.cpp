// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The runtime's calls where they are more than one call of the driver: errors, devices, memory with
// copies of rows and slices, and what CUDA 12 does otherwise.
#include <cuda.h>

#include "sim/tests/runtime/runtime_client.h"

using namespace sim::tests;

namespace {

const Runtime& rt() { return cudart(13); }

int device_now() {
  int device = -1;
  CHECK(RT(rt(), cudaGetDevice)(&device) == cudaSuccess);
  return device;
}

}  // namespace

TEST_CASE("the last error is the thread's, and asking for it forgets it") {
  CHECK(RT(rt(), cudaGetLastError)() == cudaSuccess);
  CHECK(RT(rt(), cudaSetDevice)(99) == cudaErrorInvalidDevice);
  CHECK(RT(rt(), cudaPeekAtLastError)() == cudaErrorInvalidDevice);
  CHECK(in_thread([] { return RT(rt(), cudaPeekAtLastError)(); }) == cudaSuccess);
  CHECK(device_now() == 0);  // a call that succeeds leaves the error
  CHECK(RT(rt(), cudaGetLastError)() == cudaErrorInvalidDevice);
  CHECK(RT(rt(), cudaGetLastError)() == cudaSuccess);
}

TEST_CASE("names of errors") {
  CHECK(std::string(RT(rt(), cudaGetErrorName)(cudaErrorIllegalAddress)) ==
        "cudaErrorIllegalAddress");
  CHECK(std::string(RT(rt(), cudaGetErrorString)(cudaErrorIllegalAddress)) == "illegal address");
  CHECK(std::string(RT(rt(), cudaGetErrorString)(cudaErrorECCUncorrectable)) ==
        "ecc uncorrectable");
  CHECK(std::string(RT(rt(), cudaGetErrorString)(cudaSuccess)) == "no error");
  CHECK(std::string(RT(rt(), cudaGetErrorName)(static_cast<cudaError_t>(12345))) ==
        "unrecognized error code");
}

TEST_CASE("properties of a device are the driver's attributes, where each CUDA has them") {
  cudaDeviceProp now = {};
  REQUIRE(RT(rt(), cudaGetDeviceProperties)(&now, 0) == cudaSuccess);
  CHECK(std::string(now.name).find("NVIDIA H100") != std::string::npos);
  CHECK(now.major == 9);
  CHECK(now.multiProcessorCount == 132);
  CHECK(now.sharedMemPerBlockOptin == 227 * 1024);
  CHECK(now.maxThreadsDim[2] == 64);
  CHECK(now.clusterLaunch == 1);
  CHECK(RT(rt(), cudaGetDeviceProperties)(&now, 1) == cudaErrorInvalidDevice);
  CHECK(RT(rt(), cudaGetLastError)() == cudaErrorInvalidDevice);

  std::vector<char> before(1032 + 1, 'x');
  using Get = cudaError_t(void*, int);
  REQUIRE((*cudart(12).call<Get>("cudaGetDeviceProperties_v2"))(before.data(), 0) == cudaSuccess);
  const auto at = [&](size_t offset) {
    int value = 0;
    std::memcpy(&value, &before[offset], sizeof value);
    return value;
  };
  // Offsets of major, multiProcessorCount, memoryBusWidth and clusterLaunch in CUDA 12's structure.
  CHECK(at(360) == 9);
  CHECK(at(388) == 132);
  CHECK(at(612) == 5120);
  CHECK(at(772) == 1);
  CHECK(before[1032] == 'x');
}

TEST_CASE("versions") {
  int version = 0;
  CHECK(RT(rt(), cudaRuntimeGetVersion)(&version) == cudaSuccess);
  CHECK(version == 13000);
  CHECK(RT(cudart(12), cudaRuntimeGetVersion)(&version) == cudaSuccess);
  CHECK(version == 12090);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult status = {};
  CHECK(RT(rt(), cudaGetDriverEntryPoint)("cuTensorMapEncodeTiled", &entry, 0, &status) ==
        cudaSuccess);
  CHECK(status == cudaDriverEntryPointSuccess);
  CHECK(entry != nullptr);
  CHECK(RT(rt(), cudaGetDriverEntryPointByVersion)("cuTensorMapEncodeTiled", &entry, 11000, 0,
                                                   &status) == cudaSuccess);
  CHECK(status == cudaDriverEntryPointVersionNotSufficent);
  CHECK(RT(rt(), cudaGetDriverEntryPoint)("cuNothing", &entry, 0, &status) == cudaSuccess);
  CHECK(status == cudaDriverEntryPointSymbolNotFound);
  CHECK(entry == nullptr);
}

TEST_CASE("rows with a pitch, and slices") {
  constexpr size_t kWidth = 40, kHeight = 5, kDepth = 3;
  cudaPitchedPtr there = {};
  REQUIRE(RT(rt(), cudaMalloc3D)(&there, {kWidth, kHeight + 2, kDepth}) == cudaSuccess);
  CHECK(there.pitch >= kWidth);
  CHECK(there.xsize == kWidth);
  CHECK(there.ysize == kHeight + 2);
  REQUIRE(RT(rt(), cudaMemset3D)(there, 7, {kWidth, kHeight + 2, kDepth}) == cudaSuccess);
  // Not the last two rows of any slice.
  REQUIRE(RT(rt(), cudaMemset3D)(there, 9, {kWidth, kHeight, kDepth}) == cudaSuccess);
  std::vector<char> here(kWidth * (kHeight + 2) * kDepth);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = there;
  copy.dstPtr = {here.data(), kWidth, kWidth, kHeight + 2};
  copy.extent = {kWidth, kHeight + 2, kDepth};
  copy.kind = cudaMemcpyDeviceToHost;
  REQUIRE(RT(rt(), cudaMemcpy3D)(&copy) == cudaSuccess);
  for (size_t at = 0; at < here.size(); ++at) {
    REQUIRE(here[at] == (at / kWidth % (kHeight + 2) < kHeight ? 9 : 7));
  }
  // Columns 8 to 15 of slice 1's rows 2 and 3.
  std::vector<char> patch(2 * 8, 3);
  char* corner = static_cast<char*>(there.ptr) + (there.ysize + 2) * there.pitch + 8;
  REQUIRE(RT(rt(), cudaMemcpy2D)(corner, there.pitch, patch.data(), 8, 8, 2,
                                 cudaMemcpyHostToDevice) == cudaSuccess);
  copy.srcPos = {4, 1, 1};
  copy.dstPtr = {here.data(), 16, 16, 4};
  copy.extent = {16, 4, 1};
  REQUIRE(RT(rt(), cudaMemcpy3D)(&copy) == cudaSuccess);
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x = 0; x < 16; ++x) {
      REQUIRE(here[16 * y + x] == (x >= 4 && x < 12 && (y == 1 || y == 2) ? 3 : 9));
    }
  }
  CHECK(RT(rt(), cudaMemcpy2D)(corner, 4, patch.data(), 8, 8, 2, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidPitchValue);
  CHECK(RT(rt(), cudaMemcpy2D)(corner, 8, patch.data(), 8, 8, 2, static_cast<cudaMemcpyKind>(7)) ==
        cudaErrorInvalidMemcpyDirection);
  CHECK(RT(rt(), cudaFree)(there.ptr) == cudaSuccess);
  CHECK(RT(rt(), cudaGetLastError)() == cudaErrorInvalidMemcpyDirection);
}

TEST_CASE("where a pointer leads") {
  cudaPointerAttributes about = {};
  int here = 0;
  CHECK(RT(rt(), cudaPointerGetAttributes)(&about, &here) == cudaSuccess);
  CHECK(about.type == cudaMemoryTypeUnregistered);
  CHECK(about.hostPointer == &here);
  CHECK(about.devicePointer == nullptr);
  int* there = allocate_on_device<int>(rt(), 4);
  CHECK(RT(rt(), cudaPointerGetAttributes)(&about, there + 1) == cudaSuccess);
  CHECK(about.type == cudaMemoryTypeDevice);
  CHECK(about.devicePointer == there + 1);
  CHECK(about.hostPointer == nullptr);
  void *pinned = nullptr, *managed = nullptr;
  REQUIRE(RT(rt(), cudaMallocHost)(&pinned, 64) == cudaSuccess);
  CHECK(RT(rt(), cudaPointerGetAttributes)(&about, pinned) == cudaSuccess);
  CHECK(about.type == cudaMemoryTypeHost);
  CHECK(about.hostPointer == pinned);
  REQUIRE(RT(rt(), cudaMallocManaged)(&managed, 64, 1) == cudaSuccess);
  CHECK(RT(rt(), cudaPointerGetAttributes)(&about, managed) == cudaSuccess);
  CHECK(about.type == cudaMemoryTypeManaged);
  CHECK(RT(rt(), cudaFree)(there) == cudaSuccess);
  CHECK(RT(rt(), cudaFree)(managed) == cudaSuccess);
  CHECK(RT(rt(), cudaFreeHost)(pinned) == cudaSuccess);
  CHECK(RT(rt(), cudaFree)(nullptr) == cudaSuccess);
  CHECK(RT(rt(), cudaMalloc)(&managed, 0) == cudaSuccess);
  CHECK(managed == nullptr);
}

TEST_CASE("calls of CUDA 12 that CUDA 13 gave another form") {
  const Runtime& runtime = cudart(12);
  void* managed = nullptr;
  REQUIRE(RT(runtime, cudaMallocManaged)(&managed, 64, 1) == cudaSuccess);
  using Advise = cudaError_t(const void*, size_t, int, int);
  using Prefetch = cudaError_t(const void*, size_t, int, cudaStream_t);
  CHECK((*runtime.call<Advise>("cudaMemAdvise"))(managed, 64, 3, 0) == cudaSuccess);
  CHECK((*runtime.call<Advise>("cudaMemAdvise"))(managed, 64, 3, 9) == cudaErrorInvalidDevice);
  CHECK((*runtime.call<Prefetch>("cudaMemPrefetchAsync"))(managed, 64, -1, nullptr) == cudaSuccess);
  CHECK(RT(runtime, cudaFree)(managed) == cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusInvalidated;
  unsigned long long id = 0;
  using Info = cudaError_t(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*);
  CHECK((*runtime.call<Info>("cudaStreamGetCaptureInfo"))(nullptr, &status, &id) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK((*runtime.call<cudaError_t()>("cudaThreadSynchronize"))() == cudaSuccess);
  CHECK(RT(runtime, cudaGetLastError)() == cudaErrorInvalidDevice);
}

TEST_CASE("memory pools") {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  cudaMemPool_t pool = nullptr;
  REQUIRE(RT(rt(), cudaMemPoolCreate)(
              &pool, reinterpret_cast<const cudaMemPoolProps*>(&properties)) == cudaSuccess);
  unsigned long long threshold = 4096, value = 0;
  const auto kThreshold = static_cast<cudaMemPoolAttr>(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
  const auto kUsed = static_cast<cudaMemPoolAttr>(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  CHECK(RT(rt(), cudaMemPoolSetAttribute)(pool, kThreshold, &threshold) == cudaSuccess);
  CHECK(RT(rt(), cudaMemPoolGetAttribute)(pool, kThreshold, &value) == cudaSuccess);
  CHECK(value == 4096);
  void* memory = nullptr;
  REQUIRE(RT(rt(), cudaMallocFromPoolAsync)(&memory, 1000, pool, nullptr) == cudaSuccess);
  CHECK(RT(rt(), cudaMemsetAsync)(memory, 3, 1000, nullptr) == cudaSuccess);
  CHECK(RT(rt(), cudaMemPoolGetAttribute)(pool, kUsed, &value) == cudaSuccess);
  CHECK(value >= 1000);
  char last = 0;
  CHECK(RT(rt(), cudaMemcpy)(&last, static_cast<char*>(memory) + 999, 1, cudaMemcpyDeviceToHost) ==
        cudaSuccess);
  CHECK(last == 3);
  CHECK(RT(rt(), cudaFreeAsync)(memory, nullptr) == cudaSuccess);
  CHECK(RT(rt(), cudaStreamSynchronize)(nullptr) == cudaSuccess);
  CHECK(RT(rt(), cudaMemPoolGetAttribute)(pool, kUsed, &value) == cudaSuccess);
  CHECK(value == 0);
  CHECK(RT(rt(), cudaMemPoolDestroy)(pool) == cudaSuccess);
}
