// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the step of flash_attention_decode and its implementations. A plan may hold several
// kernels, because the shapes of a call decide between them.
#pragma once

#include <memory>
#include <vector>

#include "ops/attention/decode/kernels.h"
#include "ops/attention/params.h"
#include "ops/step.h"
#include "templates/params/attention.h"

namespace lathe {

// The widths of latent attention: without a cache of values, these are columns of the keys.
inline constexpr int64_t kLatentWidth = 576, kLatentValueWidth = 512;

struct DecodeRequest {
  AttentionRequest attention;
  int64_t splits = 0;          // 0: chosen
  int64_t queries = kUnknown;  // as declared
  int64_t key_stride = 1, key_offset = 0;
};

struct AttentionDecodeCall {
  const DecodeRequest& request;
  const AttentionDecodeShape& shape;
  const AttentionDecodeParts& parts;
  const Call& call;
};
// Describe the pages of a call, its rotary embedding and the scales of its cache, if it has these.
AttentionPages attention_pages(const Call& call, const AttentionDecodeShape& shape);
AttentionRotary attention_rotary(const Call& call, const AttentionDecodeShape& shape);
AttentionScales attention_scales(const Call& call);
// Returns the strides of a cache: rows of bytes have one head.
AttentionStrides cache_strides(const AttentionProblem& problem, const Tensor& cache);

struct AttentionDecodeProblem : AttentionProblem {
  AttentionDecodeRows declared;
  int tile_rows = 64;  // that a portable kernel is to have
};

class AttentionDecode {
 public:
  explicit AttentionDecode(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~AttentionDecode() = default;

  // Returns the kernels in the order of a plan.
  virtual std::vector<KernelSlot*> slots() { return {&kernel}; }
  virtual int64_t launches() const { return 1; }
  const AttentionTiling& tiling() const { return kernel.numbers(); }
  // Says whether the kernel is the one for a call: the first that says so is taken.
  virtual bool takes(const AttentionDecodeShape& shape) const = 0;
  // Shares the tiles of a call out to blocks of threads: attention_decode_parts.
  virtual Result<AttentionDecodeParts> parts(const AttentionProblem& problem,
                                             const AttentionDecodeShape& shape,
                                             const AttentionSplitTable& chosen,
                                             int64_t side_by_side, int64_t wanted) const {
    return attention_decode_parts(problem, tiling(), shape, chosen, side_by_side, wanted);
  }
  virtual Status launch(const AttentionDecodeCall& of) const = 0;

  AttentionSlot kernel;

 protected:
  // Fills cleared parameters.
  void fill(const AttentionDecodeCall& of, AttentionDecodeParams* p) const;
};

using AttentionDecodeStep = Implementation<AttentionDecodeProblem, AttentionDecode>;
LATHE_STEP(AttentionDecodeStep, attention_decodes, kAttentionDecodeSm90, kAttentionDecodeRaggedSm90,
           kAttentionDecodePortable)

// Returns the kernels that calls of a problem may take, in the order in which they are asked; the
// last one takes every call. If the number of queries varies from call to call there are portable
// ones for a single query and for many.
Result<std::vector<std::unique_ptr<AttentionDecode>>> make_attention_decodes(
    AttentionDecodeProblem problem, const DeviceFacts& facts);

}  // namespace lathe
