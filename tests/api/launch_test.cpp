// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What runs launch, over driver and NCCL tables that only write down: parameters, tiles, the order
// of halo and boundary, and that a run on one rank allocates nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <new>

#include "api/group.h"
#include "api/plan.h"
#include "collective/conv_halo.h"
#include "templates/params/conv.h"
#include "tests/api/support.h"
#include "tests/collective/fakes.h"

namespace {
std::atomic<long> allocations{0};
}

// The whole program's, so that a run's are counted wherever they come from.
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using test::Array;
using test::Builder;
using test::contains;
using test::error;

struct Launch {
  int kernel = 0;  // in the order of loading: the plan's
  CUlaunchConfig config = {};
  std::array<char, 256> params{};
  template <typename Params>
  Params as() const {
    Params out;
    std::memcpy(&out, params.data(), sizeof(out));
    return out;
  }
};

// Of the driver table below. Fixed room: noting a launch must not allocate.
struct Recorder {
  int loaded = 0;
  std::array<size_t, 16> params_bytes{};
  std::array<Launch, 32> launches;
  size_t count = 0;
};
Recorder recorder;

std::shared_ptr<const lathe::Driver> recording_driver() {
  auto driver = std::make_shared<lathe::Driver>(*fakes::driver());
  driver->cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    return *value = 100000, CUDA_SUCCESS;
  };
  driver->cuLibraryLoadData = [](CUlibrary* out, const void*, CUjit_option*, void**, unsigned,
                                 CUlibraryOption*, void**, unsigned) {
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

// A context on the recording driver, a plan in it and tensors at made-up addresses.
struct World {
  test::Folder folder;
  lathe_context context;
  std::unique_ptr<lathe_group> group;
  test::Plan plan;
  std::vector<Array> arrays;
  std::vector<const DLTensor*> slots;

  World() {
    recorder = Recorder();
    context.kind = LATHE_DEVICE_SIM;
    context.device = *lathe::Device::open(recording_driver(), 0, "sm_90a");
    context.facts = context.device->facts();
    context.store = lathe::Store::open(folder.path);
    context.registry =
        std::make_unique<lathe::Registry>(context.store, context.device, context.facts.arch);
  }
  void join(fakes::Rank* rank, int world, int index) {
    fakes::current = rank;
    group = std::make_unique<lathe_group>();
    group->context = &context;
    auto made = lathe::Group::create(context.device, fakes::nccl(), {}, world, index, 1000);
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    group->group = *made;
  }
  void make(const Builder& builder) {
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    lathe_plan* made = nullptr;
    const lathe_status status = lathe_plan_create(&made, &context, builder.problem.get());
    REQUIRE_MESSAGE(status == LATHE_OK, error());
    plan.reset(made);
    for (size_t i = 0; i < made->kernels.size(); ++i) {
      recorder.params_bytes.at(i) = static_cast<size_t>(made->kernels[i].built->spec.params_bytes);
    }
  }
  // Every declared tensor with the extents of the letters.
  void fill(int64_t batch, int64_t tokens, int64_t sequences, int64_t channels, int64_t width) {
    arrays.clear();
    slots.clear();
    const std::map<lathe::Letter, int64_t> extents = {{lathe::Letter::B, batch},
                                                      {lathe::Letter::T, tokens},
                                                      {lathe::Letter::N, sequences},
                                                      {lathe::Letter::D, channels},
                                                      {lathe::Letter::W, width}};
    for (const lathe::Slot& slot : plan->slots) {
      std::vector<int64_t> shape;
      for (int d = 0; d < slot.shape.rank; ++d) {
        shape.push_back(extents.at(slot.shape.dims[d].letter) + slot.shape.dims[d].plus);
      }
      const auto dtype = static_cast<lathe_dtype>(slot.dtype);
      arrays.emplace_back(dtype, shape, address(slot.tensor));
    }
    for (Array& array : arrays) slots.push_back(array.get());
  }
  static void* address(int tensor) {
    return reinterpret_cast<void*>(uintptr_t{0x100000} * static_cast<uintptr_t>(tensor + 1));
  }
  int kernel(const std::string& name) const {
    for (size_t i = 0; i < plan->kernels.size(); ++i) {
      if (plan->kernels[i].built->spec.kernel == name) return static_cast<int>(i);
    }
    return -1;
  }
  std::vector<Launch> launches_of(const std::string& name) const {
    std::vector<Launch> found;
    for (size_t i = 0; i < recorder.count; ++i) {
      if (recorder.launches[i].kernel == kernel(name)) found.push_back(recorder.launches[i]);
    }
    return found;
  }
};

char* const kWorkspace = reinterpret_cast<char*>(uintptr_t{0x40000000});
const auto kStream = reinterpret_cast<CUstream>(uintptr_t{0x77});

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

TEST_CASE("one rank: parameters are those of the tensors, and nothing is allocated") {
  World world;
  world.make(both_ways());
  world.fill(2, 700, 2, 64, 4);
  world.arrays[0].strides = {700 * 64 + 640, 64, 1};
  world.slots[0] = world.arrays[0].get();
  size_t bytes = 0;
  REQUIRE_MESSAGE(
      lathe_plan_workspace(world.plan.get(), world.slots.data(), nullptr, &bytes) == LATHE_OK,
      error());
  const long before = allocations;
  const lathe_status status =
      lathe_plan_run(world.plan.get(), world.slots.data(), kWorkspace, bytes, kStream);
  const long after = allocations;
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  CHECK(after == before);
  REQUIRE(recorder.count == 3);

  namespace conv = lathe::conv;
  const auto forward = world.launches_of("causal_conv1d").at(0);
  const auto p = forward.as<lathe::ConvForwardParams>();
  CHECK(forward.config.hStream == kStream);
  CHECK(p.x == World::address(conv::x));
  CHECK(p.weight == World::address(conv::weight));
  CHECK(p.bias == World::address(conv::bias));
  CHECK(p.residual == nullptr);
  CHECK(p.initial_state == World::address(conv::initial_state));
  CHECK(p.y == World::address(conv::y));
  CHECK(p.final_state == World::address(conv::final_state));
  CHECK(p.x_batch_stride == 700 * 64 + 640);
  CHECK(p.y_batch_stride == 700 * 64);
  CHECK(p.x_token_stride == 64);
  CHECK(p.batch == 2);
  CHECK(p.channels == 64);
  CHECK(p.sequences == 2);
  CHECK(p.length == 700);
  CHECK(p.begin == 0);
  CHECK(p.end == 700);
  CHECK(p.first_tile == 0);
  CHECK(p.tiles >= 2);
  CHECK(p.state_tiles >= 1);

  const auto q = world.launches_of("causal_conv1d_bwd").at(0).as<lathe::ConvBackwardParams>();
  CHECK(q.dy == World::address(conv::dy));
  CHECK(q.dx == World::address(conv::dx));
  CHECK(q.dinitial_state == World::address(conv::dinitial_state));
  CHECK(q.dfinal_state == nullptr);
  CHECK(q.all_tiles == q.tiles);
  CHECK(static_cast<char*>(q.partials) >= kWorkspace);
  CHECK(static_cast<char*>(q.partials) + int64_t{2} * q.tiles * 5 * 64 * 4 <= kWorkspace + bytes);

  const auto w =
      world.launches_of("causal_conv1d_weight_grad").at(0).as<lathe::ConvWeightGradParams>();
  CHECK(w.partials == q.partials);
  CHECK(w.tiles == 2 * q.all_tiles);
  CHECK(w.dweight == World::address(conv::dweight));
  CHECK(w.dbias == World::address(conv::dbias));
}

TEST_CASE("no tokens: states and weight gradients are still written") {
  World world;
  world.make(both_ways());
  world.fill(2, 0, 2, 64, 4);
  REQUIRE_MESSAGE(
      lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream) == LATHE_OK,
      error());
  REQUIRE(recorder.count == 3);
  CHECK(world.launches_of("causal_conv1d").at(0).as<lathe::ConvForwardParams>().tiles == 0);
  CHECK(world.launches_of("causal_conv1d_bwd").at(0).as<lathe::ConvBackwardParams>().state_tiles >
        0);
  CHECK(world.launches_of("causal_conv1d_weight_grad")
            .at(0)
            .as<lathe::ConvWeightGradParams>()
            .tiles == 0);

  recorder.count = 0;
  world.fill(0, 5, 0, 64, 4);
  REQUIRE(lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream) == LATHE_OK);
  CHECK(recorder.count == 1);  // the weight gradient is zero, and that is written
}

TEST_CASE("a workspace that is missing, small or misaligned is refused") {
  World world;
  world.make(both_ways());
  world.fill(2, 700, 2, 64, 4);
  size_t bytes = 0;
  REQUIRE(lathe_plan_workspace(world.plan.get(), world.slots.data(), nullptr, &bytes) == LATHE_OK);
  const auto run = [&](char* workspace, size_t given) {
    return lathe_plan_run(world.plan.get(), world.slots.data(), workspace, given, kStream);
  };
  CHECK(run(nullptr, bytes) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "workspace is NULL"));
  CHECK(run(kWorkspace, bytes - 1) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "needs " + std::to_string(bytes)));
  CHECK(run(kWorkspace + 128, bytes) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "multiple of 256"));
  CHECK(recorder.count == 0);
}

// Every token tile of a rank in one launch, every state tile once, and what needs the halo last.
template <typename Params>
void check_cover(const std::vector<Launch>& launches, int all_tiles, int all_state_tiles,
                 const void* halo) {
  std::vector<int> seen(static_cast<size_t>(all_tiles), 0);
  int state_tiles = 0;
  for (const Launch& launch : launches) {
    const Params p = launch.as<Params>();
    for (int tile = p.first_tile; tile < p.first_tile + p.tiles; ++tile) {
      ++seen.at(static_cast<size_t>(tile));
    }
    if (p.state_tiles > 0) CHECK(p.first_tile == 0);
    state_tiles += p.state_tiles;
    CHECK(p.halo == halo);
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  CHECK(state_tiles == all_state_tiles);
}

void check_rank(int ranks, int rank, const std::vector<int64_t>& bounds) {
  CAPTURE(rank);
  World world;
  fakes::Rank fake;
  world.join(&fake, ranks, rank);
  Builder builder = both_ways();
  REQUIRE(lathe_problem_group(builder.problem.get(), world.group.get(),
                              LATHE_REDUCE_PARAMETER_GRADS) == LATHE_OK);
  world.make(builder);
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create(&made, ranks, rank, bounds.back(), bounds.data()) == LATHE_OK);
  const test::Shard shard(made);
  const int64_t begin = bounds[static_cast<size_t>(rank)];
  const int64_t end = bounds[static_cast<size_t>(rank) + 1];
  world.fill(2, end - begin, 2, 64, 4);
  size_t bytes = 0;
  REQUIRE_MESSAGE(
      lathe_plan_workspace(world.plan.get(), world.slots.data(), shard.get(), &bytes) == LATHE_OK,
      error());
  REQUIRE_MESSAGE(lathe_plan_run_sharded(world.plan.get(), shard.get(), world.slots.data(),
                                         kWorkspace, bytes, kStream) == LATHE_OK,
                  error());
  CHECK(fake.violations.empty());

  const lathe::HaloPlan halo = lathe::halo_plan(shard->partition, rank, 4);
  const auto pack = world.launches_of("causal_conv1d_halo_pack");
  const auto join = world.launches_of("causal_conv1d_halo_join");
  const auto add = world.launches_of("causal_conv1d_halo_add");
  CHECK(pack.size() == (halo.destinations.empty() ? 0u : 2u));
  CHECK(join.size() == (halo.sources.empty() || halo.aligned ? 0u : 2u));
  CHECK(add.size() == (halo.destinations.empty() ? 0u : 1u));

  const lathe::ConvShape shape{2, end - begin, 64, 2};
  const auto& specs = world.plan->work->specs();
  const int tiles = static_cast<int>(lathe::conv_tiles(specs[0], end - begin));
  const void* rows = nullptr;
  const auto forward = world.launches_of("causal_conv1d");
  const auto backward = world.launches_of("causal_conv1d_bwd");
  if (!join.empty()) {
    rows = join[0].as<lathe::ConvHaloJoinParams>().halo;
  } else if (!halo.sources.empty()) {
    rows = forward.at(0).as<lathe::ConvForwardParams>().halo;
    CHECK(rows >= kWorkspace);
  }
  check_cover<lathe::ConvForwardParams>(
      forward, tiles, static_cast<int>(lathe::conv_state_tiles(specs[0], shape)), rows);
  check_cover<lathe::ConvBackwardParams>(
      backward, tiles, static_cast<int>(lathe::conv_state_tiles(specs[1], shape)), rows);
  for (const Launch& launch : backward) {
    const auto p = launch.as<lathe::ConvBackwardParams>();
    CHECK(p.begin == begin);
    CHECK(p.end == end);
    CHECK(p.length == bounds.back());
    CHECK(p.all_tiles == tiles);
  }

  const auto sums = world.launches_of("causal_conv1d_weight_grad");
  const auto reduced = sums.at(0).as<lathe::ConvWeightGradParams>();
  CHECK(reduced.dbias == static_cast<float*>(reduced.dweight) + 4 * 64);
  CHECK(fake.reductions == 1);
}

TEST_CASE("ranks: each tile once, the boundary with the halo, gradients added and reduced") {
  const std::vector<int64_t> cuts[] = {{0, 1000, 2100, 3000},  // one message from the neighbour
                                       {0, 600, 601, 1400},    // from two ranks
                                       {0, 5, 5, 900}};        // over an empty part
  for (const auto& bounds : cuts) {
    for (int rank = 0; rank < 3; ++rank) check_rank(3, rank, bounds);
  }
}

TEST_CASE("plans with and without a group keep to their own runs") {
  World world;
  fakes::Rank fake;
  world.join(&fake, 2, 1);
  Builder builder = both_ways();
  REQUIRE(lathe_problem_group(builder.problem.get(), world.group.get(), 0) == LATHE_OK);
  world.make(builder);
  world.fill(1, 10, 1, 64, 4);
  CHECK(lathe_plan_run(world.plan.get(), world.slots.data(), kWorkspace, 1 << 20, kStream) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "lathe_plan_run_sharded"));
  const auto sharded = [&](int ranks, int rank, int64_t length) {
    lathe_shard* made = nullptr;
    REQUIRE(lathe_shard_create(&made, ranks, rank, length, nullptr) == LATHE_OK);
    const test::Shard shard(made);
    return lathe_plan_run_sharded(world.plan.get(), shard.get(), world.slots.data(), kWorkspace,
                                  1 << 20, kStream);
  };
  CHECK(sharded(2, 0, 20) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "rank 0 of 2"));
  CHECK(sharded(3, 1, 30) == LATHE_INVALID_ARGUMENT);
  CHECK(sharded(2, 1, 22) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "T = 10"));
  CHECK(contains(error(), "11 to 22"));
  CHECK(recorder.count == 0);

  World alone;
  alone.make(both_ways());
  alone.fill(1, 10, 1, 64, 4);
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create(&made, 1, 0, 10, nullptr) == LATHE_OK);
  const test::Shard shard(made);
  CHECK(lathe_plan_run_sharded(alone.plan.get(), shard.get(), alone.slots.data(), kWorkspace,
                               1 << 20, kStream) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "no group"));
}

TEST_CASE("the update rolls its state in place") {
  World world;
  Builder builder("causal_conv1d_update");
  builder.tensors({{"x", LATHE_F16, {-1, 96}},
                   {"weight", LATHE_F16, {96, 3}},
                   {"state", LATHE_F16, {-1, 96, 3}},
                   {"y", LATHE_F16, {-1, 96}}});
  world.make(builder);
  world.fill(7, 1, 7, 96, 3);
  const long before = allocations;
  const lathe_status status =
      lathe_plan_run(world.plan.get(), world.slots.data(), nullptr, 0, kStream);
  CHECK(allocations == before);
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  REQUIRE(recorder.count == 1);
  const auto p = recorder.launches[0].as<lathe::ConvUpdateParams>();
  CHECK(p.state == World::address(lathe::conv_update::state));
  CHECK(p.y == World::address(lathe::conv_update::y));
  CHECK(p.x_stride == 96);
  CHECK(p.state_stride == 96 * 3);
  CHECK(p.batch == 7);
  CHECK(p.channels == 96);
}

}  // namespace
