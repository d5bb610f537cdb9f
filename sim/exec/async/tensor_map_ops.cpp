// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// tensormap.replace edits a map in shared or global memory; tensormap.cp_fenceproxy publishes one.
#include <cstring>
#include <string>

#include "sim/exec/async/bulk.h"
#include "sim/exec/async/memory.h"
#include "sim/exec/tensor_map.h"

namespace sim::base {
namespace {

// One field takes the value; false if the ordinal is past the dimensions.
bool replace_field(TensorMapView* m, MapField field, uint32_t ordinal, uint64_t value) {
  const auto low = static_cast<uint32_t>(value);
  if (ordinal > 4) return false;
  switch (field) {
    case MapField::global_address:
      m->base = value;
      return true;
    case MapField::rank:  // written as rank - 1
      m->rank = low + 1;
      return low < 5;
    case MapField::box_dim:
      m->box[ordinal] = low;
      return true;
    case MapField::global_dim:
      m->dims[ordinal] = low;
      return true;
    case MapField::global_stride:  // ordinal 0 is the stride of dimension 1
      if (ordinal > 3) return false;
      m->strides[ordinal + 1] = value;
      return true;
    case MapField::element_stride:
      m->element_strides[ordinal] = low;
      return true;
    case MapField::element_type: {
      // The instruction has its own order of f32.ftz, f64 and bf16.
      m->dtype = low == 8 ? 10 : low == 9 || low == 10 ? low - 1 : low;
      return tensor_element_bytes(m->dtype) != 0;
    }
    case MapField::interleave:
      m->interleave = low;
      return true;
    case MapField::swizzle:
      m->swizzle = low;
      return true;
    case MapField::fill_mode:
      m->fill_nan = low != 0;
      return low < 2;
    default:
      return false;
  }
}

uint8_t* writable(Warp& w, const Inst& i, const Operands& o, unsigned lane) {
  const Space space = w.function->infos[i.info].form.space();
  if (space == Space::global) {
    const uint64_t at = o.address(0, 0, lane);
    if (!find_map(w, i, lane, at) || !check_global(w, i, lane, at, kTensorMapBytes, true)) {
      return nullptr;
    }
    return reinterpret_cast<uint8_t*>(at);
  }
  const Place p = o.shared(0, 0, lane, kTensorMapBytes, 64, false);
  return p.block ? p.block->shared + p.offset : nullptr;
}

// Programs also begin with zeros and replace every field.
bool is_blank(const uint8_t* at) {
  for (uint32_t k = 0; k < kTensorMapBytes; ++k) {
    if (at[k]) return false;
  }
  return true;
}

// list: address, ordinal, value.
void replace(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Form& f = w.function->infos[i.info].form;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    uint8_t* at = writable(w, i, o, l);
    if (!at) return;
    TensorMapView map;
    if (!is_blank(at) && !decode_tensor_map(at, &map)) {
      return report_text(w, i, Fault::tensor_map, l, 0, kTensorMapBytes,
                         "tensormap.replace of bytes that are not a tensor map");
    }
    const uint64_t value = f.last_type() == Type::b64 ? o.u64(3, l) : o.u32(3, l);
    if (!replace_field(&map, f.field, o.has(2) ? o.u32(2, l) : 0, value)) {
      return report_text(w, i, Fault::tensor_map, l, value, 0,
                         "tensormap.replace with a value or ordinal that the field does not have");
    }
    encode_tensor_map(map, at);
  }
}

// list: destination in global memory, source in shared memory, bytes. All lanes name the same.
void publish(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const auto l = static_cast<unsigned>(__builtin_ctz(exec));
  const uint64_t to = o.address(0, 0, l);
  const Place from = o.shared(2, 1, l, kTensorMapBytes, 64, false);
  if (!from.block) return;
  if (o.u32(4, l) != kTensorMapBytes || to % 64 != 0) {
    return report_text(w, i, Fault::tensor_map, l, to, o.u32(4, l),
                       "tensormap.cp_fenceproxy copies 128 bytes to a multiple of 64");
  }
  if (!check_global(w, i, l, to, kTensorMapBytes, true)) return;
  uint8_t data[kTensorMapBytes], defined[kTensorMapBytes];
  std::memcpy(data, from.block->shared + from.offset, kTensorMapBytes);
  read_defined(from.block->shared_defined, from.offset, kTensorMapBytes, defined);
  write_global(w, i, to, kTensorMapBytes, data, defined,
               [](uint8_t* at, const uint8_t* bytes, uint32_t n) { std::memcpy(at, bytes, n); });
}

}  // namespace

Handler resolve_tensor_map(const Form& f) {
  return f.op == Op::tensormap_replace ? replace : publish;
}

}  // namespace sim::base
