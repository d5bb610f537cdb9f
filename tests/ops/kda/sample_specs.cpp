// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sample_specs.h"

#include "ops/kda/chunked_kernels.h"
#include "ops/kda/forward_warpgroups.h"
#include "ops/kda/kernels.h"
#include "ops/kda/segments.h"

using namespace lathe;

namespace {

std::vector<KernelSpec> kda_specs(const DeviceFacts& facts) {
  KdaProblem chunked;
  chunked.A_log = chunked.forward = chunked.backward = chunked.dA_log = true;
  const KdaChunkedKernels walks = *kda_chunked_kernels(chunked, facts);
  const KernelSpec summary = kda_summary_spec(*walks.scan, {});
  return {*kda_recurrent_kernel({}, facts),
          kda_forward_warpgroups_spec(chunked, *walks.forward),
          kda_summary_warpgroups_spec(chunked, summary),
          *walks.forward,
          *walks.scan,
          *walks.backward,
          *walks.finish,
          summary,
          kda_merge_spec(*walks.scan, {}),
          kda_compose_spec(*walks.scan),
          kda_pieces_spec(*walks.scan),
          kda_forward_warmup_spec(*walks.forward)};
}

const templates_test::AddSampleSpecs kSamples("kda", kda_specs);

}  // namespace
