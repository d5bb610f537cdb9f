// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements attention of packed queries over pages by warpgroups with roles (sm_90a): any number
// of new rows of each sequence in one launch, with the forward's tiles.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/attention/decode/step.h"
#include "ops/attention/forward/sm90.h"
#include "ops/attention/maps.h"
// It uses the one above.
#include "templates/params/attention_ragged_warpgroups.h"

namespace lathe {
namespace {

constexpr const char* kKernel = "attention_ragged_warpgroups";
constexpr int kRun = 16;            // a page has a multiple of so many keys
constexpr int kOrderThreads = 512;  // that sort as many sequences at a time
// As templates/attention/sm90/ have them: rows that are joined together; rows of a tile that are
// few, and how many times as many parts its keys may have.
constexpr int64_t kPartialRows = 4, kFewRows = 16, kPartsOfFewRows = 8;
// Keys and values of a section of heads fit in L2 beside other data.
constexpr int64_t kHeadsBytes = int64_t{32} << 20;
constexpr int64_t kElementBytes = 2;

// The forward's problem whose tiles and constants the kernel has.
AttentionProblem forward_of(const AttentionProblem& problem) {
  AttentionProblem out = problem;
  out.forward = out.packed = out.pack_gqa = true;
  return out;
}

KernelSpec spec_of(const AttentionProblem& problem) {
  KernelSpec forward = attention_paged_spec(forward_of(problem), kRun);
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("attention/sm90", kKernel, AttentionRaggedWarpgroupsParams, box_rows),
      "AttentionWarpgroupsSmem", forward.smem_bytes, forward.threads);
  spec.constants = std::move(forward.constants);
  add_rotary(problem, &spec);
  spec.tensor_maps = std::move(forward.tensor_maps);
  return spec;
}

KernelSpec order_spec(const KernelSpec& kernel, const AttentionProblem& problem, int64_t bundle) {
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("attention/sm90", "attention_ragged_order",
                                               AttentionRaggedOrderParams, reserved),
                                "RaggedOrderSmem",
                                kOrderThreads * (44 + 24) + kOrderThreads / 32 * 8, kOrderThreads);
  spec.constants = {Constant::type("cu", "CuSeqlens", problem.cu_seqlens),
                    Constant::integer("m", "kTileM", kernel.constant("m")),
                    Constant::integer("n", "kTileN", kernel.constant("n")),
                    Constant::integer("bundle", "kBundle", bundle)};
  return spec;
}

std::string refusal(const AttentionDecodeProblem& problem, const DeviceFacts& facts) {
  if (std::string why = attention_warpgroups_refusal(forward_of(problem), facts); !why.empty()) {
    return why;
  }
  const AttentionDecodeRows& rows = problem.declared;
  if (problem.latent) return "values are columns of the keys";
  if (!problem.ragged) return "queries are not packed";
  if (!problem.mods.empty()) return "there are mods";
  if (problem.narrow != kWideRows) return "the cache has 8 bits";
  if (problem.spread) return "keys lie on several ranks or begin behind padding";
  if (rows.page >= 0 && rows.page % kRun != 0) return "a page is no multiple of 16 keys";
  return facts.rejection(kKernel);
}

std::vector<KernelSpec> candidates(const AttentionDecodeProblem& problem, const DeviceFacts&) {
  return {spec_of(problem)};
}

class Ragged final : public AttentionDecode {
 public:
  Ragged(KernelSpec spec, const AttentionProblem& problem, int64_t multiprocessors)
      : AttentionDecode(std::move(spec)),
        bundle_(multiprocessors % 4 == 0   ? 4
                : multiprocessors % 2 == 0 ? 2
                                           : 1),
        order_(order_spec(*kernel, problem, bundle_)),
        multiprocessors_(std::min<int64_t>(multiprocessors, kOrderThreads)) {}

  std::vector<KernelSlot*> slots() override { return {&order_, &kernel}; }
  int64_t launches() const override { return 2; }

  // With one row of each sequence the portable kernel waits for memory alone.
  bool takes(const AttentionDecodeShape& shape) const override {
    return shape.batch > 0 && shape.page % kRun == 0 && shape.pages > 0 &&
           shape.ratio() <= tiling().m && shape.queries * shape.ratio() > kFewRows;
  }

  Result<AttentionDecodeParts> parts(const AttentionProblem& problem,
                                     const AttentionDecodeShape& shape, const AttentionSplitTable&,
                                     int64_t, int64_t wanted) const override {
    AttentionDecodeParts out;
    const int64_t tiles =
        shape.kv_heads * (shape.packed_tokens / (tiling().m / shape.ratio()) + shape.batch + 1);
    const int64_t key_blocks = ceil_div(shape.most_keys(), tiling().n);
    out.slot_rows = kPartialRows;
    if (problem.split && wanted != 1 && key_blocks > 1) {
      if (wanted > 1) {
        out.splits = attention_clamp_splits(wanted, key_blocks);
        out.slots = bounded_product({ceil_div(tiling().m, kPartialRows), tiles, out.splits});
      } else {
        // No more tiles of many rows are cut than there are blocks of threads, each into at most
        // one part more than its share; of few rows it is so many times as many.
        out.share = multiprocessors_;
        out.slots = 2 * multiprocessors_ * (tiling().m + kPartsOfFewRows * kFewRows) / kPartialRows;
      }
    }
    const int64_t most = bounded_product({tiles, out.share > 0 ? multiprocessors_ : out.splits});
    out.blocks = std::min(ceil_div(most, bundle_) * bundle_, multiprocessors_);
    out.partial_rows = out.joined_rows = bounded_product({out.slots, kPartialRows});
    LATHE_TRY(checked_product("the workspace", {out.partial_rows, problem.value_dim + 1, 8}));
    WorkspaceLayout layout;
    out.lay_out(problem, &layout);
    out.entries = layout.add({shape.batch + 2, sizeof(AttentionRaggedEntry)});
    // Each split of a tile has a slot at least.
    out.turns = ceil_div(tiles + out.slots, out.blocks);
    out.items = layout.add({out.turns, out.blocks, sizeof(AttentionRaggedItem)});
    out.total = layout.total();
    return out;
  }

  Status launch(const AttentionDecodeCall& of) const override {
    const AttentionProblem& problem = of.request.attention.problem;
    AttentionRaggedWarpgroupsParams p = {};
    fill(of, &p.decode);
    p.entries = of.call.workspace + of.parts.entries;
    p.items = of.call.workspace + of.parts.items;
    p.box_rows = static_cast<int>(std::gcd(of.shape.page, tiling().n));
    AttentionRaggedOrderParams order = {};
    order.decode = p.decode;
    order.entries = of.call.workspace + of.parts.entries;
    order.items = of.call.workspace + of.parts.items;
    order.most_turns = static_cast<int>(of.parts.turns);
    order.blocks = static_cast<int>(of.parts.blocks);
    order.section_keys =
        static_cast<int>(kHeadsBytes / (kElementBytes * (problem.head_dim + problem.value_dim)));
    LATHE_TRY(order_.launch(1, &order, of.call.stream));
    LATHE_TRY(encode(of, &p));
    return kernel.launch(of.parts.blocks, &p, of.call.stream);
  }

 private:
  Status encode(const AttentionDecodeCall& of, AttentionRaggedWarpgroupsParams* p) const {
    using namespace attention_decode;
    const AttentionProblem& problem = of.request.attention.problem;
    const AttentionDecodeShape& shape = of.shape;
    const auto& t = of.call.tensors;
    const MappedRows queries =
        rows_of(t[q], true, problem.head_dim, shape.packed_tokens, shape.heads, 1);
    LATHE_TRY(
        kernel.encode(0, attention_group_map(true, queries, shape.ratio(), tiling().m), &p->q));
    // A page is what a sequence is elsewhere.
    const auto encode_cache = [&](size_t index, const Tensor& cache, int64_t columns,
                                  TensorMap* out) {
      MappedTensor map = attention_range_map(
          rows_of(cache, false, columns, shape.page, shape.kv_heads, shape.pages));
      map.box[1] = p->box_rows;
      return kernel.encode(index, map, out);
    };
    LATHE_TRY(encode_cache(1, t[k_cache], problem.head_dim, &p->k));
    return encode_cache(2, t[v_cache], problem.value_dim, &p->v);
  }

  const int64_t bundle_;  // of blocks of threads, that are sorted together
  KernelSlot order_;
  int64_t multiprocessors_;
};

std::unique_ptr<AttentionDecode> make(KernelSpec spec, const AttentionDecodeProblem& problem,
                                      const DeviceFacts& facts) {
  return std::make_unique<Ragged>(std::move(spec), problem, facts.multiprocessors);
}

}  // namespace

const AttentionDecodeStep kAttentionDecodeRaggedSm90 = {
    "sm90", refusal, candidates, {"n", "stages"}, make};

}  // namespace lathe
