// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles registers and tiles of a wgmma: fences, bounds, undefined bytes, marks.
#include "sim/check/race.h"
#include "sim/exec/async_marks.h"
#include "sim/exec/descriptor.h"
#include "sim/exec/wgmma_state.h"
#include "sim/ptx/tensor.h"

namespace sim {
namespace {

constexpr uint32_t kPiece = 16;

void say(Warp& w, const WgmmaOp& op, Fault f, uint64_t address, const std::string& text) {
  report_text(w, *op.inst, f, 0, address, kPiece, text.c_str());
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

TensorConfig config_of(const WgmmaOp& op) { return TensorConfig::unpack(op.inst->imm); }

const uint16_t* results(const Warp& w, const WgmmaOp& op) {
  return w.function->list_data + op.inst->aux;
}

// f(offset) for every piece of a tile. Lines along MN have 16 k.
template <class F>
void each_piece(const Descriptor& d, bool transposed, uint32_t first, uint32_t count, F f) {
  if (!transposed) {
    for (uint32_t mn = first; mn < first + count; ++mn) {
      f(piece_of_row(d, mn, 0));
      f(piece_of_row(d, mn, 16));
    }
    return;
  }
  for (uint32_t k = 0; k < 16; ++k) {
    for (uint32_t mn = first; mn < first + count; mn += 8) f(piece_of_line(d, k, 2 * mn));
  }
}

template <class F>
void each_piece(const Warp& w, const WgmmaOp& op, F f) {
  const TensorConfig c = config_of(op);
  Descriptor d;
  if (!c.a_in_registers) {
    read_descriptor(op.a, &d);
    each_piece(d, c.transpose_a, w.index % 4 * 16, 16, f);
  }
  read_descriptor(op.b, &d);
  each_piece(d, c.transpose_b, 0, c.n, f);
}

bool uniform(const Warp& w, uint16_t slot, uint64_t* value) {
  const auto* lanes =
      reinterpret_cast<const uint64_t*>(w.regs + slot * static_cast<size_t>(kSlotBytes));
  uint64_t differs = 0;
  for (int l = 1; l < 32; ++l) differs |= lanes[l] ^ lanes[0];
  *value = lanes[0];
  return differs == 0;
}

bool tile_fits(Warp& w, const WgmmaOp& op) {
  const Block& block = *w.block;
  uint64_t outside = 0;
  bool found = false;
  each_piece(w, op, [&](uint32_t offset) {
    if (offset >= block.shared_begin && offset + kPiece <= block.shared_bytes) return;
    if (!found) outside = offset;
    found = true;
  });
  if (found) {
    say(w, op, Fault::descriptor, outside,
        "16 bytes at shared address " + hex(outside) +
            ", a piece of the tile that a matrix descriptor names, are out of bounds; the block "
            "has [" +
            hex(block.shared_begin) + ", " + hex(block.shared_bytes) + ")");
  }
  return !found;
}

// Reports what a descriptor may not say; returns whether it has a meaning that is known. The
// pattern of a swizzle follows addresses, as tensor copies write it: base offset 0 reads what they
// wrote even where a tile begins off the repeat. No other base offset is known to work.
bool descriptor_is_known(Warp& w, const WgmmaOp& op, uint64_t bits) {
  auto tell = [&](Fault f, const std::string& text) {
    say(w, op, f, bits, "matrix descriptor " + hex(bits) + text);
  };
  Descriptor d;
  if (!read_descriptor(bits, &d)) {
    tell(Fault::descriptor, " has bits without a meaning");
    return false;
  }
  const uint32_t row = d.first_row();
  const std::string says = " has base offset " + std::to_string(d.base_offset);
  const bool means_nothing = !d.width && view(*w.worker).check_nothing;
  if (d.base_offset != 0 && !means_nothing) {
    tell(Fault::descriptor, !d.width               ? says + " without a swizzle"
                            : row == d.base_offset ? says + ", which is not supported"
                                                   : says + ", but its tile at " + hex(d.start) +
                                                         " is in row " + std::to_string(row));
    return false;
  }
  if (row != 0) {
    tell(Fault::tile_off_repeat,
         says + ", but its tile at " + hex(d.start) + " begins in row " + std::to_string(row) +
             ": a swizzle of " + std::to_string(d.width) + " bytes repeats every " +
             std::to_string(8 * d.width) +
             " bytes, and other rows are read than were written, unless the pattern follows "
             "addresses as that of a tensor copy does");
  }
  return true;
}

// Returns a key of the shape and the place in it; products that agree in these need no fence
// between them.
uint64_t chain_key(const TensorConfig& c, unsigned place) {
  return static_cast<uint64_t>(c.n) << 32 | static_cast<uint64_t>(c.sum) << 16 | (place + 1);
}

}  // namespace

bool read_operands(Warp& w, WgmmaOp* op) {
  const Inst& i = *op->inst;
  const TensorConfig c = config_of(*op);
  const uint16_t scale =
      results(w, *op)[c.d_registers() + (c.a_in_registers ? c.a_registers() : 0)];
  const uint32_t p = w.preds[scale & ~kPredNegate] ^ (scale & kPredNegate ? ~0u : 0u);
  op->accumulate = p & 1;
  bool same = p == 0 || p == ~0u;
  if (!c.a_in_registers) same &= uniform(w, i.a, &op->a);
  same &= uniform(w, i.b, &op->b);
  if (!same) {
    say(w, *op, Fault::warpgroup, 0, "the lanes of a warp have different descriptors or scale-d");
    return !w.stop;
  }
  // A warp that A's registers serve has no descriptor of A: zero has nothing wrong.
  return descriptor_is_known(w, *op, op->a) && descriptor_is_known(w, *op, op->b);
}

void check_registers(Warp& w, const WgmmaOp& op) {
  WgmmaState& state = *w.wgmma;
  const TensorConfig c = config_of(op);
  const uint16_t* list = results(w, op);
  const uint32_t now = state.fences + 1;
  bool missing = state.fences == 0, clash = false;
  for (unsigned k = 0; k < c.d_registers(); ++k) {
    WgmmaSlot& s = state.slots[list[k]];
    // A value that the product does not read may be written at any time before.
    missing |= s.read_at == now || (op.accumulate && s.written_at == now);
    missing |= s.chained_at == now && s.chain != chain_key(c, k);
    clash |= s.factors != 0;
    s.chain = chain_key(c, k);
    s.chained_at = now;
  }
  list += c.d_registers();
  for (unsigned k = 0; c.a_in_registers && k < c.a_registers(); ++k) {
    const WgmmaSlot& s = state.slots[list[k]];
    missing |= s.written_at == now;
    clash |= s.results != 0;
  }
  if (missing) {
    say(w, op, Fault::missing_fence, 0,
        state.fences == 0 ? "the first wgmma has no wgmma.fence before it"
                          : "accumulators or factors were used as registers, or in another shape, "
                            "since the last wgmma.fence");
  }
  if (clash) {
    say(w, op, Fault::register_in_flight, 0,
        "factors in registers are the accumulators of a wgmma in flight, or the reverse");
  }
}

bool claim_operands(Warp& w, const WgmmaOp& op) {
  if (!tile_fits(w, op)) return false;
  Block& block = *w.block;
  const TensorConfig c = config_of(op);
  const bool check = view(*w.worker).check_defined, track = view(*w.worker).check_async;
  uint64_t undefined = ~0ull, in_flight = ~0ull;
  each_piece(w, op, [&](uint32_t offset) {
    const uint64_t defined = block.shared_defined[offset / 64] >> offset % 64;
    if (check && (~defined & 0xFFFF) && undefined == ~0ull) undefined = offset;
    if (track && in_flight == ~0ull && (marks_of(block, offset, kPiece) & kMarkInFlight)) {
      in_flight = offset;
    }
    if (track) mark_borrowed_piece(block, offset, 1);
    if (w.race) race_async_operand(w, *op.inst, offset);
  });
  if (undefined != ~0ull) {
    report(w, *op.inst, Fault::uninitialized, 0, undefined, kPiece, Space::shared, false);
  }
  if (in_flight != ~0ull)
    check_marks(w, *op.inst, 0, block, static_cast<uint32_t>(in_flight), kPiece, false);
  const uint16_t* list = results(w, op);
  for (unsigned k = 0; k < c.d_registers(); ++k) ++w.wgmma->slots[list[k]].results;
  list += c.d_registers();
  for (unsigned k = 0; c.a_in_registers && k < c.a_registers(); ++k) {
    ++w.wgmma->slots[list[k]].factors;
  }
  const unsigned depth = c.words * 32u / element_bits(c.a);
  w.worker->tally.tensor_ops += 2ull * 16 * c.n * depth;
  return true;
}

bool wgmma_reads(const Block& block, uint32_t offset, uint32_t bytes) {
  bool reads = false;
  for (uint32_t k = 0; k < block.warps && block.warp[k].wgmma; ++k) {
    for (const WgmmaOp& op : block.warp[k].wgmma->pending) {
      if (op.over) continue;
      each_piece(block.warp[k], op,
                 [&](uint32_t at) { reads |= at < offset + bytes && at + kPiece > offset; });
      if (reads) return true;
    }
  }
  return false;
}

void release_operands(Warp& w, const WgmmaOp& op) {
  Block& block = *w.block;
  const TensorConfig c = config_of(op);
  if (view(*w.worker).check_async) {
    each_piece(w, op, [&](uint32_t offset) { mark_borrowed_piece(block, offset, -1); });
  }
  const uint16_t* list = results(w, op);
  for (unsigned k = 0; k < c.d_registers(); ++k) --w.wgmma->slots[list[k]].results;
  list += c.d_registers();
  for (unsigned k = 0; c.a_in_registers && k < c.a_registers(); ++k) {
    --w.wgmma->slots[list[k]].factors;
  }
}

}  // namespace sim
