// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures flash_attention at the shapes of published figures: 16384 tokens in a batch, head widths
// of 64, 128 and 256 with 4096 columns, without a mask and causal; then what they leave out. On a
// GPU: time of a call with nothing of it in the second cache, in operations of the usual
// convention, 4 B H Sq Sk D, half if causal, a backward 2.5 times a forward. On the simulator, at
// shapes that it gets through: what is multiplied and read against what must be. Every case is
// checked before it is measured.
#include <algorithm>
#include <stdexcept>

#include "bench/operators/attn_work.h"
#include "bench/operators/measure.h"

namespace bench {
namespace {

using apitest::AttentionSize;
using apitest::LargeAttention;

constexpr int64_t kTokens = 16384;  // of a batch

AttentionSize square(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width,
                     bool causal) {
  AttentionSize size;
  size.batch = batch;
  size.seq_q = size.seq_k = tokens;
  size.heads = heads, size.kv_heads = kv_heads;
  size.head_dim = size.value_dim = width;
  size.causal = causal;
  return size;
}

// `tokens` in the whole batch, `columns` of q.
std::vector<AttentionSize> variants(int64_t tokens, int64_t length, int64_t columns) {
  const auto batch = tokens / length;
  const auto of = [&](int64_t width, int64_t ratio, bool causal) {
    const int64_t heads = columns / width;
    return square(batch, length, heads, std::max<int64_t>(heads / ratio, 1), width, causal);
  };
  std::vector<AttentionSize> sizes = {of(128, 8, false), of(128, 8, true)};
  sizes.push_back(of(128, 1, true));  // packed sequences of one length
  sizes.back().batch = 1;
  sizes.back().seq_q = sizes.back().seq_k = tokens;
  sizes.back().sequences = std::max<int64_t>(batch, 4);
  sizes.push_back(of(64, 8, true));
  sizes.back().window_left = length / 8;
  sizes.push_back(of(128, 1, true));
  sizes.back().head_dim = 192;
  sizes.push_back(of(64, 1, true));
  sizes.back().dtype = LATHE_F16;
  return sizes;
}

// Puts each backward behind its forward, and adds one that repeats bit for bit.
std::vector<AttentionSize> with_gradients(const std::vector<AttentionSize>& forward) {
  std::vector<AttentionSize> sizes = with_backward(forward);
  sizes.push_back(*std::find_if(sizes.begin(), sizes.end(), [](const AttentionSize& size) {
    return size.backward && size.causal && size.head_dim == 128;
  }));
  sizes.back().deterministic = true;
  return sizes;
}

AttentionSize decode(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads,
                     int64_t page) {
  AttentionSize size = square(batch, keys, heads, kv_heads, 128, true);
  size.seq_q = queries;
  size.page = page;
  return size;
}

std::vector<AttentionSize> decode_sizes() {
  return {decode(128, 1, 8192, 32, 8, 64), decode(16, 1, 65536, 32, 8, 64),
          decode(1, 1, 131072, 32, 8, 64), decode(128, 4, 8192, 32, 8, 64),
          decode(128, 1, 8192, 16, 1, 16), decode(128, 1, 8192, 16, 16, 256)};
}

// Returns squares of each width and length, with a mask and without, then variants of one length.
std::vector<AttentionSize> square_sizes(const std::vector<int64_t>& lengths, int64_t variant) {
  std::vector<AttentionSize> sizes;
  for (const int64_t width : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      for (const int64_t length : lengths) {
        const int64_t heads = 4096 / width;
        sizes.push_back(square(kTokens / length, length, heads, heads, width, causal));
      }
    }
  }
  for (const AttentionSize& size : variants(kTokens, variant, 4096)) sizes.push_back(size);
  sizes = with_gradients(sizes);
  for (const AttentionSize& size : decode_sizes()) sizes.push_back(size);
  return sizes;
}

std::vector<AttentionSize> gpu_sizes() {
  return square_sizes({512, 1024, 2048, 4096, 8192, kTokens}, 8192);
}

std::vector<AttentionSize> tiny_sizes() {
  AttentionSize packed = square(1, 150, 2, 2, 64, false);
  packed.sequences = 3;
  packed.dtype = LATHE_F16;
  std::vector<AttentionSize> sizes = with_gradients({square(1, 100, 4, 2, 128, true), packed});
  sizes.push_back(decode(2, 1, 256, 4, 2, 16));
  return sizes;
}

// A block of rows for about every multiprocessor of a large device.
std::vector<AttentionSize> sim_sizes(bool full) {
  const int64_t length = full ? 2048 : 1024, columns = full ? 4096 : 2048;
  std::vector<AttentionSize> sizes;
  for (const int64_t width : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      sizes.push_back(square(1, length, columns / width, columns / width, width, causal));
    }
  }
  for (const AttentionSize& size : variants(length, length, columns)) sizes.push_back(size);
  sizes = with_gradients(sizes);
  for (const AttentionSize& size :
       {decode(8, 1, 2 * length, 16, 4, 64), decode(1, 1, 8 * length, 16, 4, 64),
        decode(8, 4, 2 * length, 16, 4, 16), decode(8, 1, 2 * length, 16, 1, 16)}) {
    sizes.push_back(size);
  }
  return sizes;
}

const char* word(lathe_dtype dtype) {
  return dtype == LATHE_F32 ? "f32" : dtype == LATHE_F16 ? "f16" : "bf16";
}

std::string op_of(const AttentionSize& size) {
  return size.page > 0 ? "decode" : size.backward ? "backward" : "forward";
}

Cells cells(const AttentionSize& size) { return {op_of(size), size.text(), word(size.dtype)}; }

Table on_gpu(lathe_context* context, const Settings& settings) {
  const Measured<AttentionSize> of = {{"op", "shape", "dtype"},
                                      {"TFLOP_per_s", "GB_per_s", "minimum_MB", "family"},
                                      cells,
                                      settings.tiny ? tiny_sizes() : gpu_sizes()};
  return time_calls<LargeAttention, AttentionSize>(
      context, settings, of, 8,
      [](const AttentionSize& size, const LargeAttention& call, double median) -> Cells {
        return {number(size.flops() / median / 1e6, 1),
                number(size.minimum_bytes() / median / 1e3, 0),
                number(size.minimum_bytes() / 1e6, 2), family_of(call.plan())};
      });
}

// Heads that are rows of one tile.
int64_t group_of(const AttentionSize& size, const std::string& spec) {
  // Decoding always packs the heads of a group.
  const bool packed = size.page > 0 || spec_constant(spec, "pack_gqa") == 1;
  return packed ? size.heads / size.kv_heads : 1;
}

Cells counted(lathe_context* context, const AttentionSize& size) {
  const LargeAttention call(context, size);
  const AttnCounts counts = attn_counts(counted_launches(call, 8));
  const auto tile = first_tile(call.plan());
  if (!tile) throw std::runtime_error("no kernel of " + size.text() + " has a tile");
  const AttnWork work = attn_work(size, tile->rows, tile->keys, group_of(size, tile->spec));
  const double least = size.minimum_bytes();
  return {tile->text(),
          std::to_string(counts.launches),
          number(counts.tensor_ops / work.tile_ops, 3),
          number(counts.tensor_ops / work.pair_ops, 3),
          number(counts.memory_bytes / 1e6, 3),
          number(least / 1e6, 3),
          number(counts.memory_bytes / least, 3),
          number(counts.asked_bytes / least, 2),
          number(counts.conflicts, 0),
          number(counts.local_requests, 0),
          number(counts.warp_instructions / static_cast<double>(work.tiles * tile->warps), 0)};
}

Table on_simulator(lathe_context* context, const Settings& settings) {
  const Measured<AttentionSize> of = {
      {"op", "shape", "dtype"},
      {"tile", "launches", "tensor_per_tiles", "tensor_per_pairs", "memory_MB", "minimum_MB",
       "memory_ratio", "cache_ratio", "conflicts", "local_requests", "instructions_per_step"},
      cells,
      settings.tiny ? tiny_sizes() : sim_sizes(settings.full)};
  return count_calls<AttentionSize>(
      settings, of, [&](const AttentionSize& size) { return counted(context, size); });
}

}  // namespace

Table bench_attn(const Settings& settings) { return measure(settings, on_simulator, on_gpu); }

}  // namespace bench
