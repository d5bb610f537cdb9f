// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "codegen/mods.h"
#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> attention_specs(const DeviceFacts& facts) {
  AttentionProblem whole;
  whole.forward = whole.backward = true;
  whole.mods = {{"mask_mod", "", ""}};
  AttentionProblem pages;
  pages.decode = pages.append = true;
  AttentionProblem latent = pages;
  latent.latent = true, latent.head_dim = 576, latent.value_dim = 512;
  AttentionProblem ranges;
  ranges.ranges = true;
  const KernelSpec first = kAttentionForwardPortable.candidates(whole, facts).front();
  const AttentionBackwardProblem gradients = {whole, {}};
  std::vector<KernelSpec> specs = {lse_merge_spec({}),
                                   attention_positions_spec(),
                                   attention_widen_spec(whole),
                                   attention_block_prepare_spec(whole),
                                   attention_block_finish_spec(whole),
                                   attention_append_spec(pages),
                                   attention_combine_spec(pages),
                                   mod_probe_spec(first, whole.mods.front())};
  // One of each implementation, with what goes before and behind it.
  for (const AttentionForwardStep* how : attention_forwards()) {
    const auto made = how->make(how->candidates(whole, facts).front(), whole, facts);
    specs.insert(specs.end(), {*made->kernel, *made->mask_blocks});
  }
  for (const AttentionBackwardStep* how : attention_backwards()) {
    const auto made = how->make(how->candidates(gradients, facts).front(), gradients, facts);
    specs.insert(specs.end(),
                 {*made->together, *made->mask_queries, *made->prepare, *made->finish});
  }
  for (const AttentionBlockStep* how : attention_blocks()) {
    specs.push_back(how->candidates(ranges, facts).front());
  }
  for (const AttentionBlockBackwardStep* how : attention_block_backwards()) {
    specs.push_back(how->candidates(ranges, facts).front());
  }
  AttentionProblem packed = pages;
  packed.ragged = packed.rotary = true;
  for (const AttentionDecodeStep* how : attention_decodes()) {
    const AttentionProblem& problem = how == &kAttentionDecodeRaggedSm90 ? packed : latent;
    const auto made =
        how->make(how->candidates({problem, {}, 16}, facts).front(), {problem, {}, 16}, facts);
    for (const KernelSlot* slot : made->slots()) specs.push_back(**slot);
  }
  specs.push_back(kAttentionDecodePortable.candidates({pages, {}, 16}, facts).front());
  // What a call of decoding has beside its pages.
  AttentionProblem served = pages;
  served.ragged = served.spread = served.rotary = true, served.narrow = kRowScales;
  AttentionProblem bytes = latent;
  bytes.ragged = true, bytes.narrow = kByteRows;
  for (const AttentionProblem& each : {served, bytes}) {
    specs.insert(specs.end(), {attention_append_spec(each), attention_combine_spec(each),
                               kAttentionDecodePortable.candidates({each, {}, 16}, facts).front()});
  }
  return specs;
}

const templates_test::AddSampleSpecs kSamples("attention", attention_specs);

}  // namespace
