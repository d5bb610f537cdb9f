// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the registers of a launch: a guess never refuses it, the figure of an assembler
// does. The environment is read once, so that they run in processes of their own.
#include <sys/stat.h>

#include "sim/tests/child.h"
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

// Loads 100 words and adds them from the last to the first: 100 registers are live at once.
std::string many_registers() {
  std::string text =
      ".visible .entry k(.param .u64 out) {\n .reg .b32 %r<101>, %t; .reg .b64 %o, %d;"
      "\n ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %d, %t, 4, %o;\n";
  for (int k = 0; k < 100; ++k) {
    text +=
        " ld.global.u32 %r" + std::to_string(k) + ", [%o+" + std::to_string(4096 + 4 * k) + "];\n";
  }
  text += " mov.u32 %r100, %t;\n";
  for (int k = 99; k >= 0; --k) text += " add.u32 %r100, %r100, %r" + std::to_string(k) + ";\n";
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + text +
         " st.global.u32 [%d], %r100;\n ret;\n}\n";
}

// A program that answers like ptxas, if it gets the text of the kernel `k`.
std::string stand_in(const char* name, const std::string& registers) {
  const std::string path = path_of(name);
  std::ofstream(path) << "#!/bin/sh\ngrep -q '.entry k' /dev/stdin || exit 1\n"
                         "echo \"ptxas info : Compiling entry function 'other' for 'sm_90'\"\n"
                         "echo 'ptxas info : Used 8 registers'\n"
                         "echo \"ptxas info : Compiling entry function 'k' for 'sm_90'\"\n"
                         "echo 'ptxas info : Used "
                      << registers << " registers, used 0 barriers'\n";
  CHECK(chmod(path.c_str(), 0755) == 0);
  return path;
}

struct Launched {
  CUfunction k = nullptr;
  CUdeviceptr out = 0;
  Launched() {
    CUmodule module = nullptr;
    cuda().module_load_data(&module, many_registers().c_str());
    cuda().module_get_function(&k, module, "k");
    out = upload(std::vector<int>(2048, 1));
  }
  CUresult run(unsigned blocks, bool cooperative) {
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = cooperative;
    CUlaunchConfig config = {};
    config.gridDimX = blocks;
    config.blockDimX = 1024;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    void* params[] = {&out};
    return cuda().launch_kernel_ex(&config, k, params, nullptr);
  }
};

int guessed() {
  const Primary primary;
  Launched it;
  int registers = 0, threads = 0, blocks = 0;
  cuda().func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, it.k);
  cuda().func_get_attribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, it.k);
  cuda().occupancy_max_active_blocks_per_multiprocessor(&blocks, it.k, 1024, 0);
  if (registers <= 64 || threads != 1024 || blocks != 1) return 1;  // 1024 threads have 64 each
  if (it.run(1, false) != CUDA_SUCCESS) return 2;
  if (download<int>(it.out, 1024)[1023] != 1123) return 3;
  // 264 blocks of 1024 threads fit by their threads, whatever the guess.
  if (it.run(264, true) != CUDA_SUCCESS || cuda().ctx_synchronize() != CUDA_SUCCESS) return 4;
  return it.run(265, true) == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE ? 0 : 5;
}

int assembled() {
  const Primary primary;
  return Launched().run(1, false) == CUDA_SUCCESS ? 0 : 77;
}

// The registers that the assembler told at the launch count from then on: six blocks of 256 threads
// at 40 registers each, where the guess leaves room for two.
int remembered() {
  const Primary primary;
  Launched it;
  int guess = 0, registers = 0, blocks = 0;
  cuda().occupancy_max_active_blocks_per_multiprocessor(&guess, it.k, 256, 0);
  if (it.run(1, false) != CUDA_SUCCESS) return 1;
  cuda().func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, it.k);
  cuda().occupancy_max_active_blocks_per_multiprocessor(&blocks, it.k, 256, 0);
  return guess == 2 && registers == 40 && blocks == 6 ? 0 : 2;
}

}  // namespace

TEST_CASE("a guess at registers never refuses a launch") {
  CHECK(in_child({{"LATHE_SIM_PTXAS", "none"}}, guessed).status == 0);
}

TEST_CASE("an assembler on the search path is asked without being named") {
  const std::string folder = path_of("tools");
  REQUIRE(mkdir(folder.c_str(), 0755) == 0);
  const std::string eighty = stand_in("eighty", "80");
  REQUIRE(std::rename(eighty.c_str(), (folder + "/ptxas").c_str()) == 0);
  const std::string path = folder + ":" + std::getenv("PATH");
  CHECK(in_child({{"PATH", path}}, assembled).status == 77);
  CHECK(in_child({{"PATH", path}, {"LATHE_SIM_PTXAS", "none"}}, assembled).status == 0);
  std::remove((folder + "/ptxas").c_str());
  rmdir(folder.c_str());
}

// The guess is 100 registers and more; NVIDIA's assembler moves the loads down and takes fewer than
// the 64 that 1024 threads may have.
TEST_CASE("the tool kit's own assembler lets a kernel run that the guess doubts") {
  const Environment none;
  const int status = in_child(none, [] {
                       const Primary primary;
                       Launched it;
                       if (it.run(1, false) != CUDA_SUCCESS) return 1;
                       int registers = 0;
                       cuda().func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, it.k);
                       return registers > 64 ? 2 : 0;
                     }).status;
  if (status == 2) {
    MESSAGE("skipped: there is no ptxas");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE("an assembler's figure refuses a launch that has too few registers") {
  const std::string forty = stand_in("forty", "40"), eighty = stand_in("eighty", "80");
  CHECK(in_child({{"LATHE_SIM_PTXAS", forty}}, assembled).status == 0);
  CHECK(in_child({{"LATHE_SIM_PTXAS", forty}}, remembered).status == 0);
  CHECK(in_child({{"LATHE_SIM_PTXAS", "none"}}, assembled).status == 0);
  CHECK(in_child({{"LATHE_SIM_PTXAS", eighty}}, assembled).status == 77);
  CHECK(in_child({{"LATHE_SIM_PTXAS", "/nowhere/ptxas"}}, assembled).status == 0);
  std::remove(forty.c_str());
  std::remove(eighty.c_str());
}
