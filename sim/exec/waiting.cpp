// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file writes the sentences of findings about warps that wait for one another, and about
// accesses that meet a copy.
#include <map>

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

uint64_t all_warps(const Block& block) {
  return block.warps == 64 ? ~0ull : (1ull << block.warps) - 1;
}

// Says where a warp is that does not come: "at barrier 1, PTX line 20".
std::string whereabouts(const Warp& w) {
  const Strand& s = w.strands[0];
  std::string text = "PTX line " + std::to_string(line_of(w, s.pc));
  for (int k = 0; k < 16; ++k) {
    if (w.block->barriers[k].waiting >> w.index & 1) {
      return "at barrier " + std::to_string(k) + ", " + text;
    }
  }
  return "at " + text;
}

// Says of warps that have not come which have ended, and where the others wait.
std::string absent_text(const Block& block, uint64_t absent) {
  std::map<std::string, uint64_t> places;
  for (uint32_t k = 0; k < block.warps; ++k) {
    const Warp& w = block.warp[k];
    if (absent >> k & 1 && w.state != WarpState::done) places[whereabouts(w)] |= 1ull << k;
  }
  std::string text;
  for (const auto& [place, mask] : places) {
    text += ", " + warps_text(mask) + (mask & (mask - 1) ? " wait " : " waits ") + place;
  }
  const uint64_t ended = absent & ~living(block);
  if (!ended) return text;
  return text + ", " + warps_text(ended) + (ended & (ended - 1) ? " have" : " has") + " ended";
}

std::string barrier_text(const Warp& w) {
  for (int k = 0; k < 16; ++k) {
    const Barrier& b = w.block->barriers[k];
    if (!(b.waiting >> w.index & 1)) continue;
    const uint32_t expected = b.expected ? b.expected : w.block->warps - w.block->warps_done;
    return "barrier " + std::to_string(k) + ": " + std::to_string(b.arrived) + " of " +
           std::to_string(expected) + " warps arrived (" + ranges(b.seen) + ")" +
           absent_text(*w.block, all_warps(*w.block) & ~b.seen);
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

void report_left_barrier(const Block& block, const Barrier& b) {
  const uint64_t absent = all_warps(block) & ~b.seen;
  if (!absent || !b.waiting) return;
  Warp& w = block.warp[__builtin_ctzll(b.waiting)];
  for (int k = 0; k < w.strand_count; ++k) {
    const Strand& s = w.strands[k];
    if (s.parked != Parked::barrier) continue;
    const std::string text =
        "barrier " + std::to_string(&b - block.barriers) + " is the whole block's, and " +
        ranges(b.seen) + " of its " + std::to_string(block.warps) + " warps came to it" +
        absent_text(block, absent) + " without it: a GPU goes on, but whoever left has no order " +
        "with what comes after";
    report_text(w, w.function->code[s.pc], Fault::left_barrier,
                static_cast<unsigned>(__builtin_ctz(s.mask)), 0, 0, text.c_str());
    return;
  }
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
  // A copy of this cluster is named; if there is none, a matrix product.
  Async* const async = block.cluster->async;
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
  if (fault == Fault::mbarrier_overwritten && store) {
    async->end_overwritten(*block.cluster->blocks[block.rank], offset, bytes);
  }
  return false;
}

}  // namespace sim
