// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What attention by dispatch hands to its parts: the rows that have arrived, as their tensors.
#include "ops/attention/ranks/dispatch.h"
#include "ops/attention/step_schema.h"

namespace lathe {
namespace {

namespace att = attention;
namespace blk = attention_block;
namespace bwd = attention_block_bwd;
namespace del = attention_delta;
namespace mrg = lse_merge;

// Rows as they arrive: token after token, of all rows of the batch; numbers of rows lie apart.
struct ArrivedRows {
  const Part& part;
  char* workspace;
  int64_t batch;

  void operator()(Call* call, int tensor, int64_t offset, int64_t tokens, int64_t heads,
                  int64_t width) const {
    part.put(call, tensor, workspace + offset, {batch, tokens, heads, width},
             {heads * width, batch * heads * width, width, 1});
  }
  void operator()(Call* call, int tensor, int64_t offset, int64_t tokens, int64_t heads) const {
    part.put(call, tensor, workspace + offset, {batch, heads, tokens});
  }
};

}  // namespace

void AttentionDispatch::put_inputs(const Part& part, const Call& call, const DispatchLaid& laid,
                                   Call* out) const {
  // Of a step and of its gradients the inputs have the same names at other places.
  struct Names {
    int q, k, v, pairs, pair_batch, slopes, capture;
  };
  const Names to =
      &part == step_.get()
          ? Names{blk::q,        blk::k, blk::v, blk::pairs, blk::pair_batch, blk::alibi_slopes,
                  blk::capture_0}
          : Names{bwd::q,        bwd::k, bwd::v, bwd::pairs, bwd::pair_batch, bwd::alibi_slopes,
                  bwd::capture_0};
  const DispatchPrepared& prepared = *laid.prepared;
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  const ArrivedRows put{part, call.workspace, laid.batch};
  put(out, to.q, laid.spots[att::q].far, prepared.queries, laid.heads, width);
  put(out, to.k, laid.spots[att::k].far, prepared.keys, laid.kv_heads, width);
  put(out, to.v, laid.spots[att::v].far, prepared.keys, laid.kv_heads, values);
  const auto pairs = static_cast<int64_t>(prepared.plan.pairs[call.shard->rank].size());
  part.put(out, to.pairs, prepared.pairs.data(), {pairs, 7});
  if (names_documents()) part.put(out, to.pair_batch, prepared.documents.data(), {pairs});
  for (size_t i = 0; i < request_.captured.size(); ++i) {
    if (request_.captured[i] < 0) continue;
    const Tensor& capture = call.tensors[request_.captured[i]];
    part.put(out, to.capture + static_cast<int>(i), capture.data, {capture.extent[0]});
  }
  if (!request_.problem.alibi) return;
  const void* slopes = call.tensors[att::alibi_slopes].data;
  if (request_.alibi_rows) {
    part.put(out, to.slopes, slopes, {laid.batch, laid.heads});
  } else {
    part.put(out, to.slopes, slopes, {laid.heads});
  }
}

Call AttentionDispatch::step_call(const Call& call, const DispatchLaid& laid) const {
  const int64_t rows = laid.prepared->queries;
  Call out;
  put_inputs(*step_, call, laid, &out);
  const ArrivedRows put{*step_, call.workspace, laid.batch};
  put(&out, blk::out, out_of_step(laid), rows, laid.heads, request_.problem.value_dim);
  put(&out, blk::lse, laid.spots[att::lse].dense, rows, laid.heads);
  return out;
}

Call AttentionDispatch::merge_call(const Call& call, const DispatchLaid& laid) const {
  const int64_t rows = laid.prepared->queries, values = request_.problem.value_dim;
  Call out;
  const ArrivedRows put{*merge_, call.workspace, laid.batch};
  put(&out, mrg::out, out_of_step(laid), rows, laid.heads, values);
  put(&out, mrg::lse, laid.spots[att::lse].dense, rows, laid.heads);
  if (request_.problem.sinks) {
    merge_->put(&out, mrg::sinks, call.tensors[att::sinks].data, {laid.heads});
  }
  if (rounds()) put(&out, mrg::rounded, laid.spots[att::out].far, rows, laid.heads, values);
  return out;
}

Call AttentionDispatch::delta_call(const Call& call, const DispatchLaid& laid) const {
  const int64_t rows = laid.prepared->queries, values = request_.problem.value_dim;
  Call out;
  const ArrivedRows put{*delta_, call.workspace, laid.batch};
  put(&out, del::out, laid.spots[att::out].far, rows, laid.heads, values);
  put(&out, del::dout, laid.spots[att::dout].far, rows, laid.heads, values);
  put(&out, del::lse, laid.spots[att::lse].dense, rows, laid.heads);
  put(&out, del::delta, laid.delta, rows, laid.heads);
  if (request_.problem.dlse) put(&out, del::dlse, laid.spots[att::dlse].dense, rows, laid.heads);
  if (request_.problem.dsinks) {
    const int64_t share = laid.dsinks + call.shard->rank * laid.padded_heads() * 4;
    delta_->put(&out, del::sinks, call.tensors[att::sinks].data, {laid.heads});
    delta_->put(&out, del::dsinks, call.workspace + share, {laid.heads});
  }
  return out;
}

Call AttentionDispatch::gradient_call(const Call& call, const DispatchLaid& laid) const {
  const DispatchPrepared& prepared = *laid.prepared;
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  Call out;
  put_inputs(*gradient_, call, laid, &out);
  const ArrivedRows put{*gradient_, call.workspace, laid.batch};
  put(&out, bwd::dout, laid.spots[att::dout].far, prepared.queries, laid.heads, values);
  put(&out, bwd::lse, laid.spots[att::lse].dense, prepared.queries, laid.heads);
  put(&out, bwd::delta, laid.delta, prepared.queries, laid.heads);
  put(&out, bwd::dq, laid.dq, prepared.queries, laid.heads, width);
  put(&out, bwd::dk, laid.dk, prepared.keys, laid.kv_heads, width);
  put(&out, bwd::dv, laid.dv, prepared.keys, laid.kv_heads, values);
  return out;
}

}  // namespace lathe
