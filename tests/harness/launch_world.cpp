// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/launch_world.h"

#include <doctest/doctest.h>

#include <functional>
#include <map>

namespace launches {
namespace {

using test::Array;
using test::Builder;
using test::error;

std::shared_ptr<const lathe::Driver> recording_driver() {
  auto driver = std::make_shared<lathe::Driver>(*fakes::driver());
  driver->cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    return *value = 100000, CUDA_SUCCESS;
  };
  driver->cuLibraryLoadData = [](CUlibrary* out, const void*, CUjit_option*, void**, unsigned,
                                 CUlibraryOption*, void**, unsigned) {
    if (recorder.loading) recorder.loading();
    return *out = reinterpret_cast<CUlibrary>(static_cast<uintptr_t>(++recorder.loaded)),
           CUDA_SUCCESS;
  };
  driver->cuLibraryUnload = [](CUlibrary) { return CUDA_SUCCESS; };
  driver->cuLibraryGetKernel = [](CUkernel* out, CUlibrary library, const char*) {
    return *out = reinterpret_cast<CUkernel>(library), CUDA_SUCCESS;
  };
  driver->cuKernelGetFunction = [](CUfunction* out, CUkernel kernel) {
    return *out = reinterpret_cast<CUfunction>(kernel), CUDA_SUCCESS;
  };
  driver->cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
  driver->cuFuncLoad = [](CUfunction) { return CUDA_SUCCESS; };
  // Tables on the device, at an address of their own, and copies between addresses.
  driver->cuMemAlloc = [](CUdeviceptr* out, size_t) { return *out = kTables, CUDA_SUCCESS; };
  driver->cuMemFree = [](CUdeviceptr) { return CUDA_SUCCESS; };
  driver->cuMemcpyHtoDAsync = [](CUdeviceptr, const void*, size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  driver->cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  driver->cuMemcpyDtoDAsync = [](CUdeviceptr, CUdeviceptr, size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  driver->cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** params,
                                void**) {
    Launch& launch = recorder.launches.at(recorder.count++);
    launch.kernel = static_cast<int>(reinterpret_cast<uintptr_t>(function)) - 1;
    launch.config = *config;
    std::memcpy(launch.params.data(), params[0],
                recorder.params_bytes.at(static_cast<size_t>(launch.kernel)));
    return CUDA_SUCCESS;
  };
  return driver;
}

}  // namespace

World::World() {
  recorder = Recorder();
  context.kind = LATHE_DEVICE_SIM;
  context.device = *lathe::Device::open(recording_driver(), 0, "sm_90a");
  context.facts = context.device->facts();
  context.store = lathe::Store::open(folder.path);
  context.registry =
      std::make_unique<lathe::Registry>(context.store, context.device, context.facts.arch);
}

void World::join(fakes::Rank* rank, int world, int index) {
  fakes::current = rank;
  group = std::make_unique<lathe_group>();
  group->context = &context;
  auto made = lathe::Group::create(context.device, fakes::nccl(), {}, world, index, 1000);
  REQUIRE_MESSAGE(made.ok(), made.status().text());
  group->group = *made;
}

void World::make(const Builder& builder) {
  REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
  lathe_plan* made = nullptr;
  const lathe_status status = lathe_plan_create(&made, &context, builder.problem.get());
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  plan.reset(made);
}

test::Shard World::make_rank(const Builder& builder, fakes::Rank* fake, int rank,
                             const std::vector<int64_t>& bounds) {
  const int ranks = static_cast<int>(bounds.size()) - 1;
  join(fake, ranks, rank);
  REQUIRE(lathe_problem_group(builder.problem.get(), group.get(), LATHE_REDUCE_PARAMETER_GRADS) ==
          LATHE_OK);
  make(builder);
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create(&made, ranks, rank, bounds.back(), bounds.data()) == LATHE_OK);
  return test::Shard(made);
}

void World::fill(int64_t batch, int64_t tokens, int64_t sequences, int64_t channels,
                 int64_t width) {
  fill("B T N D W", {batch, tokens, sequences, channels, width});
}

void World::fill(const char* dims, const std::vector<int64_t>& extents) {
  // By name: an operator of a text has dims of its own.
  std::map<std::string, int64_t, std::less<>> extent_of;
  const std::vector<std::string_view> names = lathe::split(dims, ' ');
  REQUIRE(names.size() == extents.size());
  for (size_t i = 0; i < names.size(); ++i) extent_of[std::string(names[i])] = extents[i];
  // Worlds share the recorder: the next launches are this one's.
  for (size_t i = 0; i < plan->kernels.size(); ++i) {
    recorder.params_bytes.at(i) = static_cast<size_t>(plan->kernels[i].built->spec().params_bytes);
  }
  arrays.clear();
  slots.clear();
  for (const lathe::Slot& slot : plan->slots) {
    std::vector<int64_t> shape;
    for (int d = 0; d < slot.shape.rank; ++d) {
      const auto [dim, plus] = slot.shape.dims[d];
      const bool fixed = dim == lathe::Dim::fixed;
      shape.push_back((fixed ? 0 : extent_of.at(slot.shape.info(dim).name)) + plus);
    }
    const auto dtype = static_cast<lathe_dtype>(slot.dtype);
    arrays.emplace_back(dtype, shape, address(slot.tensor));
  }
  for (Array& array : arrays) slots.push_back(array.get());
}

void* World::address(int tensor) {
  return reinterpret_cast<void*>((uintptr_t{1} << 44) * static_cast<uintptr_t>(tensor + 1));
}

void check_addresses(const std::vector<std::pair<const void*, int>>& places) {
  for (const auto& [found, tensor] : places) {
    CAPTURE(tensor);
    CHECK(found == World::address(tensor));
  }
}

int World::kernel(const std::string& name) const {
  for (size_t i = 0; i < plan->kernels.size(); ++i) {
    if (plan->kernels[i].built->spec().kernel == name) return static_cast<int>(i);
  }
  return -1;
}

std::vector<Launch> World::launches_of(const std::string& name) const {
  std::vector<Launch> found;
  for (size_t i = 0; i < recorder.count; ++i) {
    if (recorder.launches[i].kernel == kernel(name)) found.push_back(recorder.launches[i]);
  }
  return found;
}

Builder both_ways() {
  Builder builder("causal_conv1d");
  builder.tensors({{"x", LATHE_F32, {-1, -1, 64}},
                   {"weight", LATHE_F32, {64, 4}},
                   {"bias", LATHE_F32, {64}},
                   {"initial_state", LATHE_F32, {-1, 64, 4}},
                   {"dy", LATHE_F32, {-1, -1, 64}},
                   {"y", LATHE_F32, {-1, -1, 64}},
                   {"final_state", LATHE_F32, {-1, 64, 4}},
                   {"dx", LATHE_F32, {-1, -1, 64}},
                   {"dweight", LATHE_F32, {64, 4}},
                   {"dbias", LATHE_F32, {64}},
                   {"dinitial_state", LATHE_F32, {-1, 64, 4}}});
  return builder;
}

lathe_status World::run(size_t* workspace) {
  size_t bytes = 0;
  const lathe_status asked = lathe_plan_workspace(plan.get(), slots.data(), nullptr, &bytes);
  if (workspace) *workspace = bytes;
  recorder.count = 0;
  if (asked != LATHE_OK) return asked;
  check_workspace_needed(plan.get(), nullptr, slots, bytes);
  const long before = allocations();
  const lathe_status status =
      lathe_plan_run(plan.get(), slots.data(), bytes ? kWorkspace : nullptr, bytes, kStream);
  const long after = allocations();
  if (status == LATHE_OK) CHECK(after == before);
  return status;
}

std::vector<std::string> World::kernels_launched() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < recorder.count; ++i) {
    CHECK(recorder.launches[i].config.hStream == kStream);
    const auto kernel = static_cast<size_t>(recorder.launches[i].kernel);
    names.push_back(plan->kernels[kernel].built->spec().kernel);
  }
  return names;
}

void check_workspace_needed(const lathe_plan* plan, const lathe_shard* shard,
                            const std::vector<const DLTensor*>& slots, size_t workspace) {
  if (workspace == 0) return;
  const struct {
    char* address;
    size_t bytes;
    std::string why;
  } wrong[] = {{nullptr, workspace, "workspace is NULL"},
               {kWorkspace, workspace - 1, "needs " + std::to_string(workspace)},
               {kWorkspace + 128, workspace, "multiple of 256"}};
  const size_t launched = recorder.count;
  for (const auto& each : wrong) {
    CAPTURE(each.why);
    CHECK((shard ? lathe_plan_run_sharded(plan, shard, slots.data(), each.address, each.bytes,
                                          kStream)
                 : lathe_plan_run(plan, slots.data(), each.address, each.bytes, kStream)) ==
          LATHE_INVALID_ARGUMENT);
    CHECK(test::contains(test::error(), each.why));
  }
  CHECK(recorder.count == launched);
}

void check_run_again(const lathe_plan* plan, const lathe_shard* shard,
                     const std::vector<const DLTensor*>& slots, size_t workspace) {
  check_workspace_needed(plan, shard, slots, workspace);
  const size_t launched = recorder.count;
  recorder.count = 0;
  fakes::silent = true;
  const long before = allocations();
  const lathe_status status =
      lathe_plan_run_sharded(plan, shard, slots.data(), kWorkspace, workspace, kStream);
  const long after = allocations();
  fakes::silent = false;
  CHECK(status == LATHE_OK);
  CHECK(recorder.count == launched);
  CHECK(after == before);
}

uint64_t run_rank(const World& world, const fakes::Rank& fake, const lathe_shard* shard,
                  size_t* workspace) {
  const lathe_plan* plan = world.plan.get();
  REQUIRE_MESSAGE(lathe_plan_workspace(plan, world.slots.data(), shard, workspace) == LATHE_OK,
                  error());
  recorder.count = 0;
  REQUIRE_MESSAGE(lathe_plan_run_sharded(plan, shard, world.slots.data(), kWorkspace, *workspace,
                                         kStream) == LATHE_OK,
                  error());
  CHECK(fake.violations.empty());
  check_run_again(plan, shard, world.slots, *workspace);
  lathe_estimate estimate = {};
  estimate.size = sizeof(estimate);
  REQUIRE(lathe_plan_estimate(plan, world.slots.data(), shard, &estimate) == LATHE_OK);
  return estimate.launches;
}

}  // namespace launches
