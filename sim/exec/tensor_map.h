// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file encodes and decodes the 128 bytes of a tensor map. The bytes are opaque to programs, so
// the record is our own: everything cuTensorMapEncodeTiled was told, with a checksum. The numbers
// of types, swizzles and fills are the driver API's.
#pragma once

#include <cstdint>
#include <string>

namespace sim {

constexpr uint32_t kTensorMapBytes = 128;

// This struct holds the fields of the record.
struct TensorMapView {
  unsigned dtype = 0;  // CUtensorMapDataType
  unsigned rank = 0;
  unsigned swizzle = 0;  // 0 none, 1 32 bytes, 2 64, 3 128
  unsigned interleave = 0;
  bool fill_nan = false;  // what is outside reads as NaN, else as zero
  bool flush = false;     // subnormals of f32 reductions become zero
  uint32_t element_bytes = 0;
  uint64_t base = 0;
  uint64_t dims[5] = {1, 1, 1, 1, 1};     // elements; dimension 0 is innermost
  uint64_t strides[5] = {0, 0, 0, 0, 0};  // bytes; [0] is element_bytes
  uint32_t box[5] = {1, 1, 1, 1, 1};
  uint32_t element_strides[5] = {1, 1, 1, 1, 1};
};

// Returns the bytes of an element; 0 for a type that is not known here.
uint32_t tensor_element_bytes(unsigned dtype);
// Returns why hardware's driver would refuse this map; an empty text if it would not. element_bytes
// and strides[0] are ignored.
std::string tensor_map_fault(const TensorMapView& map);
// `out` and `map` have kTensorMapBytes bytes.
void encode_tensor_map(const TensorMapView& map, void* out);
// Returns false if these bytes are no such record. The fields of a record may still be a fault: see
// above.
bool decode_tensor_map(const void* map, TensorMapView* out);
// Gives the bytes that stand for what is outside; a pattern of eight.
void fill_pattern(const TensorMapView& map, uint8_t (&out)[8]);

}  // namespace sim
