// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// LATHE_SIM_CLOCK for any program: each launch has its line, however it was launched, and what the
// lines say depends on neither the host's threads, nor its instruction set, nor its addresses.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_clock_kernels.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

constexpr int kCount = 64 * 256;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

double number(const std::string& line, const std::string& name) {
  const size_t at = line.find("\"" + name + "\":");
  REQUIRE(at != std::string::npos);
  return std::stod(line.substr(at + name.size() + 3));
}

// Operands of add(): c = a + b.
struct Operands {
  Operands() {
    for (CUdeviceptr* each : {&a, &b, &c}) {
      cuda().mem_alloc(each, 4 * kCount);
      cuda().memset_d32(*each, 0, kCount);
    }
  }
  CUdeviceptr a = 0, b = 0, c = 0;
  int count = kCount;
  void* params[4] = {&a, &b, &c, &count};
};

CUresult launch_with(CUfunction add, Operands& to, CUstream stream, unsigned blocks,
                     CUlaunchAttribute attribute) {
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.blockDimX = 256;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cuda().launch_kernel_ex(&config, add, to.params, nullptr);
}

CUlaunchAttribute attribute_of(CUlaunchAttributeID id) {
  CUlaunchAttribute attribute{};
  attribute.id = id;
  attribute.value.clusterDim = {1, 1, 1};
  if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) attribute.value.clusterDim.x = 2;
  return attribute;
}

// A graph that was captured, with one launch, and one that was made by hand, with another.
int launch_graphs(CUfunction add, Operands& to, CUstream stream) {
  CUgraph captured = nullptr, made = nullptr;
  CUgraphExec executable = nullptr;
  cuda().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  cuda().launch_kernel(add, 6, 1, 1, 256, 1, 1, 0, stream, to.params, nullptr);
  cuda().stream_end_capture(stream, &captured);
  cuda().graph_instantiate_with_flags(&executable, captured, 0);
  int wrong = cuda().graph_launch(executable, stream);
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = add;
  node.gridDimX = 7;
  node.blockDimX = 256;
  node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = to.params;
  CUgraphNode handle = nullptr;
  wrong += cuda().graph_create(&made, 0);
  wrong += cuda().graph_add_kernel_node(&handle, made, nullptr, 0, &node);
  wrong += cuda().graph_instantiate_with_flags(&executable, made, 0);
  return wrong + cuda().graph_launch(executable, stream);
}

// One launch of each kind, with 1, 2, 3 ... blocks; kKinds in all.
constexpr unsigned kKinds = 7;
int each_kind() {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  const CUfunction add = load_kernel("add");
  Operands to;
  CUstream stream = nullptr;
  cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING);
  int wrong = 0;
  wrong += cuda().launch_kernel(add, 1, 1, 1, 256, 1, 1, 0, nullptr, to.params, nullptr);
  wrong += cuda().launch_kernel(add, 2, 1, 1, 256, 1, 1, 0, stream, to.params, nullptr);
  wrong +=
      cuda().launch_kernel(add, 3, 1, 1, 256, 1, 1, 0, CU_STREAM_PER_THREAD, to.params, nullptr);
  wrong += launch_with(add, to, stream, 4, attribute_of(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
  CUlaunchAttribute cooperative = attribute_of(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  cooperative.value.cooperative = 1;
  wrong += launch_with(add, to, stream, 5, cooperative);
  wrong += launch_graphs(add, to, stream);
  wrong += cuda().ctx_synchronize();
  return wrong;
}

// The same launch many times, then one of another size.
constexpr int kRepeated = 40;
int repeat() {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  const CUfunction add = load_kernel("add");
  Operands to;
  for (int k = 0; k < kRepeated; ++k) {
    cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, nullptr, to.params, nullptr);
  }
  cuda().launch_kernel(add, 32, 1, 1, 256, 1, 1, 0, nullptr, to.params, nullptr);
  return cuda().ctx_synchronize();
}

int take_turns(size_t shift) {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  CUcontext context = nullptr;
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_push_current(context);
  CUmodule module = nullptr;
  CUfunction turns = nullptr;
  if (cuda().module_load_data(&module, kTurns) != CUDA_SUCCESS) return 101;
  cuda().module_get_function(&turns, module, "turns");
  constexpr unsigned kBlocks = 12;
  CUdeviceptr from = 0, to = 0, other = 0;
  cuda().mem_alloc(&from, 4096);
  cuda().mem_alloc(&other, 1 + shift);
  cuda().mem_alloc(&to, kBlocks * 128);
  cuda().memset_d32(from, 0, 1024);
  void* params[] = {&from, &to};
  const CUresult launched =
      cuda().launch_kernel(turns, kBlocks, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr);
  return launched != CUDA_SUCCESS ? 102 : int{cuda().ctx_synchronize()};
}

// `shift` moves what is allocated.
int read_again(size_t shift) {
  if (cuda().init(0) != CUDA_SUCCESS) return 100;
  CUcontext context = nullptr;
  cuda().device_primary_ctx_retain(&context, 0);
  cuda().ctx_push_current(context);
  CUmodule module = nullptr;
  CUfunction again = nullptr;
  if (cuda().module_load_data(&module, kAgain) != CUDA_SUCCESS) return 101;
  cuda().module_get_function(&again, module, "again");
  constexpr unsigned kBlocks = 12;
  CUdeviceptr a = 0, b = 0, out = 0, other = 0;
  cuda().mem_alloc(&a, kBlocks * 112640);
  cuda().mem_alloc(&other, 1 + shift);
  cuda().mem_alloc(&b, kBlocks * 112640);
  cuda().mem_alloc(&other, 1 + 3 * shift);
  cuda().mem_alloc(&out, kBlocks * 1024);
  cuda().memset_d32(a, 0, kBlocks * 28160);
  cuda().memset_d32(b, 0, kBlocks * 28160);
  void* params[] = {&a, &b, &out};
  cuda().launch_kernel(again, kBlocks, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr);
  return cuda().ctx_synchronize();
}

std::string clock_of(const std::function<int()>& body, Environment environment) {
  const std::string path = path_of("clock");
  environment.insert({{"LATHE_SIM_CLOCK", path}, {"LATHE_SIM_NVDISASM", "none"}});
  const Child child = in_child(environment, body);
  INFO(child.error);
  CHECK(child.status == 0);
  return content(path);
}

}  // namespace

TEST_CASE("whoever launches a kernel, the clock tells its time") {
  for (const char* sampled : {"0", "2"}) {
    CAPTURE(sampled);
    const auto all = lines_of(clock_of(each_kind, {{"LATHE_SIM_SAMPLE_BLOCKS", sampled}}));
    REQUIRE(all.size() == kKinds);
    for (const std::string& line : all) {
      CAPTURE(line);
      CHECK(has(line, "\"kernel\":\"add\""));
      CHECK(number(line, "microseconds") > 0);
      CHECK(number(line, "stuck") == 0);
      CHECK(!has(line, "\"repeats\""));
      CHECK(has(line, "\"lines\":[{"));
    }
  }
}

TEST_CASE("launches that count the same are replayed once") {
  for (const char* sampled : {"0", "8"}) {
    CAPTURE(sampled);
    const auto all = lines_of(clock_of(repeat, {{"LATHE_SIM_SAMPLE_BLOCKS", sampled}}));
    REQUIRE(all.size() == kRepeated + 1);
    for (size_t k = 1; k < kRepeated; ++k) {
      CHECK(has(all[k], "\"repeats\":1"));
      CHECK(all[k].size() < 2000);
      CHECK(number(all[k], "microseconds") == number(all[0], "microseconds"));
    }
    for (const std::string* line : {&all.front(), &all.back()}) {
      CHECK(!has(*line, "\"repeats\""));
      CHECK(has(*line, "\"lines\":[{"));
    }
    CHECK(number(all.back(), "microseconds") < number(all.front(), "microseconds"));
  }
}

TEST_CASE("the clock says the same for any host") {
  const Environment hopper = {{"LATHE_SIM_GPU", "h100"}};
  const std::string first = clock_of([] { return read_again(0); }, {});
  const std::string turns = clock_of([] { return take_turns(0); }, hopper);
  CHECK(lines_of(first).size() == 1);
  REQUIRE(lines_of(turns).size() == 1);
  CHECK(number(turns, "stuck") == 0);
  size_t shift = 0;
  for (const char* threads : {"1", "2", "3", "4", "8"}) {
    for (const char* isa : {"base", "avx2", "avx512"}) {
      CAPTURE(threads);
      CAPTURE(isa);
      Environment environment = {{"LATHE_SIM_THREADS", threads}, {"LATHE_SIM_ISA", isa}};
      const Child child = in_child(environment, [] { return int{cuda().init(0)}; });
      if (child.status == CUDA_ERROR_NO_DEVICE) {
        MESSAGE("skipped: this build or machine has no " << isa);
        continue;
      }
      shift += 77'777;
      CHECK(clock_of([&] { return read_again(shift); }, environment) == first);
      environment.insert(hopper.begin(), hopper.end());
      CHECK(clock_of([&] { return take_turns(shift); }, environment) == turns);
    }
  }
}

TEST_CASE("a GPU that the clock does not know is told once") {
  const std::string path = path_of("clock_unknown");
  const Child child =
      in_child({{"LATHE_SIM_CLOCK", path}, {"LATHE_SIM_GPU", "l40s"}}, [] { return repeat(); });
  CHECK(child.status == 0);
  CHECK(child.error ==
        "lathe sim: LATHE_SIM_CLOCK: the clock knows a100, h100, h200, not l40s: no launch has a "
        "line\n");
  CHECK(!exists(path));
}
