// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Code that a program registers: kernels, variables, parts that were linked, and libraries.
#include "sim/tests/runtime/runtime_client.h"
#include "sim/tests/runtime/runtime_texts.h"

using namespace sim::tests;

namespace {

constexpr int kCount = 100;
// Addresses of these stand for a kernel and for variables, as in a program.
char add_here, total_here, weights_here;

int total_of(const Runtime& runtime) {
  int total = -1;
  CHECK(RT(runtime, cudaMemcpyFromSymbol)(&total, &total_here, sizeof total, 0,
                                          cudaMemcpyDeviceToHost) == cudaSuccess);
  return total;
}

}  // namespace

TEST_CASE("a registered kernel, by its symbol and by its handle") {
  for (const int version : {12, 13}) {
    CAPTURE(version);
    const Runtime& runtime = cudart(version);
    const std::vector<uint64_t> image = fat_binary_of(adding_text());
    Registered code(runtime, image.data());
    code.kernel(&add_here, "add");
    Words words(runtime, kCount, 1);
    CHECK(launch_as_nvcc(runtime, &add_here, words.pointer(), kCount, 2) == cudaSuccess);
    int n = kCount, by = 4;
    void* arguments[] = {words.pointer(), &n, &by};
    CHECK(RT(runtime, cudaLaunchKernel)(&add_here, {4, 1, 1}, {32, 1, 1}, arguments, 0, nullptr) ==
          cudaSuccess);
    CHECK(words.read() == std::vector<int>(kCount, 7));
    cudaFuncAttributes about = {};
    CHECK(RT(runtime, cudaFuncGetAttributes)(&about, &add_here) == cudaSuccess);
    CHECK(about.maxThreadsPerBlock == 1024);
    CHECK(about.numRegs > 0);
    const char* name = nullptr;
    CHECK(RT(runtime, cudaFuncGetName)(&name, &add_here) == cudaSuccess);
    CHECK(std::string(name) == "add");
  }
}

TEST_CASE("code that is compressed") {
  const Runtime& runtime = cudart(13);
  std::string image;
  for (const char* at = kFatLz4; *at != '\0'; at += 2) {
    image.push_back(static_cast<char>(std::strtol(std::string(at, 2).c_str(), nullptr, 16)));
  }
  Registered code(runtime, image.data());
  code.kernel(&add_here, "add");
  Words words(runtime, 8, 3), others(runtime, 8, 4);
  int n = 8;
  void* arguments[] = {words.pointer(), others.pointer(), &n};
  CHECK(RT(runtime, cudaLaunchKernel)(&add_here, {1, 1, 1}, {32, 1, 1}, arguments, 0, nullptr) ==
        cudaSuccess);
  CHECK(words.read() == std::vector<int>(8, 7));
}

TEST_CASE("variables") {
  const Runtime& runtime = cudart(13);
  const std::vector<uint64_t> image = fat_binary_of(adding_text());
  Registered code(runtime, image.data());
  code.kernel(&add_here, "add");
  code.variable(&total_here, "total", 4);
  code.variable(&weights_here, "weights", 16);
  CHECK(total_of(runtime) == 5);
  int given = 1000;
  CHECK(RT(runtime, cudaMemcpyToSymbol)(&total_here, &given, 4, 0, cudaMemcpyHostToDevice) ==
        cudaSuccess);
  Words words(runtime, kCount, 0);
  CHECK(launch_as_nvcc(runtime, &add_here, words.pointer(), kCount, 3) == cudaSuccess);
  CHECK(total_of(runtime) == 1000 + 3 * kCount);

  int weights[4] = {};
  CHECK(RT(runtime, cudaMemcpyFromSymbol)(weights, &weights_here, 8, 8, cudaMemcpyDeviceToHost) ==
        cudaSuccess);
  CHECK(weights[0] == 3);
  CHECK(weights[1] == 4);
  size_t bytes = 0;
  CHECK(RT(runtime, cudaGetSymbolSize)(&bytes, &weights_here) == cudaSuccess);
  CHECK(bytes == 16);
  CHECK(RT(runtime, cudaMemcpyFromSymbol)(weights, &weights_here, 8, 9, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidValue);
  CHECK(RT(runtime, cudaMemcpyFromSymbol)(weights, &add_here, 4, 0, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidSymbol);
  CHECK(RT(runtime, cudaMemcpyToSymbol)(&total_here, &given, 4, 0, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidMemcpyDirection);
  CHECK(RT(runtime, cudaGetLastError)() == cudaErrorInvalidMemcpyDirection);
}

TEST_CASE("a managed variable is where its host pointer says, after a reset too") {
  const Runtime& runtime = cudart(13);
  const std::vector<uint64_t> image = fat_binary_of(managed_text());
  Registered code(runtime, image.data());
  static int* total = nullptr;
  total = nullptr;
  code.kernel(&add_here, "add");
  code.managed(reinterpret_cast<void**>(&total), "total", 4);
  REQUIRE(code.init_module() != 0);
  REQUIRE(total != nullptr);
  CHECK(*total == 5);
  *total = 50;
  {
    Words words(runtime, kCount, 0);
    CHECK(launch_as_nvcc(runtime, &add_here, words.pointer(), kCount, 1) == cudaSuccess);
    CHECK(RT(runtime, cudaDeviceSynchronize)() == cudaSuccess);
    CHECK(*total == 50 + kCount);
    // The variable itself is its symbol in a program.
    const int given = 9;
    CHECK(RT(runtime, cudaMemcpyToSymbol)(total, &given, 4, 0, cudaMemcpyHostToDevice) ==
          cudaSuccess);
    CHECK(*total == 9);
  }
  CHECK(RT(runtime, cudaDeviceReset)() == cudaSuccess);
  CHECK(*total == 5);
}

TEST_CASE("parts that were linked") {
  const Runtime& runtime = cudart(13);
  const std::vector<uint64_t> first = fat_binary_of(linked_text());
  const std::vector<uint64_t> second = fat_binary_of(linked_variable());
  const void* const parts[] = {first.data(), second.data(), nullptr};
  const char machine_code[] = "\177ELF";
  Registered code(runtime, machine_code, parts);
  code.kernel(&add_here, "add");
  code.variable(&total_here, "total", 4);
  Words words(runtime, kCount, 0);
  CHECK(launch_as_nvcc(runtime, &add_here, words.pointer(), kCount, 2) == cudaSuccess);
  CHECK(total_of(runtime) == 5 + 2 * kCount);
}

TEST_CASE("code that is gone is not known any more") {
  const Runtime& runtime = cudart(13);
  const std::vector<uint64_t> image = fat_binary_of(adding_text());
  Words words(runtime, kCount, 0);
  {
    Registered code(runtime, image.data());
    code.kernel(&add_here, "add");
    code.variable(&total_here, "total", 4);
    CHECK(launch_as_nvcc(runtime, &add_here, words.pointer(), kCount, 2) == cudaSuccess);
  }
  CHECK(words.read() == std::vector<int>(kCount, 2));
  CHECK(launch_as_nvcc(runtime, &add_here, words.pointer(), kCount, 2) ==
        cudaErrorInvalidDeviceFunction);
  size_t bytes = 0;
  CHECK(RT(runtime, cudaGetSymbolSize)(&bytes, &total_here) == cudaErrorInvalidSymbol);
  CHECK(RT(runtime, cudaGetLastError)() == cudaErrorInvalidSymbol);
}

TEST_CASE("libraries that a program loads itself") {
  const Runtime& runtime = cudart(13);
  const std::string text = adding_text();
  cudaLibrary_t library = nullptr;
  REQUIRE(RT(runtime, cudaLibraryLoadData)(&library, text.c_str(), nullptr, nullptr, 0, nullptr,
                                           nullptr, 0) == cudaSuccess);
  unsigned count = 0;
  CHECK(RT(runtime, cudaLibraryGetKernelCount)(&count, library) == cudaSuccess);
  CHECK(count == 1);
  cudaKernel_t kernel = nullptr, same = nullptr;
  CHECK(RT(runtime, cudaLibraryGetKernel)(&kernel, library, "nothing") == cudaErrorSymbolNotFound);
  REQUIRE(RT(runtime, cudaLibraryGetKernel)(&kernel, library, "add") == cudaSuccess);
  CHECK(RT(runtime, cudaLibraryEnumerateKernels)(&same, 1, library) == cudaSuccess);
  CHECK(same == kernel);
  Words words(runtime, kCount, 1);
  int n = kCount, by = 4;
  void* arguments[] = {words.pointer(), &n, &by};
  CHECK(RT(runtime, cudaLaunchKernel)(reinterpret_cast<const void*>(kernel), {4, 1, 1}, {32, 1, 1},
                                      arguments, 0, nullptr) == cudaSuccess);
  CHECK(words.read() == std::vector<int>(kCount, 5));
  void* total = nullptr;
  size_t bytes = 0;
  CHECK(RT(runtime, cudaLibraryGetGlobal)(&total, &bytes, library, "total") == cudaSuccess);
  CHECK(bytes == 4);
  CHECK(RT(runtime, cudaLibraryUnload)(library) == cudaSuccess);
}
