// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which tensor maps the driver is asked for: each once a thread, and another one for each other
// tensor, box, recipe or driver.
#include "device/tensor_map.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <thread>

#include "tests/device/fake_table.h"

using namespace lathe;
using namespace lathe::test;

namespace {

thread_local int asked = 0;
thread_local CUresult answer = CUDA_SUCCESS;

// Writes down all that it is given, so that equal bytes say that the questions were equal.
CUresult write_down(CUtensorMap* map, CUtensorMapDataType element, cuuint32_t rank, void* data,
                    const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                    const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ++asked;
  if (answer != CUDA_SUCCESS) return answer;
  uint32_t words[32] = {};
  const auto narrow = [](uint64_t word) { return static_cast<uint32_t>(word ^ word >> 32); };
  words[0] = static_cast<uint32_t>(element), words[1] = rank;
  words[2] = static_cast<uint32_t>(swizzle);
  words[3] = narrow(reinterpret_cast<uintptr_t>(data));
  for (uint32_t k = 0; k < rank; ++k) {
    words[4 + k] = narrow(extents[k]), words[14 + k] = box[k];
    if (k > 0) words[9 + k] = narrow(strides[k - 1]);
  }
  std::memcpy(map, words, sizeof words);
  return CUDA_SUCCESS;
}
CUresult write_other(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                     const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                     CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ++asked;
  std::memset(map, 0xab, sizeof *map);
  return CUDA_SUCCESS;
}

Driver driver_of(decltype(&cuTensorMapEncodeTiled) encode) {
  Driver driver;
  driver.cuTensorMapEncodeTiled = encode;
  fill_devices(driver);
  return driver;
}

const Driver& plain() {
  static const Driver driver = driver_of(write_down);
  return driver;
}

TensorMapRecipe recipe_of(int columns, int rows) {
  TensorMapRecipe recipe;
  recipe.dtype = Dtype::bf16;
  recipe.box = {columns, rows, 1};
  recipe.swizzle_bytes = 128;
  return recipe;
}
TensorMapForm form_of(int columns, int rows) { return TensorMapForm(recipe_of(columns, rows)); }

MappedTensor tensor_at(uintptr_t address) {
  MappedTensor tensor;
  tensor.data = reinterpret_cast<const void*>(address);
  tensor.extent = {64, 500, 8};
  tensor.stride = {1, 512, 64};
  return tensor;
}

TensorMap encode(const TensorMapForm& form, const MappedTensor& tensor,
                 const Driver& driver = plain()) {
  TensorMap map = {};
  REQUIRE(encode_tensor_map(driver, form, tensor, &map).ok());
  return map;
}

bool same(const TensorMap& one, const TensorMap& other) {
  return std::memcmp(&one, &other, sizeof one) == 0;
}

}  // namespace

TEST_CASE("the driver is asked once for a tensor that comes again") {
  const TensorMapForm form = form_of(64, 128);
  const int before = asked;
  const TensorMap first = encode(form, tensor_at(0x10000));
  CHECK(asked == before + 1);
  CHECK(same(encode(form, tensor_at(0x10000)), first));
  CHECK(asked == before + 1);
}

TEST_CASE("what differs in anything is another map") {
  const TensorMapForm form = form_of(64, 128);
  const MappedTensor tensor = tensor_at(0x20000);
  const TensorMap first = encode(form, tensor);
  const auto differs = [&](const TensorMapForm& other, const MappedTensor& changed) {
    const int before = asked;
    CHECK_FALSE(same(encode(other, changed), first));
    CHECK(asked == before + 1);
    CHECK(same(encode(form, tensor), first));
  };
  for (size_t k = 0; k < 3; ++k) {
    MappedTensor changed = tensor;
    changed.extent[k] += 1;
    differs(form, changed);
    if (k == 0) continue;
    changed = tensor;
    changed.stride[k] += 8;
    differs(form, changed);
  }
  differs(form_of(64, 64), tensor);
  TensorMapRecipe changing = recipe_of(64, 128);
  changing.swizzle_bytes = 64;
  differs(TensorMapForm(changing), tensor);
  changing = recipe_of(64, 128);
  changing.dtype = Dtype::f16;
  differs(TensorMapForm(changing), tensor);
  differs(form, tensor_at(0x20000 + (uint64_t{1} << 40)));
}

TEST_CASE("a form that lies where another lay is another form") {
  std::optional<TensorMapForm> form(form_of(64, 128));
  const TensorMap first = encode(*form, tensor_at(0x60000));
  form.emplace(recipe_of(64, 64));
  CHECK_FALSE(same(encode(*form, tensor_at(0x60000)), first));
}

TEST_CASE("a box that the call chooses is part of the map") {
  const TensorMapForm form = form_of(64, 0);
  MappedTensor tensor = tensor_at(0x30000);
  tensor.box = {0, 32, 0};
  const TensorMap first = encode(form, tensor);
  tensor.box[1] = 16;
  CHECK_FALSE(same(encode(form, tensor), first));
}

TEST_CASE("each driver makes maps of its own") {
  const TensorMapForm form = form_of(64, 128), other_form = form_of(64, 128);
  const Driver other = driver_of(write_other);
  const TensorMap first = encode(form, tensor_at(0x40000));
  CHECK_FALSE(same(encode(other_form, tensor_at(0x40000), other), first));
  CHECK(same(encode(form, tensor_at(0x40000)), first));
}

TEST_CASE("a map that the driver refuses is asked for again") {
  const TensorMapForm form = form_of(64, 128);
  TensorMap map = {};
  answer = CUDA_ERROR_INVALID_VALUE;
  CHECK_FALSE(encode_tensor_map(plain(), form, tensor_at(0x50000), &map).ok());
  answer = CUDA_SUCCESS;
  const int before = asked;
  encode(form, tensor_at(0x50000));
  CHECK(asked == before + 1);
}

TEST_CASE("many tensors by turns, in eight threads, each get the map of a first question") {
  const TensorMapForm forms[] = {form_of(64, 128), form_of(64, 64), form_of(32, 128)};
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int k = 0; k < 4000; ++k) {
      const TensorMapForm& form = forms[random() % 3];
      MappedTensor tensor = tensor_at(0x100000 + 0x10000 * (random() % 40));
      tensor.extent[1] = 500 + random() % 3;
      TensorMap map = {}, expected = {};
      if (!encode_tensor_map(plain(), form, tensor, &map).ok()) ++wrong;
      const cuuint64_t extents[] = {64, static_cast<cuuint64_t>(tensor.extent[1]), 8};
      const cuuint64_t strides[] = {1024, 128};
      const cuuint32_t box[] = {static_cast<cuuint32_t>(form.box[0]),
                                static_cast<cuuint32_t>(form.box[1]), 1};
      write_down(reinterpret_cast<CUtensorMap*>(&expected), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                 const_cast<void*>(tensor.data), extents, strides, box, nullptr,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
      if (!same(map, expected)) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
