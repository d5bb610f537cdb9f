// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// From a call of flash_attention to the parameters of its kernels.
#pragma once

#include "ops/attention/run.h"
#include "ops/heads.h"
#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

namespace lathe {

AttentionForwardParams attention_forward_params(const AttentionRequest& request,
                                                const KernelSpec& spec, const AttentionShape& shape,
                                                const Call& call);

// One call of the backward, with the place of its workspace.
struct AttentionBackwardCall {
  const AttentionRequest& request;
  const AttentionShape& shape;
  const AttentionBackwardLaunch& launch;
  const AttentionBackwardWorkspace& workspace;
  const Call& call;
};
AttentionBackwardPrepareParams attention_prepare_params(const AttentionBackwardCall& of);
AttentionBackwardParams attention_backward_params(const AttentionBackwardCall& of);
AttentionBackwardFinishParams attention_finish_params(const AttentionBackwardCall& of);

}  // namespace lathe
