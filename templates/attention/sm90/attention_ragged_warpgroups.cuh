// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_ragged_warpgroups: attention_decode.cuh's results of packed queries, by warpgroups with
// roles (sm_90a).
//
// The consumers are those of attention_forward_warpgroups, the tiles too: as many new tokens of a
// sequence as fill 128 rows with all query heads of a key head. So a sequence with thousands of new
// tokens is multiplied as by the forward, and one that decodes has a tile of few rows, which waits
// for memory as any kernel would, with two blocks of keys on the way. What differs is who copies:
// a warp, each lane a run of rows of one page, whose number it has read a block of keys ahead. A
// tile's keys may be cut into splits, whose partial results attention_combine joins; which tiles
// and splits there are attention_ragged_order has decided, from lengths on the device.
#pragma once
#include "attention/decode/rotary.cuh"
#include "attention/sm90/attention_forward_warpgroups.cuh"
#include "attention/sm90/ragged_tiles.cuh"

namespace lathe {

// The producer: a warp.
template <class Config>
struct RaggedProducer {
  using Smem = AttentionWarpgroupsSmem<Config>;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;

  const AttentionRaggedWarpgroupsParams& p;
  const AttentionRing<Config>& ring;
  const MessagesOf<Config> messages;
  const int lane;
  PipelineState<1> q_state;
  PipelineState<Config::kStages> k_state, v_state;
  typename MessagesOf<Config>::State message_state;

  // The rows of a page that a lane copies, of which those from `end` on are nobody's keys.
  struct Run {
    int page, row, end;
  };
  __device__ __forceinline__ bool has_run() const { return lane * p.box_rows < kTileN; }
  // Returns what the page table has for the lane's run of a block of keys.
  __device__ __forceinline__ int entry(const QueryTile& tile, const PageTable& table,
                                       int block) const {
    const int key = block * kTileN + lane * p.box_rows;
    return has_run() && key < tile.keys ? table.entry(key) : -1;
  }
  // A page that is not there is outside of the map, which reads as zeros.
  __device__ __forceinline__ Run run_of(const QueryTile& tile, const PageTable& table, int block,
                                        int entry) const {
    const int key = block * kTileN + lane * p.box_rows;
    if (entry < 0) return {-1, 0, 0};
    const KeyAddress at = table.address(key, entry);
    return {at.page, at.row, minimum(tile.keys - key + at.row, p.decode.pages.page)};
  }

  __device__ __forceinline__ void expect(unsigned full, unsigned bytes) const {
    if (lane == 0) mbarrier_arrive_expect(full, bytes);
    __syncwarp();  // the bytes are expected before any of them lands
  }
  __device__ __forceinline__ void copy_q(const QueryTile& tile) {
    const BoxCoordinates<Config> at(tile, tile.first / tile.group, tile.start_q, tile.rows);
    if (lane == 0) {
      mbarrier_wait(ring.q_empty(), q_state.phase ^ 1);
      mbarrier_arrive_expect(ring.q_full(), Smem::kPanels * used_rows<Config>(tile.group) * 128);
#pragma unroll
      for (int panel = 0; panel < Smem::kPanels; ++panel) {
        copy_box(ring.q() + panel * kTileM * 128, p.q, ring.q_full(), panel * 64, 0, at.row,
                 tile.head, at.sequence);
      }
    }
    q_state.next();
  }
  template <int kPanels>
  __device__ __forceinline__ void copy_run(unsigned to, const TensorMap& map, unsigned full,
                                           const QueryTile& tile, const Run& run) const {
    if (!has_run()) return;
    const unsigned rows = lane * p.box_rows * 128;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(to + panel * kTileN * 128 + rows, map, full, panel * 64,
               kRaggedRows - run.end + run.row, tile.head, run.end, run.page);
    }
  }
  __device__ __forceinline__ void copy_k(const QueryTile& tile, const Run& run) {
    mbarrier_wait(ring.k_empty(k_state.stage), k_state.phase ^ 1);
    const unsigned full = ring.k_full(k_state.stage);
    expect(full, Smem::kK);
    copy_run<Smem::kPanels>(ring.k(k_state.stage), p.k, full, tile, run);
    k_state.next();
  }
  __device__ __forceinline__ void copy_v(const QueryTile& tile, const Run& run) {
    mbarrier_wait(ring.v_empty(v_state.stage), v_state.phase ^ 1);
    const unsigned full = ring.v_full(v_state.stage);
    expect(full, Smem::kV);
    copy_run<Smem::kValuePanels>(ring.v(v_state.stage), p.v, full, tile, run);
    v_state.next();
  }

  // Copies the first keys of a tile, and q. What follows is under way while the next tile is looked
  // for.
  __device__ __forceinline__ Run begin_tile(const QueryTile& tile, const PageTable& table,
                                            const DecodePart& part) {
    const Run run = run_of(tile, table, part.last - 1, entry(tile, table, part.last - 1));
    copy_k(tile, run);
    copy_q(tile);
    return run;
  }
  __device__ __forceinline__ void end_tile(const QueryTile& tile, const PageTable& table,
                                           const DecodePart& part, Run last) {
    int coming = part.last - 2 >= part.first ? entry(tile, table, part.last - 2) : -1;
#pragma unroll 1
    for (int block = part.last - 2; block >= part.first; --block) {
      const Run run = run_of(tile, table, block, coming);
      if (block > part.first) coming = entry(tile, table, block - 1);
      copy_k(tile, run);
      copy_v(tile, last);
      last = run;
    }
    copy_v(tile, last);
  }
  __device__ __forceinline__ void send(bool there, const RaggedTile& of) {
    if (lane == 0) {
      messages.send(there, of.tile, message_state, of.split.number, of.split.count, of.split.slot);
    }
    message_state.next();
  }

  __device__ __forceinline__ void run() {
    const RaggedQueue<Config> queue(p);
    RaggedTile at = {}, next;
    int turn = 0;
    bool there = queue.find(turn, at);
#pragma unroll 1
    while (there) {
      send(true, at);
      const PageTable table(p.decode.pages, at.tile.sequence);
      const DecodePart part(Visits<Config>(p.decode.forward, at.tile), at.split);
      const bool any = part.first < part.last;
      Run last = {-1, 0, 0};
      if (any) last = begin_tile(at.tile, table, part);
      there = queue.find(++turn, next);
      if (any) end_tile(at.tile, table, part, last);
      at = next;
    }
    send(false, at);
  }
};

template <class Config>
struct RaggedConsumer {
  using Consumers = ConsumerConfig<Config>;
  using Element = typename Config::Element;
  using O = typename AttentionConsumer<Config>::O;
  const AttentionRaggedWarpgroupsParams& p;
  const MessagesOf<Config> messages;
  char* const q;
  AttentionConsumer<Config> consumer;
  typename MessagesOf<Config>::State message_state;

  // Turns the warpgroup's rows of q where they have landed: a warp has a row at a time, so that its
  // lanes fall into different banks.
  __device__ __forceinline__ void rotate_queries(const QueryTile& tile) const {
    const AttentionRotary& rotary = p.decode.rotary;
    const int before =
        PageTable(p.decode.pages, tile.sequence).stored() - (p.decode.appended > 0 ? 0 : tile.rows);
    const int lane = threadIdx.x % 32, first = threadIdx.x / 128 * 64;
    const int used = minimum(used_rows<Config>(tile.group) - first, 64);
    mbarrier_wait(consumer.ring.q_full(), consumer.q_state.phase);
#pragma unroll 1
    for (int r = threadIdx.x / 32 % 4; r < used; r += 4) {
      const int query = (tile.first + first + r) / tile.group;
      if (query >= tile.rows) break;
      const int position = rotary_position(rotary, tile.sequence, tile.start_q, query, before);
      for (int pair = lane; pair < rotary.columns / 2; pair += 32) {
        const auto at = [&](int which) {
          const int column = rotary_column<Config>(rotary, pair, which);
          return reinterpret_cast<Element*>(q + column / 64 * Config::kTileM * 128 +
                                            panel_offset(first + r, column % 64 / 8) +
                                            column % 8 * 2);
        };
        float a = to_float(*at(0)), b = to_float(*at(1));
        rotate_pair<Config>(rotary, position, pair, a, b);
        *at(0) = from_float<Element>(a), *at(1) = from_float<Element>(b);
      }
    }
    fence_shared_writes();
    if (first == 0) {  // the warpgroup's rows are turned
      named_barrier_sync<4, 128>();
    } else {
      named_barrier_sync<5, 128>();
    }
  }

  // A split's result is without the sink, which is one part more of the combination.
  __device__ __forceinline__ void store_partial(const RaggedTile& of, float t,
                                                const RunningSoftmax<1>& softmax,
                                                const O& o) const {
    const QueryTile& tile = of.tile;
    const AttentionForwardParams& f = p.decode.forward;
    const int thread = thread_index(), quarter = thread % 4;
    const WarpRows<Consumers> rows(tile);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int warp_row = rows.warp_row(0, half, thread);
      const bool there = rows.query(tile, warp_row, thread) < tile.rows;
      const long long at = of.split.slot + thread / 32 * 16 + warp_row;
      const float sum = row_sum<Element>(softmax.sum[0][half]);
      const RowEnd end = softmax_end<false>(softmax.most[0][half], sum, t, 0.0f);
      if (!there) continue;
      if (quarter == 0) store_element(static_cast<float*>(p.decode.partial_lse) + at, end.lse);
      float* to = static_cast<float*>(p.decode.partial_out) + at * f.value_dim + 2 * quarter;
#pragma unroll
      for (int n = 0; n < Config::kValueWidth / 8; ++n) {  // a quad stores 32 bytes of a row
        const float pair[2] = {o[0][n][2 * half] * end.scale, o[0][n][2 * half + 1] * end.scale};
        if (n * 8 < f.value_dim) store_global(to + n * 8, pack<f32, 8>(pair));
      }
    }
    list_slots(of);
  }
  // attention_combine takes what the first split of a tile says; the others' entries are empty.
  __device__ __forceinline__ void list_slots(const RaggedTile& of) const {
    const QueryTile& tile = of.tile;
    const int slots = RaggedSequence<Config>::partial_slots(tile.rows, tile.group);
    const int thread = static_cast<int>(threadIdx.x), row = thread * kPartialRows;
    if (thread >= slots) return;
    AttentionCombineEntry entry = {tile.sequence,
                                   tile.first + row,
                                   tile.head,
                                   of.split.number == 0 ? of.split.count : 0,
                                   slots * kPartialRows,
                                   minimum(used_rows<Config>(tile.group) - row, kPartialRows)};
    static_cast<AttentionCombineEntry*>(
        p.decode.combine_list)[of.split.slot / kPartialRows + thread] = entry;
  }

  __device__ __forceinline__ float walk(const RaggedTile& of, RunningSoftmax<1>& softmax, O& o) {
    const QueryTile& tile = of.tile;
    const ScoreUnits<Consumers> units(p.decode.forward, tile, WarpRows<Consumers>(tile));
    CursorVisits<Config> visits(p.decode.forward, tile);
    const DecodePart part(visits, of.split);
    visits.begin = part.first, visits.end = part.last;
    if (visits.begin < visits.end) {
      if constexpr (IsRotary<Config>::kValue) rotate_queries(tile);
      consumer.walk(visits, tile, units, softmax, o);
    }
    return units.t;
  }
  __device__ __forceinline__ RaggedTile read(int group) const {
    int split[3];
    messages.read_own(message_state, split);
    return {messages.read(message_state, group), {split[0], split[1], split[2]}};
  }
  // The end of a tile reads its message again rather than hold it all the while.
  __device__ __forceinline__ void run_tile(int group) {
    const RaggedTile of = read(group);
    O o = {};
    RunningSoftmax<1> softmax;
    start_empty(softmax);
    const float t = walk(of, softmax, o);
    const RaggedTile kept = read(group);
    messages.release(message_state);
    message_state.next();
    if (kept.split.count <= 1) {
      store_results<Consumers>(p.decode.forward, kept.tile, t, softmax, o);
    } else {
      store_partial(kept, t, softmax, o);
    }
  }
  __device__ __forceinline__ void run() {
    const int group = p.decode.forward.heads / p.decode.forward.kv_heads;
    consumer.ping_pong.start();
#pragma unroll 1
    while (messages.wait(message_state)) run_tile(group);
  }
};

template <class Config>
__device__ void attention_ragged_warpgroups(const AttentionRaggedWarpgroupsParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  const AttentionRing<Config> ring = {shared_address(shared)};
  const MessagesOf<Config> messages = {ring.messages()};
  constexpr unsigned kConsumers = ConsumerConfig<Config>::kThreads;
  if (threadIdx.x == kConsumers) {
    prefetch_tensor_map(p.q);
    prefetch_tensor_map(p.k);
    prefetch_tensor_map(p.v);
    messages.init();
    ring.init();
  }
  clear_unused_rows(p.decode.forward, ring);
  __syncthreads();  // the barriers and what is cleared are there for all
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kPagedProducer.producer>();
    const int lane = static_cast<int>(threadIdx.x - kConsumers);
    if (lane < 32) RaggedProducer<Config>{p, ring, messages, lane}.run();
  } else {
    setmaxnreg_inc<kPagedProducer.consumer>();
    RaggedConsumer<Config>{
        p, messages, reinterpret_cast<char*>(shared), {ring, {threadIdx.x / 128}}}
        .run();
  }
}

}  // namespace lathe
