// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles clusters as instructions see them: barrier.cluster, mapa, getctarank; and
// setmaxnreg.
#include <string>

#include "sim/check/race.h"
#include "sim/exec/async/operands.h"
#include "sim/exec/grid_state.h"
#include "sim/exec/handlers.h"

namespace sim {

// Every living thread of the cluster has arrived in the current phase: it is over.
void recheck_cluster_barrier(Cluster& cluster) {
  const uint32_t parity = cluster.phase & 1 ? ~0u : 0;
  bool any = false;
  for (uint32_t rank = 0; rank < cluster.size; ++rank) {
    const Block& block = *cluster.blocks[rank];
    for (uint32_t k = 0; k < block.warps; ++k) {
      const Warp& w = block.warp[k];
      const uint32_t arrived = w.cluster_pending & ~(w.cluster_parity ^ parity);
      if (w.live & ~arrived) return;
      any |= arrived != 0;
    }
  }
  if (!any) return;
  ++cluster.phase;
  race_mbarrier_phase(cluster.race);
  ++cluster.events;
}

}  // namespace sim

namespace sim::base {
namespace {

void arrive(Warp& w, const Inst& i, uint32_t exec) {
  if (const uint32_t again = exec & w.cluster_pending) {
    report_text(w, i, Fault::cluster_barrier, static_cast<unsigned>(__builtin_ctz(again)), 0, 0,
                "a thread arrives at barrier.cluster twice without waiting");
    return;
  }
  Cluster& cluster = *w.block->cluster;
  w.cluster_pending |= exec;
  race_mbarrier_release(cluster.race, w, i);
  w.cluster_parity = cluster.phase & 1 ? w.cluster_parity | exec : w.cluster_parity & ~exec;
  recheck_cluster_barrier(cluster);
}

void wait(Warp& w, const Inst& i, uint32_t exec) {
  if (const uint32_t none = exec & ~w.cluster_pending) {
    report_text(w, i, Fault::cluster_barrier, static_cast<unsigned>(__builtin_ctz(none)), 0, 0,
                "a thread waits at barrier.cluster before it has arrived");
    return;
  }
  Cluster& cluster = *w.block->cluster;
  recheck_cluster_barrier(cluster);
  const uint32_t parity = cluster.phase & 1 ? ~0u : 0;
  if (exec & ~(w.cluster_parity ^ parity)) {
    w.blocked = true;
    return;
  }
  w.cluster_pending &= ~exec;
  race_mbarrier_acquire(cluster.race, w, i);
}

// The same place in another block: mapa.u64 keeps the generic window.
void mapa(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const bool wide = w.function->infos[i.info].form.type() == Type::u64;
  const uint64_t mask = ~(0xFFull << kRankShift);
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const uint64_t rank = o.u32(1, l);
    if (rank >= w.block->cluster->size) {
      report_text(w, i, Fault::undefined_value, l, rank, 4,
                  ("mapa to block " + std::to_string(rank) + " of a cluster of " +
                   std::to_string(w.block->cluster->size) + " blocks")
                      .c_str());
      return;
    }
    const uint64_t a = i.imm ? o.u64(0, l) : o.u32(0, l);
    if (wide) {
      const bool generic = w.function->infos[i.info].form.space() == Space::generic && i.imm;
      const uint64_t base = generic ? windows().shared : 0;
      cells<uint64_t>(w, i.d)[l] = base + (((a - base) & mask) | rank << kRankShift);
    } else {
      cells<uint32_t>(w, i.d)[l] = static_cast<uint32_t>((a & mask) | rank << kRankShift);
    }
  }
}

void getctarank(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const bool generic = w.function->infos[i.info].form.space() == Space::generic && i.imm;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const auto l = static_cast<unsigned>(__builtin_ctz(rest));
    const uint64_t a = (i.imm ? o.u64(0, l) : o.u32(0, l)) - (generic ? windows().shared : 0);
    cells<uint32_t>(w, i.d)[l] = static_cast<uint32_t>(a >> kRankShift);
  }
}

// Changes a warp's share of the block's registers. An .inc may wait for registers that a .dec gives
// back.
void setmaxnreg(Warp& w, const Inst& i, uint32_t exec) {
  const Operands o(w, i);
  const Launch& launch = *w.worker->launch;
  const auto l = static_cast<unsigned>(__builtin_ctz(exec));
  const uint32_t wanted = o.u32(0, l);
  const bool more = w.function->infos[i.info].form.detail & kIncrease;
  const Kernel& kernel = *launch.grid->kernel;
  const uint32_t held = w.register_limit ? w.register_limit : kernel.register_bound;
  auto refuse = [&](const std::string& what) {
    report_text(w, i, Fault::registers, l, wanted, 4, ("setmaxnreg: " + what).c_str());
  };
  if (exec != w.live) return refuse("not all threads of the warp take part");
  if (wanted < 24 || wanted > 256 || wanted % 8) {
    return refuse(std::to_string(wanted) + " registers; allowed: 24 to 256 in steps of 8");
  }
  if (!kernel.register_bound) {
    return report_text(w, i, Fault::unbounded_registers, l, wanted, 4,
                       "setmaxnreg has no effect: the kernel has no register bound (.maxnreg, or "
                       ".maxntid with .minnctapersm)");
  }
  if (more ? wanted < held : wanted > held) {
    return refuse(std::to_string(wanted) + " registers where the warp holds " +
                  std::to_string(held));
  }
  const uint32_t difference = (more ? wanted - held : held - wanted) * 32;
  if (more && difference > w.block->free_registers) {
    w.blocked = true;
    return;
  }
  w.block->free_registers += more ? 0u - difference : difference;
  w.register_limit = wanted;
}

}  // namespace

Handler resolve_cluster(const Form& f) {
  static constexpr HandlerRow<Op> kRows[] = {{Op::cluster_arrive, arrive},
                                             {Op::cluster_wait, wait},
                                             {Op::mapa, mapa},
                                             {Op::getctarank, getctarank},
                                             {Op::setmaxnreg, setmaxnreg}};
  return find_handler(f.op, kRows);
}

}  // namespace sim::base
