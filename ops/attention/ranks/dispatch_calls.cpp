// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by dispatch hands the rows that have arrived to its steps, as their tensors.
#include "ops/attention/ranks/dispatch.h"
#include "ops/attention/step_schema.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

// Rows as they arrive: token after token, of all rows of the batch.
TokenRows AttentionDispatch::arrived(const Call& call, const DispatchLaid& laid, int64_t offset,
                                     bool keys, int64_t width) const {
  TokenRows out;
  out.data = call.workspace + offset;
  out.batch = laid.batch, out.tokens = keys ? laid.state->keys : laid.state->queries;
  out.heads = keys ? laid.kv_heads : laid.heads, out.width = width;
  out.head_stride = width, out.batch_stride = out.heads * width;
  out.token_stride = out.batch * out.batch_stride;
  return out;
}

BlockInputs AttentionDispatch::inputs(const Call& call, const DispatchLaid& laid) const {
  const DispatchShardState& state = *laid.state;
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  BlockInputs out;
  out.q = arrived(call, laid, laid.spots[att::q].far, false, width);
  out.keys = {arrived(call, laid, laid.spots[att::k].far, true, width),
              arrived(call, laid, laid.spots[att::v].far, true, values)};
  out.pairs = state.pairs.data();
  out.pair_count = static_cast<int64_t>(state.plan.pairs[call.shard->rank].size());
  if (names_documents()) out.pair_sequences = state.documents.data();
  out.slopes = call.tensors[att::alibi_slopes].data;
  out.slopes_batch_stride = request_.alibi_rows ? laid.heads : 0;
  return out;
}

Call AttentionDispatch::inner_call(const Call& call, const DispatchLaid& laid) const {
  Call out;
  out.stream = call.stream;
  out.workspace = call.workspace + laid.inner;
  out.workspace_bytes = static_cast<size_t>(laid.inner_bytes);
  return out;
}

Call AttentionDispatch::step_call(const Call& call, const DispatchLaid& laid) const {
  Call out = inner_call(call, laid);
  steps_.put_forward(*steps_.first, inputs(call, laid), step_out(call, laid),
                     call.workspace + laid.spots[att::lse].dense, call, &out);
  return out;
}

Call AttentionDispatch::merge_call(const Call& call, const DispatchLaid& laid) const {
  Call out = inner_call(call, laid);
  steps_.put_finish(
      step_out(call, laid), call.workspace + laid.spots[att::lse].dense,
      arrived(call, laid, laid.spots[att::out].far, false, request_.problem.value_dim), call, &out);
  return out;
}

Call AttentionDispatch::delta_call(const Call& call, const DispatchLaid& laid) const {
  const auto rows = [&](int tensor) {
    return arrived(call, laid, laid.spots[tensor].far, false, request_.problem.value_dim);
  };
  const int64_t share = laid.dsinks + call.shard->rank * laid.padded_heads() * 4;
  char* const at = call.workspace;
  Call out = inner_call(call, laid);
  steps_.put_delta({rows(att::out), rows(att::dout), at + laid.spots[att::lse].dense,
                    at + laid.spots[att::dlse].dense, at + laid.delta, at + share},
                   call, &out);
  return out;
}

Call AttentionDispatch::gradient_call(const Call& call, const DispatchLaid& laid) const {
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  Call out = inner_call(call, laid);
  steps_.put_gradients(
      *steps_.gradients_next, inputs(call, laid),
      {arrived(call, laid, laid.spots[att::dout].far, false, values),
       arrived(call, laid, laid.dq, false, width),
       {arrived(call, laid, laid.dk, true, width), arrived(call, laid, laid.dv, true, values)},
       call.workspace + laid.spots[att::lse].dense,
       call.workspace + laid.delta},
      call, &out);
  return out;
}

}  // namespace lathe
