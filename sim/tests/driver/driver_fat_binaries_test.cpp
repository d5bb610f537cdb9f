// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover fat binaries as nvcc makes them by default and in each of its modes of
// compression: they load through every door, and their kernel runs.
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sim/tests/child.h"

using namespace sim::tests;

namespace {

const int kArchSet = setenv("LATHE_SIM_ARCH", "sm_90a", 1);

constexpr const char* kModes[] = {"", "size", "speed", "balance", "none"};  // "": nvcc's own choice

std::string tool_kit() {
  const char* const home = std::getenv("CUDA_HOME");
  return std::string(home ? home : "/usr/local/cuda") + "/bin/";
}
bool has(const std::string& program) {
  struct stat found = {};
  if (stat((tool_kit() + program).c_str(), &found) == 0) return true;
  MESSAGE("skipped: there is no ", tool_kit(), program);
  return false;
}

// Runs a tool that writes `out`, and returns what it wrote.
std::string made_by(const std::string& command, const std::string& out) {
  INFO(command);
  REQUIRE(std::system((tool_kit() + command).c_str()) == 0);
  std::ifstream file(out, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::remove(out.c_str());
  return bytes.str();
}

void check_sum(CUfunction add) {
  CUdeviceptr a = upload(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CUdeviceptr b = upload(std::vector<int>(8, 10));
  int n = 8;
  void* params[] = {&a, &b, &n};
  CHECK(cuda().launch_kernel(add, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr) == CUDA_SUCCESS);
  CHECK(download<int>(a, 8) == std::vector<int>{11, 12, 13, 14, 15, 16, 17, 18});
  CHECK(cuda().mem_free(a) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(b) == CUDA_SUCCESS);
}

void check_loads(const std::string& image, const char* kernel) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  REQUIRE(cuda().module_load_data(&module, image.c_str()) == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&function, module, kernel) == CUDA_SUCCESS);
  check_sum(function);
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
  CUlibrary library = nullptr;
  CUkernel of_library = nullptr;
  REQUIRE(cuda().library_load_data(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
                                   0) == CUDA_SUCCESS);
  REQUIRE(cuda().library_get_kernel(&of_library, library, kernel) == CUDA_SUCCESS);
  REQUIRE(cuda().kernel_get_function(&function, of_library) == CUDA_SUCCESS);
  check_sum(function);
  CHECK(cuda().library_unload(library) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("what nvcc makes, with machine code beside the PTX and without") {
  if (!has("nvcc")) return;
  const Primary primary;
  const std::string source = path_of("add.cu"), out = path_of("fat");
  std::ofstream(source) << "extern \"C\" __global__ void add(int* a, const int* b, int n) {\n"
                           "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                           "  if (i < n) a[i] += b[i];\n}\n";
  const std::string mixed =
      " -gencode arch=compute_80,code=sm_80"
      " -gencode arch=compute_90,code=compute_90";
  for (const std::string mode : kModes) {
    CAPTURE(mode);
    std::string command = "nvcc -fatbin -x cu -o " + out + " " + source + mixed;
    if (!mode.empty()) command += " --compress-mode=" + mode;
    check_loads(made_by(command, out), "add");
  }
  // Machine code alone is nothing that the simulator could run.
  const std::string image = made_by(
      "nvcc -fatbin -x cu -o " + out + " " + source + " -gencode arch=compute_90a,code=sm_90a",
      out);
  CUmodule module = nullptr;
  CHECK(cuda().module_load_data(&module, image.c_str()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  std::remove(source.c_str());
}

TEST_CASE("a long text, whose compression has many blocks and far matches") {
  if (!has("fatbinary")) return;
  const Primary primary;
  const std::string source = path_of("long.ptx"), out = path_of("fat");
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  for (int k = 0; k < 1500; ++k) {  // each kernel has constants of its own
    const std::string number = std::to_string(k), salt = std::to_string(k * 2654435761u);
    text += ".visible .entry add" + number +
            "(.param .u64 a, .param .u64 b, .param .u32 n) {\n .reg .pred %p; .reg .b32 %i, %n, "
            "%x, %y; .reg .b64 %a, %b;\n mov.u32 %i, %tid.x; ld.param.u32 %n, [n]; setp.ge.u32 "
            "%p, %i, %n; @%p ret;\n ld.param.u64 %a, [a]; mad.wide.u32 %a, %i, 4, %a;\n"
            " ld.param.u64 %b, [b]; mad.wide.u32 %b, %i, 4, %b;\n ld.global.u32 %x, [%a]; "
            "ld.global.u32 %y, [%b];\n add.u32 %x, %x, " +
            salt + "; add.u32 %x, %x, %y; sub.u32 %x, %x, " + salt +
            ";\n st.global.u32 [%a], %x;\n ret;\n}\n";
  }
  std::ofstream(source) << text;
  for (const std::string mode : kModes) {
    if (mode.empty()) continue;
    CAPTURE(mode);
    const std::string image =
        made_by("fatbinary --create " + out + " --64 --compress-mode=" + mode +
                    " --image3=kind=ptx,sm=80,file=" + source,
                out);
    CHECK((mode == "none" || image.size() < text.size() / 4));
    for (const char* kernel : {"add0", "add777", "add1499"}) check_loads(image, kernel);
  }
  std::remove(source.c_str());
}
