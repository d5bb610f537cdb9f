// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_mask_blocks and attention_mask_queries on the simulator, under every checker: their
// lists against every pair looked at one by one, with and without mask_tile.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/attention/backward/portable.h"
#include "ops/attention/forward/portable.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

using namespace lathe;

namespace {

constexpr int kM = 64, kN = 64, kWidth = 64;

// Every head and sequence has a mask of its own: some blocks empty, some whole, some mixed.
const char* const kMask = R"(
__device__ int block_kind(int batch, int head, int q, int k) {
  return (q / 64 * 5 + k / 64 * 3 + head + batch) % 4;
}
__device__ bool mask_mod(int batch, int head, int q, int k) {
  const int kind = block_kind(batch, head, q, k);
  return kind == 0 || (kind == 1 && (q * 31 + k * 7) % 64 == 5) || kind == 2;
}
)";
const char* const kTiles = R"(
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {
  if (q0 / 64 != (q1 - 1) / 64) return 1;
  const int kind = block_kind(batch, head, q0, k0);
  return kind == 3 ? 0 : kind == 1 ? 1 : 2;
}
)";
bool mask(int batch, int head, int q, int k) {
  const int kind = (q / 64 * 5 + k / 64 * 3 + head + batch) % 4;
  return kind == 0 || (kind == 1 && (q * 31 + k * 7) % 64 == 5) || kind == 2;
}

struct MaskCase {
  std::vector<int> rows, keys;  // by sequence
  bool packed = false, pack_gqa = false, tiles = false;
  int kv_heads = 1, group = 1, left = -1, right = -1;

  int heads() const { return kv_heads * group; }
  bool kept(int b, int head, int q, int k) const {
    const int position = q + keys[b] - rows[b];
    return (left < 0 || k >= position - left) && (right < 0 || k <= position + right) &&
           mask(b, head, q, k);
  }
};

AttentionProblem problem_of(const MaskCase& c) {
  AttentionProblem problem;
  problem.head_dim = problem.value_dim = kWidth;
  problem.packed = c.packed, problem.pack_gqa = c.pack_gqa;
  problem.local = c.left >= 0 || c.right >= 0;
  problem.mods = {{"mask_mod", "mask", std::string(kMask) + (c.tiles ? kTiles : "")}};
  return problem;
}

std::vector<int> starts(const std::vector<int>& lengths) {
  std::vector<int> out = {0};
  for (const int length : lengths) out.push_back(out.back() + length);
  return out;
}

template <typename Params>
void fill(sim::test::Device& device, const MaskCase& c, Params* p) {
  const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  p->cu_seqlens_q = at(device.upload(starts(c.rows)));
  p->cu_seqlens_k = at(device.upload(starts(c.keys)));
  p->sequences = static_cast<int>(c.rows.size());
  p->heads = c.heads(), p->kv_heads = c.kv_heads;
  p->seq_q = c.packed ? starts(c.rows).back() : c.rows[0];
  p->seq_k = c.packed ? starts(c.keys).back() : c.keys[0];
  p->window_left = c.left, p->window_right = c.right;
}

struct Lists {
  std::vector<int> entries, counts;
  long long stride = 0;
};

// Runs `spec` and reads its lists.
template <typename Params>
Lists run(const KernelSpec& spec, Params p, sim::test::Device& device, int64_t lists,
          int64_t stride, int64_t blocks) {
  Lists out;
  out.stride = p.visits_stride = stride;
  const uint64_t entries = device.buffer(lists * stride * 4 + 16);
  const uint64_t counts = device.buffer(lists * 4 + 16);
  p.visits = reinterpret_cast<void*>(entries), p.visit_counts = reinterpret_cast<void*>(counts);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome =
      device.run("entry", static_cast<uint32_t>(blocks), static_cast<uint32_t>(spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  out.entries = device.download<int>(entries, lists * stride);
  out.counts = device.download<int>(counts, lists);
  return out;
}

// The entries that the pairs of the given rows and keys ask for, blocks of one of them being named.
struct Pairs {
  bool any = false, all = true;
  void add(bool kept) { (kept ? any : all) = kept; }
  // `cut`: the tile reaches past the sequence.
  void list(int block, bool cut, std::vector<int>* to) const {
    if (any) to->push_back(2 * block + (all && !cut ? 0 : 1));
  }
};

// What mask_tile calls mixed may hold nothing where a window cuts it as well: masked entries may
// then be there that nothing asks for.
void check_list(const MaskCase& c, const Lists& lists, size_t at,
                const std::vector<int>& expected) {
  CAPTURE(at);
  const auto from = lists.entries.begin() + static_cast<long>(at * lists.stride);
  std::vector<int> found(from, from + lists.counts.at(at));
  CHECK(std::is_sorted(found.begin(), found.end()));
  if (c.tiles && c.left >= 0) {
    std::erase_if(found, [&](int entry) {
      return entry % 2 == 1 && std::find(expected.begin(), expected.end(), entry) == expected.end();
    });
  }
  CHECK(found == expected);
}

void check_blocks(const MaskCase& c, const Lists& lists, int tiles) {
  const int ratio = c.pack_gqa ? c.group : 1, columns = c.heads() / ratio;
  int start = 0;
  for (int b = 0; b < static_cast<int>(c.rows.size()); start += c.rows[b], ++b) {
    for (int head = 0; head < columns; ++head) {
      for (int tile = 0; tile * kM < c.rows[b] * ratio; ++tile) {
        std::vector<int> expected;
        for (int block = 0; block * kN < c.keys[b]; ++block) {
          Pairs pairs;
          for (int r = tile * kM; r < std::min((tile + 1) * kM, c.rows[b] * ratio); ++r) {
            for (int k = block * kN; k < std::min((block + 1) * kN, c.keys[b]); ++k) {
              pairs.add(c.kept(b, head * ratio + r % ratio, r / ratio, k));
            }
          }
          pairs.list(block, (block + 1) * kN > c.keys[b], &expected);
        }
        check_list(c, lists,
                   c.packed ? head * (tiles + c.rows.size()) + start * ratio / kM + b + tile
                            : (static_cast<size_t>(b) * columns + head) * tiles + tile,
                   expected);
      }
    }
  }
}

void check_queries(const MaskCase& c, const Lists& lists, int tiles) {
  int start = 0;
  for (int b = 0; b < static_cast<int>(c.rows.size()); start += c.keys[b], ++b) {
    for (int head = 0; head < c.heads(); ++head) {
      for (int tile = 0; tile * kN < c.keys[b]; ++tile) {
        std::vector<int> expected;
        for (int block = 0; block * kM < c.rows[b]; ++block) {
          Pairs pairs;
          for (int q = block * kM; q < std::min((block + 1) * kM, c.rows[b]); ++q) {
            for (int k = tile * kN; k < std::min((tile + 1) * kN, c.keys[b]); ++k) {
              pairs.add(c.kept(b, head, q, k));
            }
          }
          pairs.list(block, (block + 1) * kM > c.rows[b] || (tile + 1) * kN > c.keys[b], &expected);
        }
        check_list(c, lists,
                   c.packed ? head * (tiles + c.rows.size()) + start / kN + b + tile
                            : (static_cast<size_t>(b) * c.heads() + head) * tiles + tile,
                   expected);
      }
    }
  }
}

const std::vector<MaskCase> kCalls = {
    {{300, 300}, {330, 330}, false, false, false, 2, 2},
    {{300, 300}, {330, 330}, false, false, true, 1, 2, 100, -1},
    {{70}, {257}, false, true, false, 2, 3, -1, 0},
    {{0, 100, 64, 1, 0, 130}, {0, 90, 64, 200, 7, 128}, true, true, false, 1, 2},
    {{130, 0, 64, 200}, {64, 3, 0, 260}, true, false, true, 1, 2, 150, 20},
    {{64}, {0}, false, false, false},
};

}  // namespace

TEST_CASE("lists of blocks under a mask_mod hold what some pair asks for, and no other") {
  const auto opened = Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const MaskCase& c : kCalls) {
    const AttentionProblem problem = problem_of(c);
    const KernelSpec forward = attention_forward_spec(problem, {kM, kN, 2, 4});
    const KernelSpec backward = attention_backward_spec(problem, {kM, kN, 1, 4, 1}, false);
    const AttentionShape shape = {static_cast<int64_t>(c.rows.size()), c.heads(), c.kv_heads,
                                  c.packed ? starts(c.rows).back() : c.rows[0],
                                  c.packed ? starts(c.keys).back() : c.keys[0]};
    const auto ready = [&](const KernelSpec& spec, sim::test::Device& device) {
      CAPTURE(spec.text());
      const auto compiled = (*opened)->compile(emit_unit(spec, "sm_80"), "sm_80", spec.mods);
      REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
      CHECK(compiled->report.spill_stores == 0);
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      device.load(compiled->ptx);
      ++seed;
    };
    CAPTURE(seed);
    {
      sim::test::Device device("sm_80");
      const KernelSpec spec = attention_mask_blocks_spec(problem, forward);
      ready(spec, device);
      AttentionForwardParams p = {};
      fill(device, c, &p);
      WorkspaceLayout layout;
      const AttentionLists lists = forward_lists(problem, forward, shape, &layout);
      p.tiles = static_cast<int>(lists.tiles);
      check_blocks(
          c,
          run(spec, p, device, lists.lists, lists.stride, attention_forward_blocks(forward, shape)),
          p.tiles);
    }
    {
      sim::test::Device device("sm_80");
      const KernelSpec spec = attention_mask_queries_spec(problem, backward);
      WorkspaceLayout layout;
      const AttentionLists lists = *backward_lists(problem, backward, shape, &layout);
      if (lists.tiles == 0) continue;  // nothing to launch
      ready(spec, device);
      AttentionBackwardParams p = {};
      fill(device, c, &p);
      p.key_tiles = static_cast<int>(lists.tiles);
      check_queries(c, run(spec, p, device, lists.lists, lists.stride, lists.blocks), p.key_tiles);
    }
  }
}
