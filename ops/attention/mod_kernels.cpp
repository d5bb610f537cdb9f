// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Adds mods to the flash attention family: puts their text into its specs, and makes the kernels
// that list the blocks of a mask_mod.
#include <cstddef>
#include <string_view>

#include "codegen/base/text.h"
#include "ops/attention/kernels.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

namespace lathe {
namespace {

constexpr int kWarps = 8;           // as many tiles are classified at once
constexpr int kKeyTileBytes = 128;  // KeyTile::kBytes of attention/key_tile.cuh

// Makes the common part of both list kernels: the tiles of the kernel that walks the lists.
KernelSpec lists_of(const AttentionProblem& problem, const KernelSpec& walker) {
  KernelSpec spec;
  spec.threads = 32 * kWarps;
  for (const Constant& constant : walker.constants) {
    for (const char* name : {"cu", "m", "n", "packed", "local", "pack_gqa", "whole_groups"}) {
      if (constant.name == name) spec.constants.push_back(constant);
    }
  }
  add_mods(problem, &spec, "mask_mod");
  return spec;
}

}  // namespace

void add_mods(const AttentionProblem& problem, KernelSpec* spec, const char* only) {
  if (problem.mods.empty()) return;
  for (size_t i = 0; i < problem.captures.size(); ++i) {
    if (!problem.captures[i]) continue;
    spec->constants.push_back(
        Constant::type(text("capture_", i), text("Capture", i), *problem.captures[i]));
  }
  // Some kernels have the mask_mod alone: it is first, so that nothing of score_mod changes it.
  for (const std::string_view name : {"mask_mod", "score_mod"}) {
    for (const Mod& mod : problem.mods) {
      const bool asked = only == nullptr || mod.name == only;
      if (asked && mod.name == name) spec->mods.push_back(mod);
    }
  }
}

KernelSpec attention_mask_blocks_spec(const AttentionProblem& problem, const KernelSpec& walker) {
  KernelSpec spec = lists_of(problem, walker);
  spec.set(LATHE_TEMPLATE("attention", "attention_mask_blocks", AttentionForwardParams, softcap));
  spec.smem = "AttentionMaskBlocksSmem";
  spec.smem_bytes = 4 * kWarps;
  return spec;
}

KernelSpec attention_mask_queries_spec(const AttentionProblem& problem, const KernelSpec& walker) {
  KernelSpec spec = lists_of(problem, walker);
  spec.set(LATHE_TEMPLATE("attention", "attention_mask_queries", AttentionBackwardParams, softcap));
  spec.smem = "AttentionMaskQueriesSmem";
  spec.smem_bytes = kKeyTileBytes + 4 * kWarps;
  // Each list is for one query head, whether or not a block of the backward has several.
  spec.constants.push_back(Constant::flag("heads_apart", "kHeadsApart", true));
  return spec;
}

}  // namespace lathe
