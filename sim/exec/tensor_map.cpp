// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/tensor_map.h"

#include <cstring>

namespace sim {
namespace {

constexpr uint32_t kMagic = 0x50414D54;  // "TMAP"

// Sizes reach 2^32 and 2^40, so they are kept as size - 1 and in units of 16 bytes.
// CUTLASS and those that follow it clear bit 21 of the second word, for the sake of older drivers:
// that word holds nothing.
struct Record {
  uint32_t magic, checksum;
  uint8_t others_write_here[8];
  uint64_t base;
  uint8_t dtype, rank, swizzle, interleave, fill_nan, reserved[3];
  uint32_t dims[5];
  uint8_t reserved2[4];
  uint64_t strides[4];
  uint16_t box[5];
  uint8_t element_strides[5];
  uint8_t reserved3[25];
};
static_assert(sizeof(Record) == kTensorMapBytes);

uint32_t checksum(Record r) {
  r.checksum = 0;
  uint8_t bytes[sizeof r];
  std::memcpy(bytes, &r, sizeof r);
  uint32_t h = 2166136261u;
  for (const uint8_t b : bytes) h = (h ^ b) * 16777619u;
  return h;
}

}  // namespace

uint32_t tensor_element_bytes(unsigned dtype) {
  constexpr uint8_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return dtype < sizeof kBytes ? kBytes[dtype] : 0;
}

std::string tensor_map_fault(const TensorMapView& m) {
  const uint32_t size = tensor_element_bytes(m.dtype);
  const bool floating = m.dtype >= 6;
  auto number = [](uint64_t v) { return std::to_string(v); };
  if (!size) return "element type " + number(m.dtype);
  if (m.rank < 1 || m.rank > 5) return "rank " + number(m.rank) + "; allowed: 1 to 5";
  if (m.base == 0 || m.base % 16) return "a base address that is not a multiple of 16";
  if (m.interleave) return "interleave " + number(m.interleave) + "; allowed: none";
  if (m.swizzle > 3) return "swizzle " + number(m.swizzle) + "; allowed: none, 32, 64, 128 bytes";
  if (m.fill_nan && !floating) return "a NaN fill of an integer type";
  for (unsigned j = 0; j < m.rank; ++j) {
    const std::string where = " in dimension " + number(j);
    if (m.dims[j] < 1 || m.dims[j] > 1ull << 32) return "size " + number(m.dims[j]) + where;
    if (m.box[j] < 1 || m.box[j] > 256) return "box " + number(m.box[j]) + where;
    if (m.element_strides[j] < 1 || m.element_strides[j] > 8) {
      return "element stride " + number(m.element_strides[j]) + where;
    }
    if (j && (m.strides[j] % 16 || m.strides[j] >= 1ull << 40)) {
      return "stride " + number(m.strides[j]) + where + "; a multiple of 16 below 2^40 is allowed";
    }
  }
  const uint32_t row = m.box[0] * size;
  if (row % 16) return "a box row of " + number(row) + " bytes; a multiple of 16 is allowed";
  if (m.swizzle && row > 16u << m.swizzle) {
    return "a box row of " + number(row) + " bytes, wider than the swizzle";
  }
  return "";
}

void encode_tensor_map(const TensorMapView& m, void* out) {
  Record r;
  std::memset(&r, 0, sizeof r);
  r.magic = kMagic;
  r.base = m.base;
  r.dtype = static_cast<uint8_t>(m.dtype);
  r.rank = static_cast<uint8_t>(m.rank);
  r.swizzle = static_cast<uint8_t>(m.swizzle);
  r.interleave = static_cast<uint8_t>(m.interleave);
  r.fill_nan = m.fill_nan;
  for (unsigned j = 0; j < 5; ++j) {
    r.dims[j] = static_cast<uint32_t>(m.dims[j] - 1);
    if (j) r.strides[j - 1] = m.strides[j];
    r.box[j] = static_cast<uint16_t>(m.box[j]);
    r.element_strides[j] = static_cast<uint8_t>(m.element_strides[j]);
  }
  r.checksum = checksum(r);
  std::memcpy(out, &r, sizeof r);
}

bool decode_tensor_map(const void* map, TensorMapView* out) {
  Record r;
  std::memcpy(&r, map, sizeof r);
  std::memset(r.others_write_here, 0, sizeof r.others_write_here);
  if (r.magic != kMagic || r.checksum != checksum(r)) return false;
  TensorMapView m;
  m.base = r.base;
  m.dtype = r.dtype;
  m.rank = r.rank;
  m.swizzle = r.swizzle;
  m.interleave = r.interleave;
  m.fill_nan = r.fill_nan != 0;
  m.element_bytes = tensor_element_bytes(m.dtype);
  m.flush = m.dtype == 10 || m.dtype == 12;
  m.strides[0] = m.element_bytes;
  for (unsigned j = 0; j < 5; ++j) {
    m.dims[j] = uint64_t{r.dims[j]} + 1;
    if (j) m.strides[j] = r.strides[j - 1];
    m.box[j] = r.box[j];
    m.element_strides[j] = j ? r.element_strides[j] : 1;  // the innermost one is ignored
  }
  *out = m;
  return true;
}

void fill_pattern(const TensorMapView& map, uint8_t (&out)[8]) {
  for (uint32_t k = 0; k < 8; ++k) {
    const bool top = map.element_bytes && k % map.element_bytes == map.element_bytes - 1;
    out[k] = !map.fill_nan ? 0 : top ? 0x7F : 0xFF;
  }
}

}  // namespace sim
