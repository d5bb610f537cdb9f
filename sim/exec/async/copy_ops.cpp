// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// cp.async: copies of 4, 8 or 16 bytes by lane, in groups by lane.
#include "sim/exec/async/memory.h"
#include "sim/exec/async/operands.h"

namespace sim::base {
namespace {

uint64_t shared_address(const Warp& w, const Inst& i, unsigned lane) {
  if (i.b) return cells<uint64_t>(w, i.a)[lane] + static_cast<uint64_t>(i.imm);
  return cells<uint32_t>(w, i.a)[lane] + static_cast<uint32_t>(i.imm);
}

void count_shared(Warp& w, uint32_t lanes, uint32_t size) {
  TrafficCounts& t = w.worker->tally.shared_store;
  ++t.requests;
  t.bytes += static_cast<uint64_t>(lanes) * size;
  t.wavefronts += (static_cast<uint64_t>(lanes) * size + 127) / 128;
}

// list: global base, offset, and for c = 1 the source size, for c = 2 the predicate that ignores
// it.
template <uint32_t Size>
void copy(Warp& w, const Inst& i, uint32_t exec) {
  const uint16_t* list = w.function->list_data + i.aux;
  const uint64_t* base = cells<uint64_t>(w, list[0]);
  const uint64_t offset = cells<uint64_t>(w, list[1])[0];
  const uint32_t* sizes = i.c == 1 ? cells<uint32_t>(w, list[2]) : nullptr;
  const uint32_t ignore = i.c == 2 ? pred(w, list[2]) : 0;
  Async& async = *w.block->cluster->async;
  auto c = std::make_unique<Copy>();
  c->path = Path::global_to_shared;
  c->by_thread = true;
  c->warp = &w;
  c->inst = &i;
  c->lanes = exec;
  c->lane = static_cast<unsigned>(__builtin_ctz(exec));
  c->target = w.block;
  ++w.worker->tally.global_load.requests;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const Place p = find_place(w, i, l, shared_address(w, i, l), false, Size, Size, false);
    if (!p.block) return;
    const uint32_t n = ignore >> l & 1 ? 0 : sizes && sizes[l] < Size ? sizes[l] : Size;
    const uint64_t from = base[l] + offset;
    if (n && from % Size != 0) {
      report(w, i, Fault::misaligned, l, from, Size, Space::global, false);
      return;
    }
    if (n && !check_global(w, i, l, from, n, false)) return;
    if (n) c->pieces.push_back({from, p.offset, n, static_cast<uint8_t>(l)});
    if (n < Size) {
      c->pieces.push_back({0, p.offset + n, Size - n, static_cast<uint8_t>(l), true});
    }
    c->group[l] = async.group_of(w, l, false);
  }
  count_shared(w, static_cast<uint32_t>(__builtin_popcount(exec)), Size);
  async.issue(std::move(c));
}

void commit(Warp& w, const Inst&, uint32_t exec) {
  w.block->cluster->async->commit(w, exec, false);
}

void wait(Warp& w, const Inst& i, uint32_t exec) {
  uint32_t newest[32];
  for (uint32_t& n : newest) n = static_cast<uint32_t>(i.imm);
  const bool everything = w.function->infos[i.info].form.has(kWaitAll);
  w.block->cluster->async->wait_copies(w, exec, newest, everything);
}

}  // namespace

Handler resolve_copy(const Form& f) {
  if (f.op == Op::cp_commit) return commit;
  if (f.op == Op::cp_wait) return wait;
  if (f.op != Op::cp_async) return nullptr;
  return f.vector == 4 ? copy<4> : f.vector == 8 ? copy<8> : f.vector == 16 ? copy<16> : nullptr;
}

}  // namespace sim::base
