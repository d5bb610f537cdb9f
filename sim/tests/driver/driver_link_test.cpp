// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the linker, and calls that the driver does not have.
#include <cstring>

#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

const char kSecond[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry put(.param .u64 p, .param .u32 v) {
  .reg .b64 %rd<3>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

CUresult add(CUlinkState link, CUjitInputType type, const std::string& text) {
  return cuda().link_add_data(link, type, const_cast<char*>(text.c_str()), text.size() + 1, "it", 0,
                              nullptr, nullptr);
}

}  // namespace

TEST_CASE("two PTX texts become one module") {
  const Primary primary;
  CUlinkState link = nullptr;
  REQUIRE(cuda().link_create(0, nullptr, nullptr, &link) == CUDA_SUCCESS);
  CHECK(add(link, CU_JIT_INPUT_PTX, kernels()) == CUDA_SUCCESS);
  CHECK(add(link, CU_JIT_INPUT_PTX, kSecond) == CUDA_SUCCESS);
  void* image = nullptr;
  size_t bytes = 0;
  REQUIRE(cuda().link_complete(link, &image, &bytes) == CUDA_SUCCESS);
  CHECK(bytes == std::strlen(static_cast<char*>(image)) + 1);
  CUmodule module = nullptr;
  REQUIRE(cuda().module_load_data(&module, image) == CUDA_SUCCESS);
  CHECK(cuda().link_destroy(link) == CUDA_SUCCESS);
  CHECK(cuda().link_destroy(link) == CUDA_ERROR_INVALID_HANDLE);
  CUfunction function = nullptr;
  CHECK(cuda().module_get_function(&function, module, "add") == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&function, module, "put") == CUDA_SUCCESS);
  CUdeviceptr at = allocate(4);
  int value = 1234;
  void* params[] = {&at, &value};
  CHECK(cuda().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr) ==
        CUDA_SUCCESS);
  CHECK(download<int>(at, 1)[0] == 1234);
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
  cuda().mem_free(at);
}

TEST_CASE("what cannot be linked says why") {
  const Primary primary;
  char log[512] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  const struct {
    CUjitInputType type;
    std::string image;
    CUresult result;
    const char* says;
  } cases[] = {
      {CU_JIT_INPUT_CUBIN, std::string("\177ELF\2\1\1", 7) + std::string(64, '\0'),
       CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code"},
      {CU_JIT_INPUT_OBJECT, "x", CUDA_ERROR_NOT_SUPPORTED, "only PTX"},
      {CU_JIT_INPUT_PTX, "int main() {}", CUDA_ERROR_INVALID_PTX, "no .version"},
  };
  for (const auto& each : cases) {
    CAPTURE(each.says);
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    CUlinkState link = nullptr;
    REQUIRE(cuda().link_create(2, options, values, &link) == CUDA_SUCCESS);
    CHECK(add(link, each.type, each.image) == each.result);
    CHECK(std::string(log).find(each.says) != std::string::npos);
    CHECK(cuda().link_destroy(link) == CUDA_SUCCESS);
  }
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUlinkState link = nullptr;
  REQUIRE(cuda().link_create(2, options, values, &link) == CUDA_SUCCESS);
  CHECK(add(link, CU_JIT_INPUT_PTX, ".version 8.0\n.target sm_80\n.address_size 64\nnonsense;") ==
        CUDA_SUCCESS);
  void* image = nullptr;
  size_t bytes = 0;
  CHECK(cuda().link_complete(link, &image, &bytes) == CUDA_ERROR_INVALID_PTX);
  CHECK(std::string(log).find("line 4") != std::string::npos);
  CHECK(cuda().link_destroy(link) == CUDA_SUCCESS);
}

TEST_CASE("what the driver does not have is there and says so") {
  const Primary primary;
  void* entry = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  CHECK(cuda().get_proc_address("cuArrayCreate", &entry, 13000, 0, &status) == CUDA_SUCCESS);
  CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK(entry == dlsym(cuda().library, "cuArrayCreate_v2"));
  REQUIRE(entry != nullptr);
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  CHECK(reinterpret_cast<decltype(&cuArrayCreate)>(entry)(&array, &shape) ==
        CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuda().get_proc_address("cuNoSuchThing", &entry, 13000, 0, &status) ==
        CUDA_ERROR_NOT_FOUND);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(entry == nullptr);
}
