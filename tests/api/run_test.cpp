// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests run the C API on the simulator: one small problem of each kind against plain loops,
// and two ranks against one. Other tests cover the kernels over all options.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "tests/harness/support.h"

namespace {

using namespace test;

#define API(call) REQUIRE_MESSAGE((call) == LATHE_OK, #call ": ", error())

// The cache is shared by the cases: they ask for few kernels.
const test::Folder& cache() {
  static const test::Folder folder;
  return folder;
}
test::Context simulator() {
  test::Context context = test::make_context(LATHE_DEVICE_SIM, cache().path);
  REQUIRE_MESSAGE(context, error());
  return context;
}

// Float tensors on the device, by name, for one plan.
struct Device {
  lathe_context* context;
  std::map<std::string, Array> arrays;

  explicit Device(lathe_context* on) : context(on) {}
  ~Device() {
    for (auto& [name, array] : arrays) lathe_free(context, array.view.data);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void put(const std::string& name, std::vector<int64_t> shape, const Values& values) {
    void* data = nullptr;
    API(lathe_malloc(context, &data, values.size() * sizeof(float)));
    API(lathe_copy_to_device(context, data, values.data(), values.size() * sizeof(float), nullptr));
    arrays[name] = Array(LATHE_F32, std::move(shape), data);
  }
  void room(const std::string& name, std::vector<int64_t> shape) {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    put(name, std::move(shape), Values(count, NAN));
  }
  Values get(const std::string& name) {
    const Array& array = arrays.at(name);
    size_t count = 1;
    for (int64_t extent : array.shape) count *= static_cast<size_t>(extent);
    Values values(count);
    API(lathe_copy_to_host(context, values.data(), array.view.data, count * sizeof(float),
                           nullptr));
    return values;
  }
  // Declares what is here, with all extents but W and D left open.
  void declare(Builder& builder) const {
    for (const auto& [name, array] : arrays) {
      std::vector<int64_t> shape = array.shape;
      if (shape.size() == 3 && !contains(name, "state")) shape[0] = shape[1] = -1;
      builder.tensor({name, LATHE_F32, shape});
    }
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
  }
  void run(const lathe_problem* problem, const lathe_shard* shard = nullptr) {
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context, problem));
    const test::Plan plan(made);
    const auto slots = test::slots_of(made, arrays);
    size_t bytes = 0;
    API(lathe_plan_workspace(made, slots.data(), shard, &bytes));
    void *workspace = nullptr, *stream = nullptr;
    API(lathe_malloc(context, &workspace, bytes));
    API(lathe_stream_create(context, &stream));
    if (shard) {
      API(lathe_plan_run_sharded(made, shard, slots.data(), workspace, bytes, stream));
    } else {
      API(lathe_plan_run(made, slots.data(), workspace, bytes, stream));
    }
    API(lathe_stream_synchronize(context, stream));
    API(lathe_stream_destroy(context, stream));
    API(lathe_free(context, workspace));
  }
};

void check_close(const Values& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(found[i] - expected[i]) <= 1e-5 * (1.0 + std::abs(expected[i])));
  }
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr int64_t kBatch = 2, kTokens = 9, kChannels = 5, kWidth = 3;
size_t at(int64_t b, int64_t t, int64_t d) {
  return static_cast<size_t>((b * kTokens + t) * kChannels + d);
}

TEST_CASE("forward and backward of one plan equal plain loops") {
  const auto context = simulator();
  Device device(context.get());
  const Values x = pattern(kBatch * kTokens * kChannels, 1), dy = pattern(x.size(), 2);
  const Values weight = pattern(kChannels * kWidth, 3), bias = pattern(kChannels, 4);
  device.put("x", {kBatch, kTokens, kChannels}, x);
  device.put("weight", {kChannels, kWidth}, weight);
  device.put("bias", {kChannels}, bias);
  device.put("dy", {kBatch, kTokens, kChannels}, dy);
  device.room("y", {kBatch, kTokens, kChannels});
  device.room("dx", {kBatch, kTokens, kChannels});
  device.room("dweight", {kChannels, kWidth});
  device.room("dbias", {kChannels});
  Builder builder("causal_conv1d");
  device.declare(builder);
  device.run(builder.problem.get());

  std::vector<double> y(x.size()), dx(x.size()), dweight(weight.size()), dbias(bias.size());
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t d = 0; d < kChannels; ++d) {
        y[at(b, t, d)] += bias[static_cast<size_t>(d)];
        dbias[static_cast<size_t>(d)] += dy[at(b, t, d)];
        for (int64_t i = 0; i < kWidth; ++i) {
          const int64_t from = t - (kWidth - 1) + i;
          if (from < 0) continue;
          const size_t tap = static_cast<size_t>(d * kWidth + i);
          y[at(b, t, d)] += double{weight[tap]} * x[at(b, from, d)];
          dx[at(b, from, d)] += double{weight[tap]} * dy[at(b, t, d)];
          dweight[tap] += double{dy[at(b, t, d)]} * x[at(b, from, d)];
        }
      }
    }
  }
  check_close(device.get("y"), y);
  check_close(device.get("dx"), dx);
  check_close(device.get("dweight"), dweight);
  check_close(device.get("dbias"), dbias);
  CHECK(same_bits(device.get("x"), x));
}

TEST_CASE("the update equals the forward, token by token, bit by bit") {
  const auto context = simulator();
  const Values x = pattern(kBatch * kTokens * kChannels, 5),
               weight = pattern(kChannels * kWidth, 6);
  Device whole(context.get());
  whole.put("x", {kBatch, kTokens, kChannels}, x);
  whole.put("weight", {kChannels, kWidth}, weight);
  whole.room("y", {kBatch, kTokens, kChannels});
  whole.room("final_state", {kBatch, kChannels, kWidth});
  Builder forward("causal_conv1d");
  whole.declare(forward);
  forward.set("activation", "silu");
  whole.run(forward.problem.get());
  const Values y = whole.get("y");

  Device steps(context.get());
  steps.put("weight", {kChannels, kWidth}, weight);
  steps.put("state", {kBatch, kChannels, kWidth}, Values(kBatch * kChannels * kWidth, 0.0f));
  steps.room("x", {kBatch, kChannels});
  steps.room("y", {kBatch, kChannels});
  Builder update("causal_conv1d_update");
  steps.declare(update);
  update.set("activation", "silu");
  for (int64_t t = 0; t < kTokens; ++t) {
    CAPTURE(t);
    Values token(kBatch * kChannels), expected(kBatch * kChannels);
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t d = 0; d < kChannels; ++d) {
        token[static_cast<size_t>(b * kChannels + d)] = x[at(b, t, d)];
        expected[static_cast<size_t>(b * kChannels + d)] = y[at(b, t, d)];
      }
    }
    API(lathe_copy_to_device(context.get(), steps.arrays["x"].view.data, token.data(),
                             token.size() * sizeof(float), nullptr));
    steps.run(update.problem.get());
    CHECK(same_bits(steps.get("y"), expected));
  }
  CHECK(same_bits(steps.get("state"), whole.get("final_state")));
}

// Rank `rank` of two: tokens [begin, end) of one row.
void run_rank(lathe_context* context, const char* id, int rank, const int64_t* bounds,
              const Values& x, const Values& weight, const Values& dy,
              std::map<std::string, Values>* out) {
  lathe_group* made_group = nullptr;
  API(lathe_group_create(&made_group, context, id, 2, rank, 20000));
  const test::Group group(made_group);
  lathe_shard* made_shard = nullptr;
  API(lathe_shard_create(&made_shard, 2, rank, bounds[2], bounds));
  const test::Shard shard(made_shard);
  const int64_t begin = bounds[rank], tokens = bounds[rank + 1] - begin;
  const auto part = [&](const Values& whole) {
    return Values(whole.begin() + begin * kChannels, whole.begin() + (begin + tokens) * kChannels);
  };
  Device device(context);
  device.put("x", {1, tokens, kChannels}, part(x));
  device.put("dy", {1, tokens, kChannels}, part(dy));
  device.put("weight", {kChannels, kWidth}, weight);
  device.room("y", {1, tokens, kChannels});
  device.room("dx", {1, tokens, kChannels});
  device.room("dweight", {kChannels, kWidth});
  Builder builder("causal_conv1d");
  device.declare(builder);
  API(lathe_problem_group(builder.problem.get(), group.get(), LATHE_REDUCE_PARAMETER_GRADS));
  device.run(builder.problem.get(), shard.get());
  for (const char* name : {"y", "dx", "dweight"}) (*out)[name] = device.get(name);
  CHECK(lathe_group_error(group.get()) == LATHE_OK);
}

TEST_CASE("two ranks as threads equal one") {
  const auto context = simulator();
  const Values x = pattern(kTokens * kChannels, 7), dy = pattern(x.size(), 8);
  const Values weight = pattern(kChannels * kWidth, 9);
  Device one(context.get());
  one.put("x", {1, kTokens, kChannels}, x);
  one.put("dy", {1, kTokens, kChannels}, dy);
  one.put("weight", {kChannels, kWidth}, weight);
  for (const char* name : {"y", "dx"}) one.room(name, {1, kTokens, kChannels});
  one.room("dweight", {kChannels, kWidth});
  Builder builder("causal_conv1d");
  one.declare(builder);
  one.run(builder.problem.get());

  for (const int64_t cut : {int64_t{4}, int64_t{1}, kTokens - 1}) {
    CAPTURE(cut);
    const int64_t bounds[] = {0, cut, kTokens};
    char id[LATHE_UNIQUE_ID_BYTES];
    API(lathe_unique_id(context.get(), id));
    std::map<std::string, Values> parts[2];
    std::thread other([&] { run_rank(context.get(), id, 1, bounds, x, weight, dy, &parts[1]); });
    run_rank(context.get(), id, 0, bounds, x, weight, dy, &parts[0]);
    other.join();
    for (const char* name : {"y", "dx"}) {
      CAPTURE(name);
      Values joined = parts[0][name];
      joined.insert(joined.end(), parts[1][name].begin(), parts[1][name].end());
      const Values whole = one.get(name);
      check_close(joined, std::vector<double>(whole.begin(), whole.end()));
      if (std::string(name) == "y") CHECK(same_bits(joined, whole));
    }
    const Values dweight = one.get("dweight");
    for (auto& part : parts) {
      check_close(part["dweight"], std::vector<double>(dweight.begin(), dweight.end()));
    }
    CHECK(same_bits(parts[0]["dweight"], parts[1]["dweight"]));
  }
}

TEST_CASE("the simulator keeps the profile of its first context") {
  const auto context = simulator();
  lathe_context_info info = {};
  info.size = sizeof(info);
  API(lathe_context_get_info(context.get(), &info));
  CHECK(info.device == LATHE_DEVICE_SIM);
  CHECK(contains(info.driver_path, "sim/libcuda.so.1"));
  CHECK(std::string(info.device_name) != "");
  CHECK(!test::make_context(LATHE_DEVICE_SIM, cache().path, "sm_80"));
  CHECK(contains(error(), "arch is sm_80"));
  CHECK(contains(error(), "sm_90a"));
}

}  // namespace
