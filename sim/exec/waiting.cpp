// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file writes the sentences of findings about warps that wait for one another, and about
// accesses that meet a copy.
#include "sim/exec/async_marks.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

int line_of(const Warp& w, uint32_t pc) {
  return w.function->infos[w.function->code[pc].info].ptx_line;
}

// "3", "0-15, 20".
std::string ranges(uint64_t mask) {
  std::string text;
  for (int first = 0; first < 64; ++first) {
    if (!(mask >> first & 1)) continue;
    int last = first;
    while (last < 63 && mask >> (last + 1) & 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return text;
}

std::string warps_text(uint64_t mask) {
  return (mask & (mask - 1) ? "warps " : "warp ") + ranges(mask);
}

uint64_t living(const Block& block) {
  uint64_t mask = 0;
  for (uint32_t k = 0; k < block.warps; ++k) {
    if (block.warp[k].state != WarpState::done) mask |= 1ull << k;
  }
  return mask;
}

std::string barrier_text(const Warp& w) {
  for (int k = 0; k < 16; ++k) {
    const Barrier& b = w.block->barriers[k];
    if (!(b.waiting >> w.index & 1)) continue;
    const uint32_t expected = b.expected ? b.expected : w.block->warps - w.block->warps_done;
    const uint64_t missing = living(*w.block) & ~b.seen;
    std::string text = "barrier " + std::to_string(k) + ": " + std::to_string(b.arrived) + " of " +
                       std::to_string(expected) + " warps arrived (" + ranges(b.seen) + ")";
    if (missing) return text + ", " + warps_text(missing) + " did not";
    return text + ", the others have ended";
  }
  return "a barrier";
}

std::string waits_for(const Warp& w, const Strand& s) {
  if (s.parked == Parked::blocked) return blocked_text(w, w.function->code[s.pc], s);
  return s.parked == Parked::barrier ? barrier_text(w) : "lanes of its own warp";
}

}  // namespace

std::string lanes_text(uint32_t mask) {
  return (mask & (mask - 1) ? "lanes " : "lane ") + ranges(mask);
}

void report_overlap(Warp& w, const Inst& inst, uint32_t lanes, uint32_t mask, uint32_t others,
                    uint32_t other_mask) {
  auto named = [](uint32_t who, uint32_t what) {
    return lanes_text(who) + (who & (who - 1) ? " name " : " names ") + hex(what);
  };
  const std::string text =
      "the masks of one warp-wide instruction must be equal or have no lane in "
      "common: " +
      named(lanes, mask) + ", " + named(others, other_mask);
  report_text(w, inst, Fault::member_mask, static_cast<unsigned>(__builtin_ctz(others)), other_mask,
              4, text.c_str());
}

std::string divergent_text(const Warp& w) {
  uint32_t here = 0, named = 0;
  std::string elsewhere;
  for (int k = 0; k < w.strand_count; ++k) {
    const Strand& s = w.strands[k];
    if (s.pc == w.pc && s.parked != Parked::no) {
      here |= s.mask;
      named |= s.parked == Parked::barrier ? w.live : s.sync_mask & w.live;
    } else {
      elsewhere += (elsewhere.empty() ? "; " : ", ") + lanes_text(s.mask) +
                   (s.mask & (s.mask - 1) ? " stand" : " stands") + " at PTX line " +
                   std::to_string(line_of(w, s.pc));
    }
  }
  const uint32_t missing = named & ~here;
  return lanes_text(here) + " of warp " + std::to_string(w.index) +
         (here & (here - 1) ? " wait" : " waits") + " here for " +
         (missing ? lanes_text(missing) + ", which will not come"
                  : "the same lanes, another mask") +
         elsewhere;
}

std::string cluster_barrier_text(const Cluster& cluster) {
  const uint32_t parity = cluster.phase & 1 ? ~0u : 0;
  for (uint32_t rank = 0; rank < cluster.size; ++rank) {
    uint64_t missing = 0;
    const Block& block = *cluster.blocks[rank];
    for (uint32_t k = 0; k < block.warps; ++k) {
      const Warp& w = block.warp[k];
      const uint32_t arrived = w.cluster_pending & ~(w.cluster_parity ^ parity);
      if (w.live & ~arrived) missing |= 1ull << k;
    }
    if (missing) {
      return "barrier.cluster: not all threads of " + warps_text(missing) + " of block " +
             std::to_string(rank) + " of the cluster have arrived";
    }
  }
  return "barrier.cluster";
}

void report_deadlock(Warp& w) {
  const Strand& s = w.strands[0];
  w.pc = s.pc;
  std::string text = "deadlock: warp " + std::to_string(w.index);
  if (w.block->cluster->size > 1) {
    text += " of block " + std::to_string(w.block->rank) + " of its cluster";
  }
  text += " waits for " + waits_for(w, s);
  report_text(w, w.function->code[s.pc], Fault::deadlock,
              static_cast<unsigned>(__builtin_ctz(s.mask)), 0, 0, text.c_str());
}

bool check_marks(Warp& w, const Inst& inst, unsigned lane, const Block& block, uint32_t offset,
                 uint32_t bytes, bool store) {
  const uint16_t marks = marks_of(block, offset, bytes);
  const bool borrowed = store && (marks & kMarkBorrowed);
  if (!borrowed && !(marks & (kMarkInFlight | kMarkMbarrier))) return true;
  std::string text =
      std::string(store ? "store to" : "load from") + " shared address " + hex(offset);
  // Who: a copy of this cluster; if there is none, a matrix product.
  const Async* async = block.cluster->async;
  const bool flight = marks & kMarkInFlight;
  unsigned issuer = 0;
  const Copy* copy = nullptr;
  if (async && (flight || borrowed)) {
    copy = async->find_copy(block, offset, bytes, flight, &issuer);
  }
  const std::string who =
      copy ? "the copy that thread " + std::to_string(copy->warp->index * 32 + issuer) +
                 " of block " + std::to_string(copy->warp->block->linear) + " issued at PTX line " +
                 std::to_string(copy->warp->function->infos[copy->inst->info].ptx_line)
           : "a matrix product";
  Fault fault = Fault::mbarrier_overwritten;
  if (flight) {
    fault = Fault::in_flight;
    text += ": " + who + " is still writing these bytes; nobody has waited for it";
  } else if (borrowed) {
    fault = Fault::source_overwritten;
    text += ": " + who + " may still read these bytes; nobody has waited for it";
  } else {
    text += ": a live mbarrier is there; mbarrier.inval would give the bytes back";
  }
  report_text(w, inst, fault, lane, offset, bytes, text.c_str());
  return false;
}

}  // namespace sim
