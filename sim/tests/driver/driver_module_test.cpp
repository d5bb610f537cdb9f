// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover modules and libraries: what loads, what does not and why, functions and
// variables.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"
#include "sim/tests/driver/fat_binaries.h"

using namespace sim::tests;

namespace {

const int kArchSet = setenv("LATHE_SIM_ARCH", "sm_90", 1);

CUresult load(const std::string& text, std::string* log = nullptr) {
  char buffer[512] = "untouched";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {buffer, reinterpret_cast<void*>(sizeof buffer)};
  CUmodule module = nullptr;
  const CUresult result =
      cuda().module_load_data_ex(&module, text.c_str(), log != nullptr ? 2 : 0, options, values);
  if (log != nullptr) {
    *log = buffer;
    CHECK(reinterpret_cast<size_t>(values[1]) == std::strlen(buffer));
  }
  if (result == CUDA_SUCCESS) CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
  return result;
}

std::string from_hex(const char* text) {
  std::string bytes;
  for (; *text != '\0'; text += 2) {
    const char pair[] = {text[0], text[1], '\0'};
    bytes.push_back(static_cast<char>(std::strtol(pair, nullptr, 16)));
  }
  return bytes;
}

// Adds 1 to 8 words by the kernel of fat_binaries.h.
void run_add(const std::string& image) {
  CUmodule module = nullptr;
  REQUIRE(cuda().module_load_data(&module, image.c_str()) == CUDA_SUCCESS);
  CUfunction add = nullptr;
  REQUIRE(cuda().module_get_function(&add, module, "add") == CUDA_SUCCESS);
  CUdeviceptr a = upload(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CUdeviceptr b = upload(std::vector<int>(8, 1));
  int n = 8;
  void* params[] = {&a, &b, &n};
  CHECK(cuda().launch_kernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr) == CUDA_SUCCESS);
  CHECK(download<int>(a, 8) == std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(cuda().mem_free(a) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(b) == CUDA_SUCCESS);
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
}

constexpr size_t kFatPayload = 16 + 80;  // where a fat binary's only payload begins
constexpr size_t kFatPlainBytes = 16 + 56;

}  // namespace

TEST_CASE("fat binaries with compressed PTX") {
  const Primary primary;
  run_add(from_hex(kFatLz4));
  if (dlopen("libzstd.so.1", RTLD_NOW) == nullptr) {
    MESSAGE("skipped: zstd, as there is no libzstd.so.1");
    return;
  }
  run_add(from_hex(kFatZstd));
}

TEST_CASE("of several texts in a fat binary the newest that the device runs") {
  const Primary primary;
  std::string renamed = kernels("sm_80"), newest = kernels("sm_90");
  renamed.replace(renamed.find("entry reverse"), 13, "entry forward");
  newest.replace(newest.find("entry reverse"), 13, "entry sideway");
  const std::vector<uint64_t> image = fat_binary_of(
      {{90, newest}, {80, renamed}, {100, kernels("sm_100")}, {120, kernels("sm_120")}});
  CUmodule module = nullptr;
  REQUIRE(cuda().module_load_data(&module, image.data()) == CUDA_SUCCESS);
  CUfunction function = nullptr;
  CHECK(cuda().module_get_function(&function, module, "sideway") == CUDA_SUCCESS);
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
  const std::vector<uint64_t> foreign = fat_binary_of({{100, kernels("sm_100")}});
  CHECK(cuda().module_load_data(&module, foreign.data()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_CASE("damage in a compressed payload is an error, whatever it is") {
  const Primary primary;
  std::string log;
  for (const char* const text : {kFatLz4, kFatZstd}) {
    const std::string good = from_hex(text);
    int refused = 0;
    for (size_t at = kFatPayload; at < good.size(); ++at) {
      for (const int flip : {1, 0x10, 0x80, 0xFF}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ flip);
        // A text that still decompresses is another one, which may even be PTX.
        refused += load(bad) != CUDA_SUCCESS;
      }
    }
    CHECK(refused > 100);
    for (const int more : {-1, 1, 100}) {
      std::string bad = good;
      bad[kFatPlainBytes] = static_cast<char>(bad[kFatPlainBytes] + more);
      CHECK(load(bad, &log) == CUDA_ERROR_NO_BINARY_FOR_GPU);
      CHECK(log.find("fat binary") != std::string::npos);
    }
    std::string huge = good;
    huge[kFatPlainBytes + 5] = 1;
    CHECK(load(huge, &log) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
}

TEST_CASE("targets") {
  const Primary primary;
  CHECK(load(kernels("sm_80")) == CUDA_SUCCESS);
  CHECK(load(kernels("sm_90")) == CUDA_SUCCESS);
  std::string log;
  CHECK(load(kernels("sm_100"), &log) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(log.find("sm_100") != std::string::npos);
  CHECK(load(kernels("sm_90a")) == CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_CASE("what is not PTX") {
  const Primary primary;
  std::string log;
  const std::string elf = std::string("\177ELF\2\1\1") + std::string(100, 'x');
  CHECK(load(elf, &log) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(log.find("machine code") != std::string::npos);
  CHECK(load("") == CUDA_ERROR_INVALID_IMAGE);
  std::string broken = kernels();
  broken.replace(broken.find("mad.lo.s32"), 10, "mud.lo.s32");
  CHECK(load(broken, &log) == CUDA_ERROR_INVALID_PTX);
  CHECK(log.find("mud") != std::string::npos);
  CHECK(load(kernels(), &log) == CUDA_SUCCESS);
  CHECK(log.empty());
  CUmodule module = nullptr;
  CHECK(cuda().module_load_data(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CUjit_option unknown[] = {static_cast<CUjit_option>(999)};
  void* values[] = {nullptr};
  CHECK(cuda().module_load_data_ex(&module, kernels().c_str(), 1, unknown, values) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("functions, parameters, attributes") {
  const Primary primary;
  CUmodule module = nullptr;
  REQUIRE(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
  CUfunction add = nullptr, reverse = nullptr;
  CHECK(cuda().module_get_function(&add, module, "nothing") == CUDA_ERROR_NOT_FOUND);
  REQUIRE(cuda().module_get_function(&add, module, "add") == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&reverse, module, "reverse") == CUDA_SUCCESS);
  size_t offset = 0, bytes = 0;
  CHECK(cuda().func_get_param_info(add, 3, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 24);
  CHECK(bytes == 4);
  CHECK(cuda().func_get_param_info(add, 4, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  CHECK(cuda().func_get_attribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, add) == CUDA_SUCCESS);
  CHECK(value > 0);
  CHECK(value <= 255);
  CHECK(cuda().func_get_attribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add) ==
        CUDA_SUCCESS);
  CHECK(value == 1024);
  constexpr auto kDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CHECK(cuda().func_get_attribute(&value, kDynamic, reverse) == CUDA_SUCCESS);
  CHECK(value == 49152);
  CHECK(cuda().func_set_attribute(reverse, kDynamic, 232449) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().func_set_attribute(reverse, kDynamic, 232448) == CUDA_SUCCESS);
  CHECK(cuda().func_get_attribute(&value, kDynamic, reverse) == CUDA_SUCCESS);
  CHECK(value == 232448);
  CHECK(cuda().func_set_attribute(reverse, CU_FUNC_ATTRIBUTE_NUM_REGS, 8) ==
        CUDA_ERROR_INVALID_VALUE);
  int blocks = 0;
  CHECK(cuda().occupancy_max_active_blocks_per_multiprocessor(&blocks, add, 1024, 0) ==
        CUDA_SUCCESS);
  CHECK(blocks == 2);  // 2048 threads
  CHECK(cuda().occupancy_max_active_blocks_per_multiprocessor(&blocks, reverse, 32, 115000) ==
        CUDA_SUCCESS);
  CHECK(blocks == 2);  // 233472 bytes, 1024 more for each block
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
  CHECK(cuda().module_unload(module) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuda().func_get_attribute(&value, kDynamic, reverse) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("variables") {
  const Primary primary;
  CUmodule module = nullptr;
  REQUIRE(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  CHECK(cuda().module_get_global(&counter, &bytes, module, "nothing") == CUDA_ERROR_NOT_FOUND);
  REQUIRE(cuda().module_get_global(&counter, &bytes, module, "counter") == CUDA_SUCCESS);
  CHECK(bytes == 4);
  CHECK(download<int>(counter, 1)[0] == 41);
  CUfunction bump = nullptr;
  REQUIRE(cuda().module_get_function(&bump, module, "bump") == CUDA_SUCCESS);
  int by = 2;
  void* params[] = {&by};
  CHECK(cuda().launch_kernel(bump, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr) == CUDA_SUCCESS);
  CHECK(download<int>(counter, 1)[0] == 43);
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
}

TEST_CASE("a library's kernel is launched as it is, in whichever context is current") {
  const Primary primary;
  CUlibrary library = nullptr;
  const std::string text = kernels();
  REQUIRE(cuda().library_load_data(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
                                   0) == CUDA_SUCCESS);
  unsigned count = 0;
  CHECK(cuda().library_get_kernel_count(&count, library) == CUDA_SUCCESS);
  CHECK(count == 3);
  CUkernel reverse = nullptr;
  REQUIRE(cuda().library_get_kernel(&reverse, library, "reverse") == CUDA_SUCCESS);
  CUfunction function = nullptr;
  CHECK(cuda().kernel_get_function(&function, reverse) == CUDA_SUCCESS);
  CUdeviceptr data = upload(std::vector<float>{1, 2, 3, 4});
  void* params[] = {&data};
  const auto launch = [&](CUfunction which) {
    return cuda().launch_kernel(which, 1, 1, 1, 4, 1, 1, 16, nullptr, params, nullptr);
  };
  CHECK(launch(function) == CUDA_SUCCESS);
  CHECK(download<float>(data, 4) == std::vector<float>{4, 3, 2, 1});
  CHECK(launch(reinterpret_cast<CUfunction>(reverse)) == CUDA_SUCCESS);
  CHECK(download<float>(data, 4) == std::vector<float>{1, 2, 3, 4});
  CHECK(cuda().library_unload(library) == CUDA_SUCCESS);
  CHECK(launch(function) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
}
