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
TokenRows AttentionDispatch::arrived(const Call& call, const DispatchOffsets& offsets,
                                     int64_t offset, bool keys, int64_t width) const {
  TokenRows out;
  out.data = call.workspace + offset;
  out.batch = offsets.batch, out.tokens = keys ? offsets.state->keys : offsets.state->queries;
  out.heads = keys ? offsets.kv_heads : offsets.heads, out.width = width;
  out.head_stride = width, out.batch_stride = out.heads * width;
  out.token_stride = out.batch * out.batch_stride;
  return out;
}

BlockInputs AttentionDispatch::inputs(const Call& call, const DispatchOffsets& offsets) const {
  const DispatchShardState& state = *offsets.state;
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  BlockInputs out;
  out.q = arrived(call, offsets, offsets.tensors[att::q].far, false, width);
  out.keys = {arrived(call, offsets, offsets.tensors[att::k].far, true, width),
              arrived(call, offsets, offsets.tensors[att::v].far, true, values)};
  out.ranges = state.ranges.data();
  out.range_count = static_cast<int64_t>(state.plan.ranges[call.shard->rank].size());
  if (names_documents()) out.range_sequences = state.documents.data();
  out.slopes = call.tensors[att::alibi_slopes].data;
  out.slopes_batch_stride = request_.alibi_rows ? offsets.heads : 0;
  return out;
}

Call AttentionDispatch::inner_call(const Call& call, const DispatchOffsets& offsets) const {
  Call out;
  out.stream = call.stream;
  out.workspace = call.workspace + offsets.inner;
  out.workspace_bytes = static_cast<size_t>(offsets.inner_bytes);
  return out;
}

Call AttentionDispatch::step_call(const Call& call, const DispatchOffsets& offsets) const {
  Call out = inner_call(call, offsets);
  steps_.put_forward(*steps_.first, inputs(call, offsets), step_out(call, offsets),
                     call.workspace + offsets.tensors[att::lse].dense, call, &out);
  return out;
}

Call AttentionDispatch::merge_call(const Call& call, const DispatchOffsets& offsets) const {
  Call out = inner_call(call, offsets);
  steps_.put_finish(
      step_out(call, offsets), call.workspace + offsets.tensors[att::lse].dense,
      arrived(call, offsets, offsets.tensors[att::out].far, false, request_.problem.value_dim),
      call, &out);
  return out;
}

Call AttentionDispatch::delta_call(const Call& call, const DispatchOffsets& offsets) const {
  const auto rows = [&](int tensor) {
    return arrived(call, offsets, offsets.tensors[tensor].far, false, request_.problem.value_dim);
  };
  const int64_t share = offsets.dsinks + call.shard->rank * offsets.padded_heads() * 4;
  char* const at = call.workspace;
  Call out = inner_call(call, offsets);
  steps_.put_delta({rows(att::out), rows(att::dout), at + offsets.tensors[att::lse].dense,
                    at + offsets.tensors[att::dlse].dense, at + offsets.delta, at + share},
                   call, &out);
  return out;
}

Call AttentionDispatch::gradient_call(const Call& call, const DispatchOffsets& offsets) const {
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  Call out = inner_call(call, offsets);
  steps_.put_gradients(*steps_.gradients_next, inputs(call, offsets),
                       {arrived(call, offsets, offsets.tensors[att::dout].far, false, values),
                        arrived(call, offsets, offsets.dq, false, width),
                        {arrived(call, offsets, offsets.dk, true, width),
                         arrived(call, offsets, offsets.dv, true, values)},
                        call.workspace + offsets.tensors[att::lse].dense,
                        call.workspace + offsets.delta},
                       call, &out);
  return out;
}

}  // namespace lathe
