// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what a launch takes beside its parameters: the workspace of a cooperative grid,
// and the heap of malloc.
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

const int kArchSet = setenv("LATHE_SIM_ARCH", "sm_90", 1);

std::string unit(const std::string& body) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + body;
}

CUfunction load(CUmodule* module, const std::string& text, const char* name = "k") {
  CUfunction function = nullptr;
  REQUIRE(cuda().module_load_data(module, text.c_str()) == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&function, *module, name) == CUDA_SUCCESS);
  return function;
}

CUresult launch(CUfunction f, unsigned blocks, unsigned threads, CUdeviceptr out,
                bool cooperative) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = cooperative;
  CUlaunchConfig config = {};
  config.gridDimX = blocks;
  config.blockDimX = threads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* params[] = {&out};
  return cuda().launch_kernel_ex(&config, f, params, nullptr);
}

}  // namespace

TEST_CASE("a cooperative launch has a workspace of its own, any other one none") {
  const Primary primary;
  CUmodule module = nullptr;
  // Every block adds 1 to the barrier's word and waits until all have.
  const CUfunction k = load(&module, unit(R"(.visible .entry k(.param .u64 out) {
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %o, %w, %hi;
  ld.param.u64 %o, [out]; mov.u32 %r0, %envreg2; mov.u32 %r1, %envreg1; mov.u32 %r6, %ctaid.x;
  cvt.u64.u32 %w, %r0; cvt.u64.u32 %hi, %r1; bfi.b64 %w, %hi, %w, 32, 32;
  mad.wide.u32 %o, %r6, 4, %o; mov.u32 %r4, 12345;
  setp.eq.u64 %p, %w, 0; @%p bra END;
  atom.add.release.gpu.u32 %r2, [%w+4], 1; mov.u32 %r3, %nctaid.x;
SPIN: ld.acquire.gpu.u32 %r4, [%w+4]; setp.lt.u32 %p, %r4, %r3; @%p bra SPIN;
END: st.global.u32 [%o], %r4;
  ret;
}
)"));
  const CUdeviceptr out = upload(std::vector<int>(300, 0));
  for (int round = 0; round < 2; ++round) {  // the word begins as 0 each time
    CHECK(launch(k, 300, 1, out, true) == CUDA_SUCCESS);
    CHECK(download<int>(out, 300) == std::vector<int>(300, 300));
  }
  CHECK(launch(k, 300, 1, out, false) == CUDA_SUCCESS);
  CHECK(download<int>(out, 300) == std::vector<int>(300, 12345));
  CHECK(cuda().mem_free(out) == CUDA_SUCCESS);
}

TEST_CASE("a later kernel frees what an earlier one took from the heap") {
  const Primary primary;
  CUmodule module = nullptr;
  const std::string text = unit(R"(.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.visible .entry take(.param .u64 out) {
  .reg .b64 %o, %w; ld.param.u64 %o, [out];
  { .param .b64 n; .param .b64 r; st.param.b64 [n], 6000000; call.uni (r), malloc, (n);
    ld.param.b64 %w, [r]; }
  st.global.u64 [%o], %w;
  ret;
}
.visible .entry give(.param .u64 out) {
  .reg .b64 %o, %w; ld.param.u64 %o, [out]; ld.global.u64 %w, [%o];
  { .param .b64 p; st.param.b64 [p], %w; call.uni free, (p); }
  ret;
}
)");
  const CUfunction take = load(&module, text, "take");
  CUfunction give = nullptr;
  REQUIRE(cuda().module_get_function(&give, module, "give") == CUDA_SUCCESS);
  const CUdeviceptr out = upload(std::vector<uint64_t>(2, 0));
  for (int round = 0; round < 3; ++round) {  // 8 MiB have room for one of them
    CHECK(launch(take, 1, 1, out, false) == CUDA_SUCCESS);
    CHECK(download<uint64_t>(out, 1)[0] != 0);
    CHECK(launch(take, 1, 1, out + 8, false) == CUDA_SUCCESS);
    CHECK(download<uint64_t>(out, 2)[1] == 0);
    CHECK(launch(give, 1, 1, out, false) == CUDA_SUCCESS);
  }
  CHECK(launch(give, 1, 1, out, false) == CUDA_SUCCESS);  // once more
  CHECK(cuda().ctx_synchronize() == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
}
