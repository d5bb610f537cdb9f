// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements decoding with mma.sync and cp.async: with values of their own here, with values that
// are columns of the keys in latent.cpp.
#include "ops/attention/decode/portable.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr int kElementBytes = 2, kRowEntryBytes = 16, kNarrowEntryBytes = 12;
// More leave too few registers for the query and the copies' addresses: ptxas spills.
constexpr int kMostAccumulators = 160;

// Returns the warps that share the rows of a tile: each owns at least 16 keys of a block.
int key_warps(const AttentionTile& tile) { return tile.warps * 16 / tile.rows; }

// Returns the float32 registers of a thread for out, scores and their 16-bit copy. A warp owns 16
// rows.
int accumulators(const AttentionProblem& problem, const AttentionTile& tile) {
  const int scores = tile.keys / key_warps(tile) / 2;
  return attention_padded_width(problem.value_dim) / 2 + scores + scores / 2;
}

std::vector<AttentionTile> tiles_of(const AttentionDecodeProblem& problem,
                                    const DeviceFacts& facts) {
  return problem.latent ? attention_latent_candidates(problem, facts, problem.tile_rows)
                        : attention_decode_candidates(problem, facts, problem.tile_rows);
}

std::string refusal(const AttentionDecodeProblem& problem, const DeviceFacts& facts) {
  if (!tiles_of(problem, facts).empty()) return {};
  return text("flash_attention_decode: a block of head widths ", problem.head_dim, " and ",
              problem.value_dim, " needs more shared memory than the ",
              facts.shared_bytes_per_block, " bytes of ", facts.arch);
}

std::vector<KernelSpec> candidates(const AttentionDecodeProblem& problem,
                                   const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const AttentionTile& tile : tiles_of(problem, facts)) {
    specs.push_back(problem.latent ? attention_latent_spec(problem, tile)
                                   : attention_decode_spec(problem, tile));
  }
  return specs;
}

class Portable final : public AttentionDecode {
 public:
  using AttentionDecode::AttentionDecode;

  // The kernel with the fewest rows that hold all queries of a key head is taken.
  bool takes(const AttentionDecodeShape& shape) const override {
    return tiling().m >= shape.queries * shape.ratio();
  }
  Status launch(const AttentionDecodeCall& of) const override {
    AttentionDecodeParams p = {};
    fill(of, &p);
    return kernel.launch(of.parts.blocks, &p, of.call.stream);
  }
};

std::unique_ptr<AttentionDecode> make(KernelSpec spec, const AttentionDecodeProblem&,
                                      const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

}  // namespace

const AttentionDecodeStep kAttentionDecodePortable = {
    "portable", refusal, candidates, {"n", "stages"}, make};

int attention_decode_smem(const AttentionProblem& problem, const AttentionTile& tile) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  const int wide = tile.keys * kElementBytes * (width + value_width);
  // In 8 bits a stage has half as much; there is one tile more, and each row has a number and
  // scales.
  const bool narrow = problem.narrow != kWideRows;
  const int block =
      (narrow ? wide / 2 : wide) + tile.keys * (kRowEntryBytes + (narrow ? kNarrowEntryBytes : 0));
  const int tiles = kElementBytes * tile.rows * width + (narrow ? wide : 0) + tile.stages * block;
  const int merge = key_warps(tile) * tile.rows * 4 * (value_width + 8 + 2);
  return std::max(tiles, merge);
}

std::vector<AttentionTile> attention_decode_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows) {
  std::vector<AttentionTile> candidates;
  int best = 0;
  for (const int keys : {64, 32}) {
    const int warps = std::max(rows / 16, std::min(4, rows / 16 * keys / 16));
    for (const int stages : {4, 3, 2}) {
      const AttentionTile tile = {rows, keys, stages, warps};
      const int bytes = attention_decode_smem(problem, tile);
      if (bytes > facts.shared_bytes_per_block) continue;
      if (accumulators(problem, tile) > kMostAccumulators) continue;
      // The best tile has the most keys in flight and leaves room for a second block; else fewer
      // stages win.
      const bool two = 2 * (bytes + kReservedShared) <= facts.shared_bytes_per_multiprocessor;
      const int rank = (two ? 100 : 50 - 10 * stages) + (keys == 64 ? 20 : 0) + stages;
      if (rank > best) {
        best = rank;
        candidates.insert(candidates.begin(), tile);
      } else {
        candidates.push_back(tile);
      }
    }
  }
  return candidates;
}

void add_decode_constants(const AttentionProblem& problem, const AttentionTile& tile, int width,
                          int value_width, KernelSpec* spec) {
  spec->constants = {
      Constant::type("element", "Element", problem.element),
      Constant::integer("width", "kWidth", width),
      Constant::integer("value_width", "kValueWidth", value_width),
      Constant::integer("m", "kTileM", tile.rows),
      Constant::integer("n", "kTileN", tile.keys),
      Constant::integer("stages", "kStages", tile.stages),
      Constant::flag("local", "kLocal", problem.local),
  };
  add_score_flags(problem, spec);
  spec->add({Constant::flag("sinks", "kSinks", problem.sinks)});
  add_decode_calls(problem, spec);
  if (problem.spread) spec->add({Constant::flag("spread", "kSpread", true)});
  add_alignment(problem.alignment, spec);
  add_mods(problem, spec);
}

KernelSpec attention_decode_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("attention", "attention_decode", AttentionDecodeParams, splits),
                  "AttentionDecodeSmem", attention_decode_smem(problem, tile), 32 * tile.warps);
  add_decode_constants(problem, tile, attention_padded_width(problem.head_dim),
                       attention_padded_width(problem.value_dim), &spec);
  return spec;
}

}  // namespace lathe
