// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover cuTensorMapEncodeTiled: every rule refuses what breaks it and lets its edge
// pass.
#include <cstring>
#include <functional>

#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

const int kArchSet = setenv("LATHE_SIM_ARCH", "sm_90a", 1);

struct Case {
  alignas(64) CUtensorMap map = {};
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  cuuint32_t rank = 5;
  uint64_t base = 0x7f0012345670;
  cuuint64_t dims[5] = {1000, 300, 7, 5, 3};
  cuuint64_t strides[4] = {2048, 1 << 20, 1 << 23, 1 << 26};
  cuuint32_t box[5] = {64, 8, 7, 2, 1};
  cuuint32_t steps[5] = {1, 1, 2, 3, 1};
  int interleave = 0, swizzle = 3, promotion = 2, fill = 0;

  CUresult encode() {
    return cuda().tensor_map_encode_tiled(
        &map, type, rank, reinterpret_cast<void*>(base), dims, strides, box, steps,
        static_cast<CUtensorMapInterleave>(interleave), static_cast<CUtensorMapSwizzle>(swizzle),
        static_cast<CUtensorMapL2promotion>(promotion), static_cast<CUtensorMapFloatOOBfill>(fill));
  }
};

}  // namespace

TEST_CASE("rules of tensor maps") {
  const Primary primary;
  constexpr CUresult kGood = CUDA_SUCCESS, kWrong = CUDA_ERROR_INVALID_VALUE,
                     kOther = CUDA_ERROR_NOT_SUPPORTED;
  const struct {
    const char* what;
    CUresult result;
    std::function<void(Case&)> change;
  } rules[] = {
      {"as it is", kGood, [](Case&) {}},
      {"type", kWrong, [](Case& c) { c.type = static_cast<CUtensorMapDataType>(16); }},
      {"packed", kOther, [](Case& c) { c.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B; }},
      {"swizzle", kWrong, [](Case& c) { c.swizzle = 7; }},
      {"swizzle atoms", kOther, [](Case& c) { c.swizzle = 4; }},
      {"interleave", kWrong, [](Case& c) { c.interleave = 3; }},
      {"interleaved", kOther, [](Case& c) { c.interleave = 1; }},
      {"promotion", kWrong, [](Case& c) { c.promotion = 4; }},
      {"fill", kWrong, [](Case& c) { c.fill = 2; }},
      {"NaN", kGood, [](Case& c) { c.fill = 1; }},
      {"NaN integer", kWrong, [](Case& c) { c.fill = 1, c.type = CU_TENSOR_MAP_DATA_TYPE_UINT16; }},
      {"rank 0", kWrong, [](Case& c) { c.rank = 0; }},
      {"rank 6", kWrong, [](Case& c) { c.rank = 6; }},
      {"rank 1", kGood, [](Case& c) { c.rank = 1; }},
      {"base", kWrong, [](Case& c) { c.base += 8; }},
      {"size 0", kWrong, [](Case& c) { c.dims[1] = 0; }},
      {"size 2^32", kGood, [](Case& c) { c.dims[1] = 1ull << 32; }},
      {"size more", kWrong, [](Case& c) { c.dims[1] = (1ull << 32) + 1; }},
      {"box 0", kWrong, [](Case& c) { c.box[1] = 0; }},
      {"box 256", kGood, [](Case& c) { c.box[1] = 256; }},
      {"box 257", kWrong, [](Case& c) { c.box[1] = 257; }},
      {"step 0", kWrong, [](Case& c) { c.steps[1] = 0; }},
      {"step 8", kGood, [](Case& c) { c.steps[1] = 8; }},
      {"step 9", kWrong, [](Case& c) { c.steps[1] = 9; }},
      {"innermost step is ignored", kGood, [](Case& c) { c.steps[0] = 9; }},
      {"stride", kWrong, [](Case& c) { c.strides[2] += 8; }},
      {"stride 2^40", kWrong, [](Case& c) { c.strides[2] = 1ull << 40; }},
      {"stride below", kGood, [](Case& c) { c.strides[2] = (1ull << 40) - 16; }},
      {"row", kWrong, [](Case& c) { c.box[0] = 60; }},
      {"wide", kWrong, [](Case& c) { c.box[0] = 72; }},
      {"wide 64", kWrong, [](Case& c) { c.swizzle = 2; }},
      {"just 64", kGood, [](Case& c) { c.swizzle = 2, c.box[0] = 32; }},
      {"wide 32", kWrong, [](Case& c) { c.swizzle = 1, c.box[0] = 24; }},
      {"just 32", kGood, [](Case& c) { c.swizzle = 1, c.box[0] = 16; }},
      {"no swizzle", kGood, [](Case& c) { c.swizzle = 0, c.box[0] = 256; }},
  };
  for (const auto& rule : rules) {
    CAPTURE(rule.what);
    Case c;
    rule.change(c);
    CHECK(c.encode() == rule.result);
    const Case fresh;  // a refused map is left as it was
    if (rule.result != kGood) CHECK(std::memcmp(&c.map, &fresh.map, sizeof c.map) == 0);
  }
}

TEST_CASE("places and arrays") {
  Case c;
  const Primary primary;
  char room[256];
  auto* odd =
      reinterpret_cast<CUtensorMap*>((reinterpret_cast<uintptr_t>(room) + 63) / 64 * 64 + 32);
  CHECK(cuda().tensor_map_replace_address(odd, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().tensor_map_encode_tiled(odd, c.type, 1, reinterpret_cast<void*>(c.base), c.dims,
                                       nullptr, c.box, c.steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                       CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().tensor_map_encode_tiled(&c.map, c.type, 2, reinterpret_cast<void*>(c.base), c.dims,
                                       nullptr, c.box, c.steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                       CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a new address makes the map that encoding it makes") {
  const Primary primary;
  Case c, other;
  REQUIRE(c.encode() == CUDA_SUCCESS);
  other.base = 0x1000;
  REQUIRE(other.encode() == CUDA_SUCCESS);
  CHECK(cuda().tensor_map_replace_address(&c.map, reinterpret_cast<void*>(0x1008)) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().tensor_map_replace_address(&c.map, reinterpret_cast<void*>(0x1000)) == CUDA_SUCCESS);
  CHECK(std::memcmp(&c.map, &other.map, sizeof c.map) == 0);
  reinterpret_cast<char*>(&c.map)[20] ^= 1;
  CHECK(cuda().tensor_map_replace_address(&c.map, reinterpret_cast<void*>(0x1000)) ==
        CUDA_ERROR_INVALID_VALUE);
}
