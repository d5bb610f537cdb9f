// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "codegen/mods.h"
#include "ops/attention/backward/kernels.h"
#include "ops/attention/block/kernels.h"
#include "ops/attention/decode/kernels.h"
#include "ops/attention/sm90/backward_kernels.h"
#include "ops/attention/sm90/block_kernels.h"
#include "ops/attention/sm90/decode.h"
#include "ops/attention/sm90/kernels.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> attention_specs(const DeviceFacts& facts) {
  AttentionProblem whole;
  whole.forward = whole.backward = true;
  whole.mods = {{"mask_mod", "", ""}};
  const AttentionKernels forward = *attention_kernels(whole, facts);
  const AttentionBackwardKernels backward =
      *attention_backward_kernels(whole, facts, {true, false});
  AttentionProblem ring;
  ring.positions = ring.forward = ring.backward = ring.deterministic = true;
  const AttentionBlockKernels block = *attention_block_kernels(ring, facts);
  AttentionProblem ranges;
  ranges.ranges = true;
  AttentionProblem pages;
  pages.decode = pages.append = true;
  const auto paged = *attention_decode_kernels(pages, facts, {});
  pages.latent = true, pages.head_dim = 576, pages.value_dim = 512;
  const auto latent = *attention_decode_kernels(pages, facts, {});
  return {*forward.forward,
          *forward.mask_blocks,
          *backward.together,
          *backward.mask_queries,
          *backward.prepare,
          *backward.finish,
          *block.forward,
          *block.positions,
          *block.prepare,
          *block.backward,
          *block.finish,
          *paged.decode[0],
          *paged.append,
          *paged.combine,
          *latent.decode[0],
          attention_warpgroups_spec({}),
          attention_backward_warpgroups_spec({}, false),
          attention_backward_warpgroups_finish_spec(attention_backward_warpgroups_spec({}, false)),
          attention_block_warpgroups_spec(ranges),
          attention_block_backward_warpgroups_spec(ranges),
          attention_decode_warpgroups_spec(pages),
          lse_merge_spec({}),
          mod_probe_spec(*forward.forward, whole.mods.front())};
}

const templates_test::AddSampleSpecs kSamples("attention", attention_specs);

}  // namespace
