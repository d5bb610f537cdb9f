// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles mov, packing, widening, special registers, kernel parameters.
#include "sim/exec/handlers.h"
#include "sim/ptx/special.h"

namespace sim::SIM_ISA {
namespace {

template <class T>
void mov(Warp& w, const Inst& i, uint32_t exec) {
  const T* a = cells<T>(w, i.a);
  each<T>(w, i.d, exec, [=](int l) { return a[l]; });
}
void mov_pred(Warp& w, const Inst& i, uint32_t exec) {
  w.preds[i.d] = (w.preds[i.d] & ~exec) | (pred(w, i.a) & exec);
}
template <class S>
void widen(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint64_t, uint32_t>(w, i, exec, [](uint32_t a) {
    return static_cast<uint64_t>(static_cast<int64_t>(static_cast<S>(a)));
  });
}
void narrow(Warp& w, const Inst& i, uint32_t exec) {
  unary<uint32_t, uint64_t>(w, i, exec, [](uint64_t a) { return static_cast<uint32_t>(a); });
}

// D holds N elements of E.
template <class D, class E, int N>
void pack(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.code->list_data + i.aux;
  const CellOf<E>* part[N];
  for (int k = 0; k < N; ++k) part[k] = cells<E>(w, list[k]);
  each<D>(w, i.d, exec, [&](int l) {
    D v = 0;
    for (int k = 0; k < N; ++k)
      v |= static_cast<D>(static_cast<E>(part[k][l])) << (8 * sizeof(E) * k);
    return v;
  });
}
template <class D, class E, int N>
void unpack(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.code->list_data + i.aux;
  CellOf<D> copy[32];  // a result may be the source itself
  memcpy(copy, cells<D>(w, i.a), sizeof(copy));
  for (int k = 0; k < N; ++k) {
    each<E>(w, list[k], exec,
            [&](int l) { return static_cast<E>(copy[l] >> (8 * sizeof(E) * k)); });
  }
}

template <class T>
void ld_param(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.code->list_data + i.aux;
  const LaunchView& launch = view(*w.worker);
  const int n = static_cast<int>(i.extra);
  for (int k = 0; k < n; ++k) {
    T v;
    memcpy(&v, launch.params + i.imm + k * sizeof(T), sizeof(T));
    using Wide = CellOf<T>;
    // Signed narrow values fill their register (Inst::c: 16 bits of it).
    Wide c = static_cast<Wide>(v);
    if (sizeof(T) < 4 && i.c) c = static_cast<Wide>(static_cast<uint16_t>(v));
    each<Wide>(w, list[k], exec, [=](int) { return c; });
  }
}

void special(Warp& w, const Inst& i, uint32_t exec) {
  const auto which = static_cast<Special>(i.imm);
  const LaunchView& launch = view(*w.worker);
  const uint32_t first = w.index * 32;
  auto uniform = [&](uint32_t v) { each<uint32_t>(w, i.d, exec, [=](int) { return v; }); };
  auto by_lane = [&](auto f) { each<uint32_t>(w, i.d, exec, f); };
  const int k = static_cast<int>(which);
  if (which <= Special::tid_z) {
    const uint32_t* tid = launch.tid[k] + first;
    return by_lane([=](int l) { return tid[l]; });
  }
  if (which <= Special::ntid_z) return uniform(launch.block[k - static_cast<int>(Special::ntid_x)]);
  if (which <= Special::ctaid_z) {
    return uniform(w.block->id[k - static_cast<int>(Special::ctaid_x)]);
  }
  if (which <= Special::nctaid_z)
    return uniform(launch.grid[k - static_cast<int>(Special::nctaid_x)]);
  if (which >= Special::clusterid_x && which <= Special::cluster_nctaid_z) {
    const int what = (k - static_cast<int>(Special::clusterid_x)) / 3;
    const int axis = (k - static_cast<int>(Special::clusterid_x)) % 3;
    const uint32_t id = w.block->id[axis], size = launch.cluster[axis];
    return uniform(what == 0   ? id / size
                   : what == 1 ? launch.grid[axis] / size
                   : what == 2 ? id % size
                               : size);
  }
  switch (which) {
    case Special::laneid:
      return by_lane([](int l) { return static_cast<uint32_t>(l); });
    case Special::lanemask_eq:
      return by_lane([](int l) { return 1u << l; });
    case Special::lanemask_lt:
      return by_lane([](int l) { return (1u << l) - 1; });
    case Special::lanemask_le:
      return by_lane([](int l) { return (2u << l) - 1; });
    case Special::lanemask_ge:
      return by_lane([](int l) { return ~((1u << l) - 1); });
    case Special::lanemask_gt:
      return by_lane([](int l) { return ~((2u << l) - 1); });
    case Special::warpid:
      return uniform(w.index);
    case Special::nwarpid:
      return uniform(w.block->warps);
    case Special::smid:
      return uniform(static_cast<uint32_t>(w.block->linear % launch.multiprocessors));
    case Special::nsmid:
      return uniform(launch.multiprocessors);
    case Special::clock:
      return uniform(static_cast<uint32_t>(w.block->executed));
    case Special::clock_hi:
      return uniform(static_cast<uint32_t>(w.block->executed >> 32));
    case Special::globaltimer_lo:
      return uniform(static_cast<uint32_t>(global_timer()));
    case Special::globaltimer_hi:
      return uniform(static_cast<uint32_t>(global_timer() >> 32));
    case Special::dynamic_smem_size:
      return uniform(launch.dynamic_shared);
    case Special::total_smem_size:
      return uniform(launch.shared_bytes - launch.shared_begin);
    case Special::aggr_smem_size:
      return uniform(launch.shared_bytes - launch.shared_begin + kReservedEnd);
    case Special::reserved_smem_offset_begin:
      return uniform(kReservedRooms[0]);
    case Special::reserved_smem_offset_0:
      return uniform(kReservedRooms[0]);
    case Special::reserved_smem_offset_1:
      return uniform(kReservedRooms[1]);
    case Special::reserved_smem_offset_end:
      return uniform(kReservedEnd);
    case Special::reserved_smem_offset_cap:
      return uniform(kReservedEnd - kReservedRooms[0]);
    case Special::cluster_ctarank:
      return uniform(w.block->rank);
    case Special::cluster_nctarank:
      return uniform(launch.cluster[0] * launch.cluster[1] * launch.cluster[2]);
    case Special::is_explicit_cluster:
      return uniform(launch.explicit_cluster);
    case Special::envreg1:
      return uniform(static_cast<uint32_t>(launch.grid_workspace >> 32));
    case Special::envreg2:
      return uniform(static_cast<uint32_t>(launch.grid_workspace));
    case Special::clock64:
    case Special::globaltimer:
    case Special::current_graph_exec:
    case Special::gridid: {
      const uint64_t v = which == Special::clock64       ? w.block->executed
                         : which == Special::globaltimer ? global_timer()
                                                         : 0;
      return each<uint64_t>(w, i.d, exec, [=](int) { return v; });
    }
    default:
      return uniform(0);
  }
}

Handler resolve_packing(const Form& f) {
  const unsigned total = type_bytes(f.type());
  const bool to = f.op == Op::pack;
  switch (total * 10 + f.vector) {
    case 22:
      return to ? pack<uint16_t, uint8_t, 2> : unpack<uint16_t, uint8_t, 2>;
    case 42:
      return to ? pack<uint32_t, uint16_t, 2> : unpack<uint32_t, uint16_t, 2>;
    case 44:
      return to ? pack<uint32_t, uint8_t, 4> : unpack<uint32_t, uint8_t, 4>;
    case 82:
      return to ? pack<uint64_t, uint32_t, 2> : unpack<uint64_t, uint32_t, 2>;
    case 84:
      return to ? pack<uint64_t, uint16_t, 4> : unpack<uint64_t, uint16_t, 4>;
    default:
      return nullptr;
  }
}

Handler resolve_param(Type t) {
  if (t == Type::s8) return ld_param<int8_t>;
  if (t == Type::s16) return ld_param<int16_t>;
  return find_handler(type_bytes(t), {{1, ld_param<uint8_t>},
                                      {2, ld_param<uint16_t>},
                                      {4, ld_param<uint32_t>},
                                      {8, ld_param<uint64_t>}});
}

}  // namespace

Handler resolve_move(const Form& f) {
  const Type t = f.type();
  const unsigned bytes = type_bytes(t);
  switch (f.op) {
    case Op::mov:
      if (t == Type::pred) return mov_pred;
      if (bytes == 16 || bytes == 0) return nullptr;
      return bytes == 8 ? mov<uint64_t> : mov<uint32_t>;
    case Op::pack:
    case Op::unpack:
      return resolve_packing(f);
    case Op::widen:
      return t == Type::s32 ? widen<int32_t> : widen<uint32_t>;
    case Op::narrow:
      return narrow;
    case Op::special:
      return special;
    case Op::ld_param:
      return resolve_param(t);
    default:
      return nullptr;
  }
}

}  // namespace sim::SIM_ISA
