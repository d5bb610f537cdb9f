// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Packed queries: which tile a block of threads has, and which split of its keys. Every block finds
// out by itself, from the lengths on the device; i runs over sequences:
//
//   tiles_i  = ceil(rows_i G / kTileM),  blocks_i: blocks of kTileN keys that its rows may see
//   part     = max(ceil(H sum_i tiles_i blocks_i / share), kLeastPart)   blocks of keys
//   splits_i = clamp(ceil(blocks_i / part), 1, kMostSplits)
//
// About `share` blocks of threads fill the device, so each has as many keys as the others, however
// the lengths are spread: one sequence of very many keys has many splits beside short ones, which
// have one. The host knows capacities alone: there are at most H tiles + share blocks, and at most
// 2 share partial results, as only tiles of more than one part have any.
#pragma once
#include "attention/decode/calls.cuh"
#include "attention/decode/pages.cuh"

namespace lathe {

// The split of a tile that a block has. `slot`: where its partial result lies if queries are
// packed.
struct DecodeSplit {
  int number, count;
  int slot;
};

constexpr int kLeastPart = 2;     // below that a partial result costs more than it gains
constexpr int kMostSplits = 256;  // as attention_combine takes
constexpr int kNoSequence = -1;   // a block of the grid that has nothing to do

template <class Config>
struct RaggedBlocks {
  using Offset = typename Config::CuSeqlens;
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;

  // The tiles of a sequence, or of the rows behind the last one, which are padding and have no
  // keys.
  struct Counts {
    int start, rows, tiles;
    long long blocks;
  };
  // Holds what a block of threads finds, in its shared memory.
  struct Found {
    int sequence, tile, head;
    DecodeSplit split;
  };
  struct Shared {
    long long work[kWarps], items[kWarps], slots[kWarps];
    Found found;
  };

  const AttentionDecodeParams& decode;
  Shared& shared;

  __device__ __forceinline__ int group() const { return decode.forward.heads / heads(); }
  __device__ __forceinline__ int heads() const { return decode.forward.kv_heads; }

  __device__ __forceinline__ Counts counts(int i) const {
    const AttentionForwardParams& p = decode.forward;
    const bool padding = i >= p.sequences;
    Counts out;
    out.start = offset_at<Offset>(p.cu_seqlens_q, i, p.seq_q);
    const int end = padding ? p.seq_q : offset_at<Offset>(p.cu_seqlens_q, i + 1, p.seq_q);
    out.rows = maximum(end - out.start, 0);
    const long long tile_rows = static_cast<long long>(out.rows) * group();
    out.tiles = static_cast<int>((tile_rows + kTileM - 1) / kTileM);
    out.blocks = 0;
    if (padding || out.rows == 0) return out;
    long long keys = PageTable(decode.pages, i).keys(decode.appended > 0 ? out.rows : 0);
    if (p.window_left >= 0 && p.window_right >= 0) {  // which hides the rest from a tile
      const long long window = static_cast<long long>(p.window_left) + p.window_right + kTileM;
      keys = keys < window ? keys : window;
    }
    out.blocks = (keys + kTileN - 1) / kTileN;
    return out;
  }

  // The splits of a tile if a part has `part` blocks of keys; 0: num_splits is given.
  __device__ __forceinline__ int splits(const Counts& of, long long part) const {
    const long long most = part > 0 ? kMostSplits : decode.splits;
    const long long wanted = part > 0 ? (of.blocks + part - 1) / part : of.blocks;
    const long long count = wanted < most ? wanted : most;
    return count > 1 ? static_cast<int>(count) : 1;
  }

  static __device__ __forceinline__ long long warp_sum(long long value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      value += __shfl_xor_sync(0xffffffffu, value, lanes);
    }
    return value;
  }
  static __device__ __forceinline__ long long warp_scan(long long value) {  // inclusive
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const long long other = __shfl_up_sync(0xffffffffu, value, lanes);
      if (lane >= lanes) value += other;
    }
    return value;
  }

  // Returns the blocks of keys of a part. A thread counts the sequences [first, last).
  __device__ __forceinline__ long long part(int first, int last) const {
    if (decode.share == 0) return 0;
    long long work = 0;
    for (int i = first; i < last; ++i) {
      const Counts of = counts(i);
      work += of.tiles * of.blocks;
    }
    work = warp_sum(work);
    if (threadIdx.x % 32 == 0) shared.work[threadIdx.x / 32] = work;
    __syncthreads();  // the sums of all warps are there
    long long all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) all += shared.work[w];
    const long long part = (all * heads() + decode.share - 1) / decode.share;
    return part > kLeastPart ? part : kLeastPart;
  }

  // Splits are slower than tiles, so that blocks that run side by side share keys. The last tiles
  // come first: they see most under a causal mask.
  __device__ __forceinline__ Found at(int i, const Counts& of, int count, long long within,
                                      long long slots) const {
    const long long other = within / of.tiles;
    const int tile = static_cast<int>(within % of.tiles);
    const int number = static_cast<int>(other % count), head = static_cast<int>(other / count);
    const long long base = slots + (static_cast<long long>(head) * of.tiles + tile) * count;
    // Offsets that nobody has checked may ask for more tiles than there are: then a tile is whole.
    const bool fits = count > 1 && base + count <= decode.slots;
    return {i, tile, head, {fits ? number : 0, fits ? count : 1, static_cast<int>(base) + number}};
  }

  __device__ __forceinline__ Found find() const {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    const int sequences = decode.forward.sequences + 1;
    const int each = ceil_div(sequences, Config::kThreads);
    const int first = minimum(thread * each, sequences), last = minimum(first + each, sequences);
    const long long part = this->part(first, last);
    long long items = 0, slots = 0;
    for (int i = first; i < last; ++i) {
      const Counts of = counts(i);
      const int count = splits(of, part);
      const long long tiles = static_cast<long long>(of.tiles) * heads() * count;
      items += tiles, slots += count > 1 ? tiles : 0;
    }
    const long long items_end = warp_scan(items), slots_end = warp_scan(slots);
    if (thread % 32 == 31) shared.items[warp] = items_end, shared.slots[warp] = slots_end;
    if (thread == 0) shared.found = {kNoSequence, 0, 0, {0, 1, 0}};
    __syncthreads();  // the sums of all warps are there
    long long items_at = items_end - items, slots_at = slots_end - slots;
    long long all_items = 0, all_slots = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) items_at += shared.items[w], slots_at += shared.slots[w];
      all_items += shared.items[w], all_slots += shared.slots[w];
    }
    if (blockIdx.x == 0 && thread == 0 && decode.slots > 0) {
      const long long most = decode.slots;
      *static_cast<int*>(decode.used_slots) = static_cast<int>(all_slots < most ? all_slots : most);
    }
    const long long item = all_items - 1 - static_cast<long long>(blockIdx.x);
    if (items_at <= item && item < items_at + items) {  // in one thread
      for (int i = first; i < last; ++i) {
        const Counts of = counts(i);
        const int count = splits(of, part);
        const long long tiles = static_cast<long long>(of.tiles) * heads() * count;
        if (item < items_at + tiles) {
          shared.found = at(i, of, count, item - items_at, slots_at);
          break;
        }
        items_at += tiles, slots_at += count > 1 ? tiles : 0;
      }
    }
    __syncthreads();  // one thread has found it
    const Found found = shared.found;
    __syncthreads();  // all have read it: the memory is the kernel's
    return found;
  }
};

// The tile of the block but for its keys, and its split. tile.sequence is kNoSequence for a block
// that has none, and the number of sequences for rows of padding.
template <class Config>
__device__ __forceinline__ QueryTile ragged_tile(const AttentionDecodeParams& decode, char* memory,
                                                 DecodeSplit& split) {
  using Blocks = RaggedBlocks<Config>;
  const Blocks blocks{decode, *reinterpret_cast<typename Blocks::Shared*>(memory)};
  const typename Blocks::Found found = blocks.find();
  QueryTile tile;
  split = found.split;
  tile.sequence = found.sequence;
  tile.group = blocks.group(), tile.head = tile.kv_head = found.head;
  tile.start_k = tile.keys = 0, tile.list = 0;
  tile.first = found.tile * Config::kTileM;
  tile.start_q = tile.rows = tile.written = 0;
  if (found.sequence == kNoSequence) return tile;
  const typename Blocks::Counts of = blocks.counts(found.sequence);
  tile.start_q = of.start, tile.rows = tile.written = of.rows;
  // attention_combine takes what the first split of a tile says; the others' entries are empty.
  if (threadIdx.x == 0 && split.count > 1) {
    AttentionCombineEntry entry = {tile.sequence,  tile.first,
                                   tile.head,      split.number == 0 ? split.count : 0,
                                   Config::kTileM, Config::kTileM};
    static_cast<AttentionCombineEntry*>(decode.combine_list)[split.slot] = entry;
  }
  return tile;
}

}  // namespace lathe
