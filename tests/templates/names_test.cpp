// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One stem on both sides: a template with an entry has a spec of the same name, and vice versa.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "codegen/mods.h"
#include "codegen/templates.h"
#include "ops/attention/backward_kernels.h"
#include "ops/attention/block_kernels.h"
#include "ops/attention/decode_kernels.h"
#include "ops/conv/kernels.h"
#include "ops/kda/chunked_kernels.h"
#include "ops/kda/segments.h"
#include "ops/row_kernels.h"
#include "ops/sparse/backward_kernels.h"
#include "ops/sparse/kernels.h"

using namespace lathe;

namespace {

// Templates whose file "folder/stem.cuh" defines `void stem(`: a kernel's body.
std::set<std::string> template_stems() {
  std::set<std::string> stems;
  for (const TemplateFile& file : template_files()) {
    const std::string name = file.name;
    const size_t slash = name.rfind('/'), dot = name.rfind(".cuh");
    if (dot == std::string::npos) continue;
    const std::string stem = name.substr(slash + 1, dot - slash - 1);
    if (file.text.find("__device__ void " + stem + "(") != std::string_view::npos) {
      stems.insert(name);
    }
  }
  return stems;
}

}  // namespace

TEST_CASE("specs and templates have the same stems") {
  ConvProblem problem;
  problem.forward = problem.backward = problem.weight_grad = problem.update = problem.halo = true;
  const ConvKernels kernels = *conv_kernels(problem, *facts_of_arch("sm_80"), true);
  std::set<std::string> sources;
  for (const auto* spec :
       {&kernels.forward, &kernels.backward, &kernels.update, &kernels.weight_grad,
        &kernels.weight_grad_cast, &kernels.halo_pack, &kernels.halo_join, &kernels.halo_add}) {
    REQUIRE(spec->has_value());
    CHECK((*spec)->source == "conv/" + (*spec)->kernel + ".cuh");
    sources.insert((*spec)->source);
  }
  for (const ConvUpdate* update : conv_updates()) {
    const KernelSpec spec = update->candidates(problem, *facts_of_arch("sm_80")).front();
    CHECK(spec.source == "conv/" + spec.kernel + ".cuh");
    sources.insert(spec.source);
  }
  AttentionProblem forward;
  forward.forward = forward.backward = true;
  forward.mods = {{"mask_mod", "", ""}};
  const DeviceFacts facts = *facts_of_arch("sm_80");
  const AttentionKernels attention = *attention_kernels(forward, facts);
  const AttentionBackwardKernels backward =
      *attention_backward_kernels(forward, facts, {true, false});
  const KernelSlot probe = mod_probe_spec(*attention.forward, forward.mods.front());
  for (const auto* spec : {&attention.forward, &attention.mask_blocks, &backward.together,
                           &backward.mask_queries, &backward.prepare, &backward.finish, &probe}) {
    REQUIRE(spec->has_value());
    CHECK((*spec)->source == "attention/" + (*spec)->kernel + ".cuh");
    sources.insert((*spec)->source);
  }
  AttentionProblem ring;
  ring.positions = ring.forward = ring.backward = ring.deterministic = true;
  const AttentionBlockKernels block = *attention_block_kernels(ring, facts);
  for (const KernelSpec& spec : {*block.forward, *block.positions, *block.prepare, *block.backward,
                                 *block.finish, lse_merge_spec({})}) {
    CHECK(spec.source == "attention/" + spec.kernel + ".cuh");
    sources.insert(spec.source);
  }
  AttentionProblem decode;
  decode.decode = decode.append = true;
  const auto paged = *attention_decode_kernels(decode, *facts_of_arch("sm_80"), {});
  for (const KernelSpec& spec : {*paged.decode[0], *paged.append, *paged.combine}) {
    CHECK(spec.source == "attention/" + spec.kernel + ".cuh");
    sources.insert(spec.source);
  }
  KdaProblem recurrent;
  recurrent.recurrent = true;
  const KdaKernels kda = *kda_kernels(recurrent, *facts_of_arch("sm_80"));
  REQUIRE(kda.recurrent.has_value());
  CHECK(kda.recurrent->source == "kda/" + kda.recurrent->kernel + ".cuh");
  sources.insert(kda.recurrent->source);
  KdaProblem chunked;
  chunked.A_log = chunked.forward = chunked.backward = chunked.dA_log = true;
  const KdaChunkedKernels walks = *kda_chunked_kernels(chunked, facts);
  for (const auto* spec : {&walks.forward, &walks.scan, &walks.backward, &walks.finish}) {
    REQUIRE(spec->has_value());
    CHECK((*spec)->source == "kda/" + (*spec)->kernel + ".cuh");
    sources.insert((*spec)->source);
  }
  for (const KernelSpec& spec :
       {kda_summary_spec(*walks.scan, {}), kda_merge_spec(*walks.scan, {}),
        kda_compose_spec(*walks.scan), kda_forward_warmup_spec(*walks.forward)}) {
    CHECK(spec.source == "kda/" + spec.kernel + ".cuh");
    sources.insert(spec.source);
  }
  SparseProblem lists;
  lists.forward = lists.backward = lists.deterministic = true;
  const SparseKernels sparse = *sparse_kernels(lists, facts);
  const SparseBackwardKernels gradients = *sparse_backward_kernels(lists, facts);
  for (const KernelSpec& spec :
       {*sparse.forward, *sparse.combine, *gradients.prepare, *gradients.main, *gradients.ranges,
        *gradients.fill, *gradients.gather, *gradients.finish,
        sparse_join_spec(Dtype::bf16, Dtype::f32)}) {
    CHECK(spec.source == "sparse/" + spec.kernel + ".cuh");
    sources.insert(spec.source);
  }
  for (const KernelSpec& spec :
       {copy_rows_spec(RowIndex::none, 16), add_rows_spec(Dtype::f32, Dtype::f32),
        sum_parts_spec(Dtype::f32, Dtype::f32, 4), move_rows_spec(16),
        sum_rows_spec(Dtype::f32, Dtype::f32, true)}) {
    CHECK(spec.source == "rows/" + spec.kernel + ".cuh");
    sources.insert(spec.source);
  }
  CHECK(sources == template_stems());
}
