// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the forward by warpgroups with roles (sm_90a), with the same results as the portable
// kernel within tolerance.
#include "ops/attention/forward/sm90.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "codegen/base/integers.h"
#include "ops/attention/forward/portable.h"
#include "ops/attention/maps.h"

namespace lathe {
namespace {

constexpr int kPanel = 64;
// Messages of tiles: templates/attention/sm90/tile_messages.cuh.
constexpr int kMessageBytes = 3 * (4 * 16 + 16);
constexpr const char* kKernel = "attention_forward_warpgroups";

// By padded widths of keys and of values: the rows of a block, 64 for each warpgroup that
// multiplies, the keys of a step, and the stages of their ring. A thread that multiplies has 240
// registers, or 160 where there are three warpgroups. Sums take half the value width of them,
// scores half the keys and weights a quarter; what is left must hold addresses and every option. A
// block has 227 KiB of shared memory: q, and in each stage keys and values. Times of several tiles
// on an H200: bench/results/attn-sm90-tiles-h200-2026-11-26.csv.
struct Tile {
  int width, value_width;
  int rows, keys, stages;
  int local_keys;  // where blocks at the edge of a mask are multiplied in part for nothing
  int mod_keys;    // where a mod wants registers, how many nobody knows

  int threads() const { return 2 * rows + 128; }
};
constexpr Tile kTiles[] = {
    {64, 64, 192, 128, 2, 128, 96},    // 128 registers, 88 KiB
    {96, 96, 128, 128, 2, 128, 96},    // 144 registers, 160 KiB: a panel is half zeros
    {128, 128, 128, 176, 2, 128, 96},  // 196 registers, 208 KiB
    {192, 128, 128, 128, 2, 128, 96},  // 160 registers, 208 KiB
    {192, 192, 128, 112, 2, 112, 80},  // 180 registers, 216 KiB
    {256, 256, 128, 80, 2, 80, 64},    // 188 registers, 224 KiB
    {64, 256, 128, 80, 2, 80, 64},     // 188 registers, 116 KiB
    {128, 64, 128, 128, 2, 128, 96},   // 128 registers, 128 KiB
    {64, 128, 128, 128, 2, 128, 96},   // 160 registers, 112 KiB
};

// With what takes more registers than three warpgroups have: packed sequences, softcap, heads of a
// group as rows, the walk of a block step, and whatever mods do.
constexpr Tile kNarrowRoomy = {64, 64, 128, 128, 2, 128, 96};

// Null if the kernel has no tile for these widths.
const Tile* tile_of(const AttentionProblem& problem) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  for (const Tile& own : kTiles) {
    if (own.width != width || own.value_width != value_width) continue;
    const bool roomy = problem.packed || problem.softcap || problem.pack_gqa || problem.ranges ||
                       !problem.mods.empty();
    return roomy && own.rows > 128 ? &kNarrowRoomy : &own;
  }
  return nullptr;
}

int keys_of(const AttentionProblem& problem, const Tile& tile) {
  if (!problem.mods.empty()) return tile.mod_keys;
  // Beside the sums of (64, 256), masks of rows of several heads do not fit in registers, nor do
  // those of a block step, whose walk has registers of its own.
  const bool wide_sums = tile.value_width > 2 * tile.width;
  if (wide_sums && problem.local && (problem.pack_gqa || problem.ranges)) return tile.mod_keys;
  // At (256, 256) a word of such masks does not, with a cap and a sink.
  const bool crowded = tile.width == 256 && problem.softcap && problem.sinks;
  if (crowded && problem.local && problem.pack_gqa) return tile.mod_keys;
  return problem.local ? tile.local_keys : tile.keys;
}

int smem_bytes(const Tile& tile, int keys, bool packed, bool listed) {
  const int width = round_up(tile.width, kPanel);
  const int value_width = round_up(tile.value_width, kPanel);
  const int barriers = 8 * (2 + 4 * tile.stages), kept = tile.threads() - 128;
  const int messages = packed ? kMessageBytes : 0, entries = listed ? 4 * tile.stages : 0;
  return 2 * (tile.rows * width + tile.stages * keys * (width + value_width)) + barriers + kept +
         messages + entries;
}

KernelSpec spec_with(const AttentionProblem& problem, const Tile& tile, int keys,
                     bool short_first) {
  const bool listed = problem.mod("mask_mod") != nullptr;
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("attention/sm90", "attention_forward_warpgroups",
                                               AttentionWarpgroupsParams, order),
                                "AttentionWarpgroupsSmem",
                                smem_bytes(tile, keys, problem.packed, listed), tile.threads());
  // The constants and mods are those of the portable kernel, whose geometry serves both.
  KernelSpec portable =
      attention_forward_spec(problem, {tile.rows, keys, tile.stages, tile.threads() / 32});
  spec.constants = std::move(portable.constants);
  spec.mods = std::move(portable.mods);
  spec.constants.push_back(Constant::flag("short_first", "kShortFirst", short_first));
  const auto map = [&](const char* field, std::vector<int> box) {
    spec.tensor_maps.push_back({field, problem.element, std::move(box), 128});
  };
  if (problem.pack_gqa) {
    // A box is a group of heads by as many tokens as fill a tile, which a call knows.
    spec.constants.push_back(Constant::flag("whole_groups", "kWholeGroups", true));
    map("q", {kPanel, 0, 0, 1, 1});
  } else {
    map("q", {kPanel, tile.rows, 1, 1});
  }
  map("k", {kPanel, keys, 1, 1});
  map("v", {kPanel, keys, 1, 1});
  return spec;
}

// Under a mask long tiles should have no rows of nobody. Of lists only the kernel that made them
// knows the tiles.
bool has_short_first(const AttentionProblem& problem) {
  return problem.local && problem.mod("mask_mod") == nullptr;
}

// Keys and values of a section of heads fit in L2 beside other data.
constexpr int64_t kHeadsBytes = int64_t{32} << 20;

class Warpgroups final : public AttentionForward {
 public:
  Warpgroups(KernelSpec spec, const AttentionProblem& problem, int64_t multiprocessors)
      : AttentionForward(std::move(spec), problem), multiprocessors_(multiprocessors) {}

  Status launch(const AttentionForwardCall& of) const override {
    AttentionWarpgroupsParams p;
    p.forward = {};
    fill(of, &p.forward);
    LATHE_TRY(list_blocks(of, p.forward));
    LATHE_TRY(encode(of, &p));
    const int64_t blocks = attention_forward_blocks(tiling(), of.whole);
    p.order = attention_tile_order(tiling(), p.forward, blocks, multiprocessors_);
    return kernel.launch(std::min<int64_t>(p.order.blocks, multiprocessors_), &p, of.call.stream);
  }

 private:
  Status encode(const AttentionForwardCall& of, AttentionWarpgroupsParams* p) const {
    const auto& [sequences, heads, kv_heads, seq_q, seq_k] = of.shape;
    const AttentionProblem& problem = of.request.problem;
    const bool packed = problem.packed;
    const auto& t = of.call.tensors;
    const MappedRows q =
        rows_of(t[attention::q], packed, problem.head_dim, seq_q, heads, sequences);
    LATHE_TRY(kernel.encode(0,
                            tiling().pack_gqa != 0
                                ? attention_group_map(packed, q, heads / kv_heads, tiling().m)
                                : token_map(packed, q),
                            &p->q));
    if (seq_k == 0) {
      p->k = p->v = p->q;  // nobody reads these
      return {};
    }
    const MappedRows k =
        rows_of(t[attention::k], packed, problem.head_dim, seq_k, kv_heads, sequences);
    const MappedRows v =
        rows_of(t[attention::v], packed, problem.value_dim, seq_k, kv_heads, sequences);
    LATHE_TRY(kernel.encode(1, token_map(packed, k), &p->k));
    return kernel.encode(2, token_map(packed, v), &p->v);
  }

  int64_t multiprocessors_;
};

std::vector<KernelSpec> candidates(const AttentionProblem& problem, const DeviceFacts&) {
  const Tile& tile = *tile_of(problem);
  std::vector<KernelSpec> specs = {attention_warpgroups_spec(problem)};
  // Fewer keys leave less of a block at the edge of a mask, and more registers.
  for (const int keys : {tile.local_keys, tile.mod_keys}) {
    if (keys < specs.back().constant("n")) {
      specs.push_back(spec_with(problem, tile, keys, has_short_first(problem)));
    }
  }
  return specs;
}

std::unique_ptr<AttentionForward> make(KernelSpec spec, const AttentionProblem& problem,
                                       const DeviceFacts& facts) {
  return std::make_unique<Warpgroups>(std::move(spec), problem, facts.multiprocessors);
}

}  // namespace

std::string attention_warpgroups_refusal(const AttentionProblem& problem,
                                         const DeviceFacts& facts) {
  if (std::string refusal = tensor_map_refusal(problem, facts); !refusal.empty()) return refusal;
  if (!problem.forward) return "there is no forward";
  if (problem.element == Dtype::f32) return "the elements are float32";
  if (tile_of(problem) == nullptr) return "there is no tile for the head widths";
  return facts.rejection(kKernel);
}

KernelSpec attention_warpgroups_spec(const AttentionProblem& problem) {
  const Tile& tile = *tile_of(problem);
  return spec_with(problem, tile, keys_of(problem, tile), has_short_first(problem));
}

KernelSpec attention_paged_spec(const AttentionProblem& problem, int run) {
  const Tile& tile = *tile_of(problem);
  // Blocks of keys are those of a mask's edge, whichever masks there are, and two runs at least:
  // pages of 64 keys and more then bring a block by few copies.
  const int keys = std::min(keys_of(problem, tile), tile.local_keys) / (2 * run) * (2 * run);
  KernelSpec spec = spec_with(problem, tile, keys, false);
  // A box is rows of a page, which a call knows, by a page.
  for (size_t i = 1; i < spec.tensor_maps.size(); ++i)
    spec.tensor_maps[i].box = {kPanel, 0, 1, 1, 1};
  return spec;
}

AttentionTileOrder attention_tile_order(const AttentionTiling& kernel,
                                        const AttentionForwardParams& f, int64_t tiles,
                                        int64_t most) {
  AttentionTileOrder out = {};
  const int64_t columns = kernel.pack_gqa != 0 ? f.kv_heads : f.heads;
  const int64_t tokens = kernel.m / (kernel.pack_gqa != 0 ? f.heads / f.kv_heads : 1);  // of a tile
  out.blocks = tiles;
  if (kernel.packed != 0) out.blocks = columns * (f.seq_q / tokens + std::max(f.sequences, 1));
  const int64_t grid = std::min<int64_t>(out.blocks, most);
  out.section = 1, out.section_turns = 1;
  const AttentionMask mask = {f.seq_q, f.seq_k, f.window_left, f.window_right};
  out.first_longest = kernel.local != 0 && mask.first_longest() ? 1 : 0;
  out.turns = static_cast<unsigned>(ceil_div(out.blocks, grid));
  const int64_t key_bytes = int64_t{2} * (f.head_dim + f.value_dim);
  const int64_t fit = kHeadsBytes / std::max<int64_t>(key_bytes * f.seq_k, 1);
  const int64_t heads = kernel.packed != 0 ? columns : columns * f.sequences;
  // A section with fewer tiles than blocks of threads has nobody to itself: L2 then holds what it
  // can of several.
  const int64_t of_head = std::max<int64_t>(kernel.packed != 0 ? f.seq_q / tokens : f.tiles, 1);
  int64_t keys = std::min<int64_t>(kHeadsBytes / key_bytes, f.seq_k);
  const int64_t of_keys = kernel.packed != 0
                              ? std::max<int64_t>(of_head * keys / std::max<int64_t>(f.seq_k, 1), 1)
                              : of_head;
  const int64_t section = std::clamp<int64_t>(
      std::max(fit * (columns / f.kv_heads), ceil_div(grid, of_keys)), 1, heads);
  out.section = static_cast<int>(section);
  if (kernel.packed != 0) {
    if (section * of_keys < grid) keys = std::max(keys, f.seq_k * grid / (section * of_head));
    out.section_keys = static_cast<int>(std::min<int64_t>(keys, f.seq_k));
    // Whoever looks for a tile goes through the section's sequences, 32 at a time.
    out.section_sequences = static_cast<int>(std::max<int64_t>(64, ceil_div(grid, section)));
    return out;
  }
  const int64_t group = kernel.pack_gqa != 0 ? f.heads / f.kv_heads : 1;
  const int64_t used = kernel.m / group * group;
  out.missing = static_cast<int>(f.tiles * used - f.seq_q * group);
  if (kernel.local == 0) return out;
  out.section_turns = static_cast<unsigned>(ceil_div(section * f.tiles, grid));
  const int64_t whole = (heads - 1) / section;
  out.turns = static_cast<unsigned>(whole * out.section_turns +
                                    ceil_div((heads - whole * section) * f.tiles, grid));
  // All moves together are about once around.
  out.shift =
      static_cast<int>(std::max<int64_t>(grid / ((whole >> (out.section_turns & 1)) + 1), 1));
  return out;
}

const AttentionForwardStep kAttentionForwardSm90 = {
    "sm90", attention_warpgroups_refusal, candidates, {"m", "n", "stages"}, make};

}  // namespace lathe
