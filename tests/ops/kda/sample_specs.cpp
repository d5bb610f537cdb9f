// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "ops/kda/chunked_kernels.h"
#include "ops/kda/decode/kernels.h"
#include "ops/kda/kernels.h"
#include "ops/kda/segments.h"
#include "templates/params/kda.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> kda_specs(const DeviceFacts& facts) {
  KdaProblem chunked;
  chunked.A_log = chunked.forward = chunked.backward = chunked.dA_log = true;
  chunked.segmented = chunked.ranks = true;
  std::vector<KernelSpec> specs = {*kda_recurrent_kernel({}, facts), kda_pieces_spec(chunked)};
  auto kernels = kda_chunked_kernels(chunked, facts);
  for (const KernelSlot* slot : kernels->slots()) specs.push_back(**slot);
  KdaProblem records;
  records.states = kKdaStatesRings;
  const KernelSpec recurrent = *kda_recurrent_kernel(records, facts);
  specs.insert(specs.end(), {recurrent, kda_ring_append_spec(recurrent)});
  KdaDecodeProblem decode;
  specs.push_back(*kda_decode_kernel(decode, facts));
  decode.kda = records, decode.tokens = kKdaDecodeMostTokens;
  decode.norm = decode.output_gate = true;
  specs.push_back(*kda_decode_kernel(decode, facts));
  records.pooled = Dtype::f16;
  specs.push_back(*kda_recurrent_kernel(records, facts));
  // One configuration of every implementation.
  KdaProblem early = chunked;
  early.warmup = true;
  specs.push_back(kda_forward_spec(early, {}));
  for (const auto* each : kda_forwards()) {
    specs.push_back(each->candidates(chunked, facts).front());
  }
  for (const auto* each : kda_clusters()) {
    specs.push_back(each->candidates(chunked, facts).front());
  }
  for (const auto* each : kda_summaries()) {
    specs.push_back(each->candidates({chunked, {}, {}}, facts).front());
  }
  for (const auto* each : kda_backs()) {
    specs.push_back(each->candidates({chunked, {}, false}, facts).front());
  }
  for (const auto* each : kda_gradients()) {
    specs.push_back(each->candidates(chunked, facts).front());
  }
  // The same over a pool.
  KdaProblem pooled = chunked;
  pooled.packed = pooled.initial_state = pooled.final_state = true;
  pooled.pool = pooled.checkpoints = true;
  pooled.pooled = Dtype::bf16;
  pooled.backward = pooled.ranks = false;
  for (const auto* each : kda_forwards()) specs.push_back(each->candidates(pooled, facts).front());
  for (const auto* each : kda_clusters()) specs.push_back(each->candidates(pooled, facts).front());
  for (const auto* each : kda_summaries()) {
    specs.push_back(each->candidates({pooled, {.states = true}, {}}, facts).front());
  }
  return specs;
}

const templates_test::AddSampleSpecs kSamples("kda", kda_specs);

}  // namespace
