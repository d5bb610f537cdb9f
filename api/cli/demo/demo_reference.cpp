// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes the expected results of the demo's problems: it gives their tensors and options to the
// definitions in reference/. The demo asks for no gates, norms and sigmoids inside KDA's kernels
// and for no rotary parts.
#include <cmath>

#include "api/cli/demo/demo_cases.h"
#include "api/cli/failure.h"
#include "reference/attention.h"
#include "reference/conv.h"
#include "reference/kda_backward.h"
#include "reference/kda_decode.h"
#include "reference/sparse_attention.h"

namespace lathe::cli {

Values values(const HostTensor& tensor) {
  Values out(element_count(tensor.spec.shape));
  for (size_t i = 0; i < out.size(); ++i) out[i] = element(tensor, static_cast<int64_t>(i));
  return out;
}

namespace {

Values values(const TensorMap& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? Values() : values(found->second);
}

double number(const Problem& problem, const char* option) {
  return std::stod(setting(problem, option));
}

// Returns an extent of a tensor; below 0 from its end.
int64_t extent(const TensorMap& inputs, const char* name, int64_t dim) {
  const std::vector<int64_t>& shape = inputs.at(name).spec.shape;
  return shape[dim < 0 ? shape.size() + dim : dim];
}

// Returns where sequences begin: at the given offsets, or with the rows of `tensor`, [B, T, ..].
std::vector<int64_t> begins(const TensorMap& inputs, const char* offsets, const char* tensor) {
  const auto found = inputs.find(offsets);
  if (found != inputs.end()) return integers(found->second);
  std::vector<int64_t> out = {0};
  for (int64_t b = 0; b < extent(inputs, tensor, 0); ++b) {
    out.push_back(out.back() + extent(inputs, tensor, 1));
  }
  return out;
}

ref::Conv conv_of(const Problem& problem, const TensorMap& inputs) {
  ref::Conv conv;
  conv.channels = extent(inputs, "weight", 0), conv.width = extent(inputs, "weight", 1);
  conv.silu = setting(problem, "activation") == "silu";
  conv.x = values(inputs, "x"), conv.weight = values(inputs, "weight");
  conv.bias = values(inputs, "bias"), conv.residual = values(inputs, "residual");
  conv.initial_state = values(inputs, "initial_state");
  conv.dy = values(inputs, "dy"), conv.dfinal_state = values(inputs, "dfinal_state");
  return conv;
}

Expected conv(const Problem& problem, const TensorMap& inputs) {
  ref::Conv conv = conv_of(problem, inputs);
  conv.begin = begins(inputs, "cu_seqlens", "x");
  const ref::ConvForward forward = ref::conv_forward(conv);
  Expected out = {{"y", forward.y}, {"final_state", forward.final_state}};
  if (conv.dy.empty()) return out;
  const ref::ConvBackward backward = ref::conv_backward(conv);
  out["dx"] = backward.dx, out["dweight"] = backward.dweight, out["dbias"] = backward.dbias;
  out["dresidual"] = backward.dresidual, out["dinitial_state"] = backward.dinitial_state;
  return out;
}

Expected conv_update(const Problem& problem, const TensorMap& inputs) {
  const ref::ConvStep step = ref::conv_update(conv_of(problem, inputs), values(inputs, "state"));
  return {{"y", step.y}, {"state", step.state}};
}

// Fills in all but the keys and where they begin, which may lie in pages.
ref::Attention queries_of(const Problem& problem, const TensorMap& inputs) {
  ref::Attention a;
  a.packed = inputs.count("cu_seqlens_q") > 0;
  a.heads = extent(inputs, "q", -2), a.head_dim = extent(inputs, "q", -1);
  a.begin_q = begins(inputs, "cu_seqlens_q", "q");
  const std::string scale = setting(problem, "softmax_scale");
  a.scale = scale == "D^-0.5" ? 1 / std::sqrt(static_cast<double>(a.head_dim)) : std::stod(scale);
  a.softcap = number(problem, "softcap"), a.causal = number(problem, "causal") != 0;
  a.window_left = static_cast<int64_t>(number(problem, "window_left"));
  a.window_right = static_cast<int64_t>(number(problem, "window_right"));
  a.q = values(inputs, "q"), a.dout = values(inputs, "dout");
  a.sinks = values(inputs, "sinks"), a.alibi_slopes = values(inputs, "alibi_slopes");
  return a;
}

Expected results_of(const ref::Attention& attention) {
  const ref::AttentionForward forward = ref::attention_forward(attention);
  Expected out = {{"out", forward.out}, {"lse", forward.lse}};
  if (attention.dout.empty()) return out;
  const ref::AttentionBackward backward = ref::attention_backward(attention, forward);
  out["dq"] = backward.dq, out["dk"] = backward.dk, out["dv"] = backward.dv;
  out["dsinks"] = backward.dsinks;
  return out;
}

Expected attention(const Problem& problem, const TensorMap& inputs) {
  ref::Attention a = queries_of(problem, inputs);
  a.kv_heads = extent(inputs, "k", -2), a.value_dim = extent(inputs, "v", -1);
  a.begin_k = begins(inputs, "cu_seqlens_k", "k");
  a.k = values(inputs, "k"), a.v = values(inputs, "v");
  return results_of(a);
}

// Returns the tokens of each sequence's pages one after another, from a cache [P, page, HK, ..].
Values unpaged(const TensorMap& inputs, const char* name) {
  const Values cache = values(inputs, name);
  const std::vector<int64_t> lengths = integers(inputs.at("cache_seqlens")),
                             table = integers(inputs.at("block_table"));
  const int64_t page = extent(inputs, name, 1), columns = extent(inputs, "block_table", 1);
  const int64_t row = extent(inputs, name, 2) * extent(inputs, name, 3);
  Values out;
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (int64_t t = 0; t < lengths[b]; ++t) {
      const int64_t block = table[b * columns + t / page];
      const auto from = cache.begin() + (block * page + t % page) * row;
      out.insert(out.end(), from, from + row);
    }
  }
  return out;
}

Expected decode(const Problem& problem, const TensorMap& inputs) {
  ref::Attention a = queries_of(problem, inputs);
  a.kv_heads = extent(inputs, "k_cache", 2), a.value_dim = extent(inputs, "v_cache", 3);
  a.begin_k = {0};
  for (const int64_t length : integers(inputs.at("cache_seqlens"))) {
    a.begin_k.push_back(a.begin_k.back() + length);
  }
  a.k = unpaged(inputs, "k_cache"), a.v = unpaged(inputs, "v_cache");
  return results_of(a);
}

Expected sparse(const Problem& problem, const TensorMap& inputs) {
  ref::SparseAttention a;
  a.packed = false, a.causal = setting(problem, "sparse_mode") == "3";
  a.heads = extent(inputs, "q", 2), a.kv_heads = extent(inputs, "k", 2);
  a.head_dim = extent(inputs, "q", 3), a.value_dim = extent(inputs, "v", 3);
  a.topk = extent(inputs, "indices", 3), a.scale = number(problem, "scale");
  a.begin_q = begins(inputs, "", "q"), a.end_k = begins(inputs, "", "k"), a.begin_k = a.end_k;
  a.end_k.erase(a.end_k.begin());
  a.q = values(inputs, "q"), a.k = values(inputs, "k"), a.v = values(inputs, "v");
  a.dout = values(inputs, "dout");
  for (const int64_t entry : integers(inputs.at("indices"))) {
    a.indices.push_back(static_cast<int32_t>(entry));
  }
  const ref::SparseForward forward = ref::sparse_forward(a);
  const ref::SparseBackward backward = ref::sparse_backward(a, forward);
  return {{"out", forward.out},
          {"softmax_max", forward.softmax_max},
          {"softmax_sum", forward.softmax_sum},
          {"lse", forward.lse},
          {"dq", backward.dq},
          {"dk", backward.dk},
          {"dv", backward.dv}};
}

Expected kda(const Problem&, const TensorMap& inputs) {
  ref::Kda a;
  a.heads = extent(inputs, "q", 2), a.key_dim = extent(inputs, "q", 3);
  a.value_heads = extent(inputs, "v", 2), a.value_dim = extent(inputs, "v", 3);
  a.begin = begins(inputs, "cu_seqlens", "q");
  a.scale = 1 / std::sqrt(static_cast<double>(a.key_dim));
  a.q = values(inputs, "q"), a.k = values(inputs, "k"), a.v = values(inputs, "v");
  a.g = values(inputs, "g"), a.beta = values(inputs, "beta");
  a.initial_state = values(inputs, "initial_state");
  a.d_o = values(inputs, "do"), a.dht = values(inputs, "dht");
  if (inputs.count("state_pool") > 0) {
    ref::KdaPool pool;
    pool.slots = extent(inputs, "state_pool", 0);
    pool.indices = integers(inputs.at("state_indices"));
    pool.states = values(inputs, "state_pool");
    const Values o = ref::kda_pool_forward(a, &pool);
    return {{"o", o}, {"state_pool", pool.states}};
  }
  const ref::KdaForward forward = ref::kda_forward(a);
  Expected out = {{"o", forward.o}, {"final_state", forward.final_state}};
  if (a.d_o.empty()) return out;
  const ref::KdaBackward backward = ref::kda_backward(a);
  out["dq"] = backward.dq, out["dk"] = backward.dk, out["dv"] = backward.dv;
  out["dg"] = backward.dg, out["dbeta"] = backward.dbeta;
  out["dinitial_state"] = backward.dinitial_state;
  return out;
}

Expected kda_decode(const Problem& problem, const TensorMap& inputs) {
  ref::KdaDecode a;
  a.kda.value_heads = extent(inputs, "g", 1), a.kda.key_dim = extent(inputs, "g", 2);
  a.kda.value_dim = extent(inputs, "norm_weight", 0);
  const int64_t values_of_heads = a.kda.value_heads * a.kda.value_dim;
  a.kda.heads = (extent(inputs, "qkv", 1) - values_of_heads) / (2 * a.kda.key_dim);
  for (int64_t b = 0; b <= extent(inputs, "qkv", 0); ++b) a.kda.begin.push_back(b);
  a.kda.scale = 1 / std::sqrt(static_cast<double>(a.kda.key_dim));
  a.kda.l2norm = setting(problem, "use_qk_l2norm_in_kernel") == "1";
  a.kda.g = values(inputs, "g"), a.kda.beta = values(inputs, "beta");
  a.pool.slots = extent(inputs, "state_pool", 0);
  a.pool.indices = integers(inputs.at("state_indices"));
  a.pool.states = values(inputs, "state_pool");
  a.width = extent(inputs, "conv_weight", 1), a.columns = extent(inputs, "conv_pool", 2);
  a.qkv = values(inputs, "qkv"), a.weight = values(inputs, "conv_weight");
  a.inputs = values(inputs, "conv_pool"), a.output_gate = values(inputs, "output_gate");
  a.norm_weight = values(inputs, "norm_weight");
  const Values o = ref::kda_decode(&a);
  return {{"o", o}, {"state_pool", a.pool.states}, {"conv_pool", a.inputs}};
}

}  // namespace

Expected reference(const Problem& problem, const TensorMap& inputs) {
  constexpr std::pair<const char*, Expected (*)(const Problem&, const TensorMap&)> kAll[] = {
      {"causal_conv1d", conv},
      {"causal_conv1d_update", conv_update},
      {"flash_attention", attention},
      {"flash_attention_decode", decode},
      {"sparse_flash_attention", sparse},
      {"kda", kda},
      {"kda_recurrent", kda},
      {"kda_decode", kda_decode}};
  for (const auto& [op, make] : kAll) {
    if (op == std::string(problem.op->name)) return make(problem, inputs);
  }
  fail("the demo has no reference for ", problem.op->name);
}

}  // namespace lathe::cli
