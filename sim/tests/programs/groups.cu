// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programs with groups of threads that are parts of a warp: lanes that stand together name different
// groups, and each group is a collective of its own. groups_test.cpp says what each kernel computes.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

constexpr unsigned kAll = 0xFFFFFFFF;

// The sum of the tile, by shuffles and by the library, and the count of odd values in it.
template <int kSize>
__device__ void tile_sums(const int* in, int* out) {
  const auto block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<kSize>(block);
  const int v = in[block.thread_rank()];
  int sum = v;
  for (int d = tile.size() / 2; d > 0; d /= 2) sum += tile.shfl_xor(sum, d);
  const int again = cg::reduce(tile, v, cg::plus<int>());
  const int odd = __popc(tile.ballot(v & 1));
  out[block.thread_rank()] = sum == again ? 100 * sum + odd : -1;
}
extern "C" __global__ void tile4(const int* in, int* out) { tile_sums<4>(in, out); }
extern "C" __global__ void tile8(const int* in, int* out) { tile_sums<8>(in, out); }
extern "C" __global__ void tile16(const int* in, int* out) { tile_sums<16>(in, out); }
extern "C" __global__ void tile32(const int* in, int* out) { tile_sums<32>(in, out); }

// The other instructions of a tile: shuffles by rank, votes and matches.
extern "C" __global__ void tile_words(const int* in, int* out) {
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  const int v = in[threadIdx.x];
  int word = tile.shfl(v, 3);
  word = 10 * word + tile.shfl_up(v, 2);
  word = 10 * word + tile.shfl_down(v, 1);
  word = 10 * word + tile.any(v == 1);
  word = 10 * word + tile.all(v < 4);
  word = 10 * word + __popc(tile.match_any(v));
  int same = 0;
  tile.match_all(v / 8, same);
  out[threadIdx.x] = 10 * word + (same != 0);
}

// Groups of lanes with one label: their size and sum.
extern "C" __global__ void labels(const int* in, int* out) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int v = in[threadIdx.x];
  const auto group = cg::labeled_partition(warp, v % 5);
  out[threadIdx.x] = 100 * cg::reduce(group, v, cg::plus<int>()) + static_cast<int>(group.size());
}

// The two groups that a predicate makes: ranks in them, and the largest value of each.
extern "C" __global__ void binary(const int* in, int* out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int v = in[threadIdx.x];
  const auto group = cg::binary_partition(tile, v % 3 == 0);
  const int most = cg::reduce(group, v, cg::greater<int>());
  out[threadIdx.x] = 100 * most + static_cast<int>(group.thread_rank());
}

// Lanes that happen to be in a branch together add to a counter by one atomic, and share its result.
__device__ int add_together(int* counter) {
  const auto group = cg::coalesced_threads();
  int first = 0;
  if (group.thread_rank() == 0) first = atomicAdd(counter, static_cast<int>(group.size()));
  return group.shfl(first, 0) + static_cast<int>(group.thread_rank());
}
extern "C" __global__ void filter(const int* in, int* out, int* counter) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (in[i] % 3 == 1) out[add_together(counter)] = i;
}

// Lanes with equal values find each other, then shuffle, vote and add among themselves.
extern "C" __global__ void matches(const int* in, int* out) {
  const int v = in[threadIdx.x], lane = static_cast<int>(threadIdx.x % 32);
  const unsigned peers = __match_any_sync(kAll, v);
  const int leader = __ffs(static_cast<int>(peers)) - 1;
  const int from = __shfl_sync(peers, lane, leader);
  const int sum = __reduce_add_sync(peers, lane);
  const int top = static_cast<int>(__reduce_max_sync(peers, static_cast<unsigned>(lane)));
  const int odd = __popc(__ballot_sync(peers, lane & 1));
  const int any = __any_sync(peers, lane > 20), every = __all_sync(peers, lane < 30);
  out[threadIdx.x] = ((from * 1000 + sum) * 100 + top) * 100 + odd + 20 * any + 40 * every;
}

// Masks that each lane computes for its eighth of the warp, without the library.
extern "C" __global__ void masks(const int* in, int* out) {
  const unsigned m = 0xFFu << (threadIdx.x & 24);
  const int v = in[threadIdx.x];
  int word = __shfl_sync(m, v, 0, 8);
  word = 100 * word + __shfl_xor_sync(m, v, 5, 8);
  __shared__ int room[64];
  room[threadIdx.x] = v;
  __syncwarp(m);
  out[threadIdx.x] = 100 * word + room[threadIdx.x ^ 7];
}

// Some lanes have left: the others may still name them, and whole tiles may be gone.
extern "C" __global__ void exits(const int* in, int* out) {
  const unsigned lane = threadIdx.x % 32;
  if (lane % 7 == 3 || lane / 8 == 2) return;
  const int v = in[threadIdx.x];
  const int all = __reduce_add_sync(kAll, v);
  const int eighth = __reduce_add_sync(0xFFu << (lane & 24), v);
  const auto left = cg::coalesced_threads();
  out[threadIdx.x] = 10000 * all + 100 * eighth + static_cast<int>(left.thread_rank());
}

// Tiles go round a loop as often as they have to, whatever the other tiles of the warp do.
extern "C" __global__ void loops(const int* in, int* out) {
  __shared__ int room[128];
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int v = in[threadIdx.x], rounds = 0;
  while (tile.any(v > 1)) {
    room[threadIdx.x] = v;
    tile.sync();
    const int next = room[threadIdx.x ^ 1];
    tile.sync();
    v = (v + next) / 3;
    ++rounds;
  }
  out[threadIdx.x] = 100 * rounds + v;
}

// Groups of groups: a tile of a tile, and tiles of the lanes that are in a branch.
extern "C" __global__ void nested(const int* in, int* out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const auto inner = cg::tiled_partition<4>(tile);
  const int v = in[threadIdx.x];
  int word = cg::reduce(inner, v, cg::plus<int>()) * 10 + static_cast<int>(inner.meta_group_rank());
  if (threadIdx.x % 3 != 1) {
    const auto pack = cg::tiled_partition(cg::coalesced_threads(), 4);
    word = word * 1000 + pack.shfl(v, 0) * 10 + static_cast<int>(pack.size());
  }
  out[threadIdx.x] = word;
}

// Sums over all lanes before this one, in tiles and in groups of equal parity.
extern "C" __global__ void scans(const int* in, int* out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int v = in[threadIdx.x];
  const int before = cg::exclusive_scan(tile, v), upto = cg::inclusive_scan(tile, v);
  const auto group = cg::binary_partition(tile, v & 1);
  out[threadIdx.x] = (1000 * before + upto) * 1000 + cg::inclusive_scan(group, v);
}

// One lane of each group works for all of it.
extern "C" __global__ void chosen(const int* in, int* out) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const auto group = cg::labeled_partition(warp, in[threadIdx.x] % 4);
  out[threadIdx.x] = cg::invoke_one_broadcast(group, [&] { return static_cast<int>(group.size()); });
}

// A tile of two warps: its exchange goes through shared memory.
extern "C" __global__ void tile64(const int* in, int* out) {
  __shared__ cg::block_tile_memory<256> room;
  const auto block = cg::this_thread_block(room);
  const auto tile = cg::tiled_partition<64>(block);
  const int v = in[threadIdx.x];
  const int sum = cg::reduce(tile, v, cg::plus<int>());
  tile.sync();
  out[threadIdx.x] = 1000 * sum + cg::exclusive_scan(tile, v);
}

// A block copies to shared memory together, and does something else between arrival and wait.
extern "C" __global__ void copies(const int* in, int* out) {
  __shared__ int room[256];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, room, in, sizeof room);
  int word = in[threadIdx.x];
  cg::wait(block);
  word = 100 * word + room[255 - threadIdx.x];
  block.sync();
  room[threadIdx.x] = word;
  auto token = block.barrier_arrive();
  word *= 2;
  block.barrier_wait(std::move(token));
  out[threadIdx.x] = word + room[threadIdx.x ^ 33];
}
