// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention through the C API on the simulator, against plain loops: strides that are not
// those of the shape, packed rows nobody's, and options that reach the kernel. What the kernels
// must hold to over all options is tested elsewhere.
#include <doctest/doctest.h>

#include <map>

#include "tests/harness/support.h"
#include "tests/numbers.h"
#include "tests/ref/attention.h"

namespace {

using test::Array;
using test::error;
using Values = std::vector<double>;

#define API(call) REQUIRE_MESSAGE((call) == LATHE_OK, #call ": ", error())

constexpr double kTolerance = 0.02;  // of bf16 results near 1; a wrong row or block is far off
constexpr double kSentinel = 7.0;

const test::Folder& cache() {
  static const test::Folder folder;
  return folder;
}

// Multiples of 1/16 in [-1, 1): the same in every 16-bit type.
Values pattern(size_t count, uint64_t seed) {
  Values values(count);
  uint64_t state = seed * 2654435761u + 12345;
  for (double& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<double>(static_cast<int>((state >> 40) % 32) - 16) / 16.0;
  }
  return values;
}

// Device memory and views into it, by name, for one plan.
struct Device {
  test::Context context = test::make_context(LATHE_DEVICE_SIM, cache().path);
  std::vector<void*> memory;
  std::map<std::string, Array> arrays;
  std::map<std::string, lathe_dtype> dtypes;

  Device() { REQUIRE_MESSAGE(context, error()); }
  ~Device() {
    for (void* each : memory) lathe_free(context.get(), each);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  char* upload(lathe_dtype dtype, const Values& values) {
    const size_t element = numbers::bytes_of(dtype);
    std::vector<char> bytes(values.size() * element);
    for (size_t i = 0; i < values.size(); ++i) {
      numbers::encode(dtype, values[i], &bytes[i * element]);
    }
    void* data = nullptr;
    API(lathe_malloc(context.get(), &data, bytes.size()));
    API(lathe_copy_to_device(context.get(), data, bytes.data(), bytes.size(), nullptr));
    memory.push_back(data);
    return static_cast<char*>(data);
  }
  Values download(lathe_dtype dtype, const void* from, size_t count) {
    const size_t element = numbers::bytes_of(dtype);
    std::vector<char> bytes(count * element);
    API(lathe_copy_to_host(context.get(), bytes.data(), from, bytes.size(), nullptr));
    Values values(count);
    for (size_t i = 0; i < count; ++i) values[i] = numbers::decode(dtype, &bytes[i * element]);
    return values;
  }
  void view(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape, void* data,
            std::vector<int64_t> strides = {}) {
    arrays[name] = Array(dtype, std::move(shape), data);
    arrays[name].strides = std::move(strides);
    dtypes[name] = dtype;
  }
  void put(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape,
           const Values& values) {
    view(name, dtype, std::move(shape), upload(dtype, values));
  }
  Values get(const std::string& name, size_t count) {
    return download(dtypes.at(name), arrays.at(name).view.data, count);
  }
  void run(const std::map<const char*, const char*>& options) {
    test::Builder builder("flash_attention");
    for (const auto& [name, array] : arrays) {
      builder.tensor({name, dtypes.at(name), array.shape});
    }
    for (const auto& [option, value] : options) builder.set(option, value);
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context.get(), builder.problem.get()));
    const test::Plan plan(made);
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(made));
    for (auto& [name, array] : arrays) {
      size_t slot = 0;
      API(lathe_plan_slot(made, name.c_str(), &slot));
      slots.at(slot) = array.get();
    }
    size_t bytes = 1;
    API(lathe_plan_workspace(made, slots.data(), nullptr, &bytes));
    CHECK(bytes == 0);
    API(lathe_plan_run(made, slots.data(), nullptr, 0, nullptr));
    API(lathe_stream_synchronize(context.get(), nullptr));
  }
};

void check_close(const Values& found, const Values& expected, double tolerance = kTolerance) {
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const bool same = found[i] == expected[i];  // infinities
    if (!same && !(std::abs(found[i] - expected[i]) <= tolerance)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("queries, keys and values in one buffer, and an output with gaps") {
  constexpr int64_t kBatch = 2, kTokens = 70, kHeads = 4, kKeyHeads = 2, kWidth = 64;
  constexpr int64_t kHead = kWidth + 8;  // from head to head
  constexpr int64_t kColumns = (kHeads + 2 * kKeyHeads) * kHead, kGap = 16;
  Device device;
  const Values whole = pattern(kBatch * kTokens * kColumns, 1);
  char* buffer = device.upload(LATHE_BF16, whole);
  const std::vector<int64_t> strides = {kTokens * kColumns, kColumns, kHead, 1};
  ref::Attention plain;
  plain.heads = kHeads, plain.kv_heads = kKeyHeads;
  plain.head_dim = plain.value_dim = kWidth;
  plain.packed = false;
  plain.begin_q = plain.begin_k = {0, kTokens, 2 * kTokens};
  plain.scale = 0.3;
  plain.window_left = 20, plain.window_right = 3;
  int64_t column = 0;
  const auto part = [&](const char* name, int64_t heads, Values* values) {
    device.view(name, LATHE_BF16, {kBatch, kTokens, heads, kWidth}, buffer + column * 2, strides);
    for (int64_t row = 0; row < kBatch * kTokens; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        const auto from = whole.begin() + row * kColumns + column + head * kHead;
        values->insert(values->end(), from, from + kWidth);
      }
    }
    column += heads * kHead;
  };
  part("q", kHeads, &plain.q);
  part("k", kKeyHeads, &plain.k);
  part("v", kKeyHeads, &plain.v);
  constexpr int64_t kRow = kHeads * kWidth + kGap;
  char* out = device.upload(LATHE_BF16, Values(kBatch * kTokens * kRow, kSentinel));
  device.view("out", LATHE_BF16, {kBatch, kTokens, kHeads, kWidth}, out,
              {kTokens * kRow, kRow, kWidth, 1});
  device.put("lse", LATHE_F32, {kBatch, kHeads, kTokens}, Values(kBatch * kHeads * kTokens, NAN));
  device.run({{"softmax_scale", "0.3"}, {"window_left", "20"}, {"window_right", "3"}});

  const ref::AttentionForward expected = ref::attention_forward(plain);
  const Values gapped = device.get("out", kBatch * kTokens * kRow);
  Values dense;
  for (int64_t row = 0; row < kBatch * kTokens; ++row) {
    const auto from = gapped.begin() + row * kRow;
    dense.insert(dense.end(), from, from + kHeads * kWidth);
    CHECK(std::count(from + kHeads * kWidth, from + kRow, kSentinel) == kGap);
  }
  check_close(dense, expected.out);
  check_close(device.get("lse", kBatch * kHeads * kTokens), expected.lse);
}

// Offsets of the sequences on a packed axis of `rows`; rows past the last offset hold NaN.
void packed(const std::vector<int64_t>& begin_q, const std::vector<int64_t>& begin_k, int64_t rows,
            int64_t keys) {
  constexpr int64_t kHeads = 4, kKeyHeads = 1, kWidth = 64, kValueWidth = 32;
  Device device;
  ref::Attention plain;
  plain.heads = kHeads, plain.kv_heads = kKeyHeads;
  plain.head_dim = kWidth, plain.value_dim = kValueWidth;
  plain.begin_q = begin_q, plain.begin_k = begin_k;
  plain.scale = 0.125, plain.softcap = 5;
  plain.causal = true;
  const int64_t sequences = plain.sequences();
  const auto fill = [&](const char* name, int64_t tokens, int64_t used, int64_t columns,
                        std::vector<int64_t> shape, uint64_t seed, Values* values) {
    *values = pattern(static_cast<size_t>(tokens * columns), seed);
    std::fill(values->begin() + used * columns, values->end(), NAN);
    device.put(name, LATHE_F16, std::move(shape), *values);
  };
  fill("q", rows, begin_q.back(), kHeads * kWidth, {rows, kHeads, kWidth}, 2, &plain.q);
  fill("k", keys, begin_k.back(), kKeyHeads * kWidth, {keys, kKeyHeads, kWidth}, 3, &plain.k);
  fill("v", keys, begin_k.back(), kKeyHeads * kValueWidth, {keys, kKeyHeads, kValueWidth}, 4,
       &plain.v);
  plain.sinks = {0.5, -1, -INFINITY, 2};
  device.put("sinks", LATHE_F32, {kHeads}, plain.sinks);
  if (sequences > 0) {
    plain.alibi_slopes = pattern(static_cast<size_t>(sequences * kHeads), 5);
    device.put("alibi_slopes", LATHE_F32, {sequences, kHeads}, plain.alibi_slopes);
  }
  const auto offsets = [&](const char* name, const std::vector<int64_t>& begin) {
    device.put(name, LATHE_I64, {sequences + 1}, Values(begin.begin(), begin.end()));
  };
  offsets("cu_seqlens_q", begin_q);
  offsets("cu_seqlens_k", begin_k);
  const auto count = static_cast<size_t>(rows * kHeads);
  device.put("out", LATHE_F16, {rows, kHeads, kValueWidth}, Values(count * kValueWidth, NAN));
  device.put("lse", LATHE_F32, {kHeads, rows}, Values(count, NAN));
  device.run({{"causal", "1"}, {"softcap", "5"}, {"window_left", "4611686018427387904"}});

  const ref::AttentionForward expected = ref::attention_forward(plain);
  check_close(device.get("out", count * kValueWidth), expected.out);
  check_close(device.get("lse", count), expected.lse);
}

TEST_CASE("packed sequences, some empty, with rows that are nobody's") {
  packed({0, 0, 5, 38, 40}, {0, 4, 4, 74, 76}, 49, 80);
}

TEST_CASE("float32 inputs keep float32's accuracy") {
  constexpr int64_t kBatch = 2, kQueries = 9, kKeys = 40, kHeads = 2, kWidth = 72, kValueWidth = 40;
  Device device;
  ref::Attention plain;
  plain.heads = kHeads, plain.kv_heads = 1;
  plain.head_dim = kWidth, plain.value_dim = kValueWidth;
  plain.packed = false;
  plain.begin_q = {0, kQueries, 2 * kQueries}, plain.begin_k = {0, kKeys, 2 * kKeys};
  plain.scale = 1 / std::sqrt(static_cast<double>(kWidth));
  plain.causal = true;
  // Every bit of the significand in use.
  const auto fill = [&](const char* name, int64_t tokens, int64_t heads, int64_t width,
                        Values* values, uint64_t seed) {
    const Values coarse = pattern(kBatch * tokens * heads * width, seed);
    for (const double value : coarse) {
      values->push_back(static_cast<float>(value * 1.7320508 + 0x1p-20));
    }
    device.put(name, LATHE_F32, {kBatch, tokens, heads, width}, *values);
  };
  fill("q", kQueries, kHeads, kWidth, &plain.q, 6);
  fill("k", kKeys, 1, kWidth, &plain.k, 7);
  fill("v", kKeys, 1, kValueWidth, &plain.v, 8);
  constexpr size_t kRows = kBatch * kQueries * kHeads;
  device.put("out", LATHE_F32, {kBatch, kQueries, kHeads, kValueWidth},
             Values(kRows * kValueWidth, NAN));
  device.put("lse", LATHE_F32, {kBatch, kHeads, kQueries}, Values(kRows, NAN));
  device.run({{"causal", "1"}});
  const ref::AttentionForward expected = ref::attention_forward(plain);
  check_close(device.get("out", kRows * kValueWidth), expected.out, 2e-6);
  check_close(device.get("lse", kRows), expected.lse, 2e-6);
}

TEST_CASE("without sequences every packed row is padding") { packed({0}, {0}, 9, 3); }

}  // namespace
