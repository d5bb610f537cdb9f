// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles copies through a tensor map: from a box of coordinates to pieces of global and
// shared memory.
//
//   element (b_0 .. b_n-1) of the box, b_0 fastest, in steps of the element strides:
//   global: base + sum of (c_j + b_j) * stride_j, if every c_j + b_j lies in its dimension
//   shared: the place of the element's number, its 16-byte units exchanged by the swizzle
#include <string>

#include "sim/exec/async/bulk.h"
#include "sim/exec/async/memory.h"
#include "sim/exec/async/reduce.h"
#include "sim/exec/tensor_map.h"

namespace sim::base {
namespace {

// Entries of the operand list: shared address, map, mbarrier, mask of blocks, coordinates.
constexpr unsigned kShared = 0, kMap = 2, kBarrier = 4, kMask = 6, kCoordinates = 7;
constexpr uint32_t kTileAlign = 128;

void refuse(Warp& w, const Inst& i, unsigned lane, uint64_t value, const std::string& what) {
  report_text(w, i, Fault::tensor_map, lane, value, 0, what.c_str());
}

// Bits 4.. of a shared address exchanged by bits 7..
uint32_t swizzled(uint32_t address, uint32_t mode) {
  const uint32_t mask = mode == 1 ? 1 : mode == 2 ? 3 : mode == 3 ? 7 : 0;
  return address ^ ((address >> 7 & mask) << 4);
}

Type element_type(unsigned dtype) {
  constexpr Type kTypes[] = {Type::u8,  Type::u16, Type::u32, Type::s32, Type::u64,
                             Type::s64, Type::f16, Type::f32, Type::f64, Type::bf16,
                             Type::f32, Type::f32, Type::f32};
  return dtype < sizeof(kTypes) / sizeof(kTypes[0]) ? kTypes[dtype] : Type::none;
}

// Loads the map that the bytes at `address` hold.
bool load_map(Warp& w, const Inst& i, unsigned lane, uint64_t address, TensorMapView* map) {
  const void* at = find_map(w, i, lane, address);
  if (!at) return false;
  if (!decode_tensor_map(at, map)) {
    refuse(
        w, i, lane, address,
        "these 128 bytes are not a tensor map that cuTensorMapEncodeTiled of this library wrote");
    return false;
  }
  const std::string fault = tensor_map_fault(*map);
  if (fault.empty()) return true;
  refuse(w, i, lane, address, "the tensor map has " + fault);
  return false;
}

struct Box {
  const TensorMapView& map;
  int64_t at[5];      // the corner
  uint32_t count[5];  // elements of the box, strides taken into account
  uint64_t elements = 1;
};

Box make_box(const TensorMapView& map, const Operands& o, unsigned lane) {
  Box box{map, {}, {}};
  for (unsigned j = 0; j < map.rank; ++j) {
    box.at[j] = static_cast<int32_t>(o.u32(kCoordinates + j, lane));
    const uint32_t step = map.element_strides[j];
    box.count[j] = (map.box[j] + step - 1) / step;
    box.elements *= box.count[j];
  }
  return box;
}

// Calls f(global address or 0 where outside, number of the first element, elements) for runs along
// dimension 0.
template <class F>
void for_runs(const Box& box, F f) {
  const TensorMapView& m = box.map;
  const uint32_t row = box.count[0];
  uint32_t index[5] = {};
  for (uint64_t first = 0; first < box.elements; first += row) {
    bool inside = true;
    uint64_t address = m.base;
    for (unsigned j = 1; j < m.rank; ++j) {
      const int64_t x = box.at[j] + static_cast<int64_t>(index[j]) * m.element_strides[j];
      inside &= x >= 0 && static_cast<uint64_t>(x) < m.dims[j];
      address += static_cast<uint64_t>(x) * m.strides[j];
    }
    const uint32_t step = m.element_strides[0];
    uint32_t k = 0;
    while (k < row) {
      const int64_t x = box.at[0] + static_cast<int64_t>(k) * step;
      const bool here = inside && x >= 0 && static_cast<uint64_t>(x) < m.dims[0];
      uint32_t n = 1;
      if (step == 1) {  // up to the edge of the tensor, or to the end of the row
        const int64_t edge = !inside ? x : x < 0 ? 0 : static_cast<int64_t>(m.dims[0]);
        n = row - k;
        if (edge > x && edge - x < static_cast<int64_t>(n)) n = static_cast<uint32_t>(edge - x);
      }
      f(here ? address + static_cast<uint64_t>(x) * m.element_bytes : 0, here, first + k, n);
      k += n;
    }
    for (unsigned j = 1; j < m.rank && ++index[j] == box.count[j]; ++j) index[j] = 0;
  }
}

// Cuts runs at the 16-byte units that the swizzle moves.
void add_run(Copy* c, const TensorMapView& m, uint32_t tile, uint64_t global, bool inside,
             uint64_t first, uint32_t elements, bool load) {
  uint64_t offset = first * m.element_bytes;
  uint32_t left = elements * m.element_bytes;
  while (left) {
    const auto linear = static_cast<uint32_t>(tile + offset);
    const uint32_t room = 16 - linear % 16, n = left < room ? left : room;
    const uint32_t shared = swizzled(linear, m.swizzle);
    const auto lane = static_cast<uint8_t>(c->lane);
    if (load) {
      c->pieces.push_back({global, shared, n, lane, !inside});
    } else if (inside) {
      c->pieces.push_back({shared, global, n, lane});
    }
    offset += n;
    left -= n;
    if (inside) global += n;
  }
}

void tensor_lane(Warp& w, const Inst& i, unsigned lane) {
  const Operands o(w, i);
  const Form& f = w.function->infos[i.info].form;
  const bool load = f.detail & kCompleteTx, prefetch = f.op == Op::tensor_prefetch;
  TensorMapView map;
  if (!load_map(w, i, lane, o.address(kMap, prefetch ? 0 : 1, lane), &map)) return;
  if (map.rank != f.k) {
    return refuse(w, i, lane, map.rank,
                  "the instruction has " + std::to_string(f.k) + " dimensions, the map " +
                      std::to_string(map.rank));
  }
  const Box box = make_box(map, o, lane);
  if (prefetch) {
    bool good = true;
    for_runs(box, [&](uint64_t address, bool inside, uint64_t, uint32_t n) {
      if (good && inside) good = prefetch_global(w, i, lane, address, n * map.element_bytes);
    });
    return;
  }
  const auto bytes = static_cast<uint32_t>(box.elements * map.element_bytes);
  const uint32_t width = map.swizzle ? 16u << map.swizzle : 0;
  if (width && box.count[0] * map.element_bytes < width) {
    return refuse(w, i, lane, box.count[0],
                  "the box's rows are narrower than the swizzle of " + std::to_string(width) +
                      " bytes: the layout is not documented");
  }
  const Place tile =
      o.shared(kShared, 0, lane, bytes, kTileAlign, load && f.space() == Space::cluster);
  if (!tile.block) return;
  Copy c = new_copy(w, i, lane);
  c.path = load ? Path::global_to_shared : Path::shared_to_global;
  (load ? c.target : c.source) = tile.block;
  if (f.op == Op::tensor_reduce) {
    c.reduce = f.atomic;
    c.type = element_type(map.dtype);
    const bool bitwise =
        f.atomic == Atomic::and_ || f.atomic == Atomic::or_ || f.atomic == Atomic::xor_;
    if (bitwise && c.type == Type::u32) c.type = Type::b32;
    if (bitwise && c.type == Type::u64) c.type = Type::b64;
    c.flush = map.flush;
    if (!can_reduce(c.type, c.reduce)) {
      return refuse(w, i, lane, map.dtype, "the map's element type has no such reduction");
    }
  }
  fill_pattern(map, c.fill);
  c.pieces.reserve(bytes / 16 + 1);
  bool good = true;
  for_runs(box, [&](uint64_t address, bool inside, uint64_t first, uint32_t n) {
    if (!good) return;
    if (inside) good = check_global(w, i, lane, address, n * map.element_bytes, !load) != nullptr;
    if (good) add_run(&c, map, tile.offset, address, inside, first, n, load);
  });
  if (!good) return;
  Traffic& t = load ? w.worker->tally.global_load : w.worker->tally.global_store;
  ++t.requests;
  const Place barrier =
      load ? o.shared(kBarrier, 2, lane, 8, 8, f.space() == Space::cluster) : Place{};
  if (load && !barrier.block) return;
  send(std::move(c), barrier, bytes, f.detail & kMulticast ? o.u32(kMask, lane) & 0xFFFF : 0);
}

void tensor(Warp& w, const Inst& i, uint32_t exec) {
  for (uint32_t rest = exec; rest && !w.stop; rest &= rest - 1) {
    tensor_lane(w, i, static_cast<unsigned>(__builtin_ctz(rest)));
  }
}

}  // namespace

// In global memory, or among the kernel's parameters.
const void* find_map(Warp& w, const Inst& i, unsigned lane, uint64_t address) {
  const LaunchView& launch = view(*w.worker);
  const uint64_t param = address - windows().param - kKernelParams;
  if (address % 64 != 0) {
    refuse(w, i, lane, address, "the tensor map is not aligned to 64 bytes");
    return nullptr;
  }
  if (address >= windows().param && address < windows().end) {
    if (param + kTensorMapBytes <= launch.param_bytes) return launch.params + param;
  } else if (find_region(w, i, address, address + kTensorMapBytes)) {
    return reinterpret_cast<const void*>(address);
  }
  report(w, i, Fault::out_of_bounds, lane, address, kTensorMapBytes, Space::generic, false);
  return nullptr;
}

Handler resolve_tensor_copy(const Form& f) {
  if (f.op == Op::tensormap_replace || f.op == Op::tensormap_copy) return resolve_tensor_map(f);
  return f.op >= Op::tensor_copy && f.op <= Op::tensor_prefetch ? tensor : nullptr;
}

}  // namespace sim::base
