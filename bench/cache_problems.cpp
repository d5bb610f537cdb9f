// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/cache_problems.h"

#include <stdexcept>

namespace bench {
namespace {

using Tensors = std::vector<StartProblem::Tensor>;

void append(Tensors* to, const Tensors& more) { to->insert(to->end(), more.begin(), more.end()); }

StartProblem conv(lathe_dtype dtype, bool backward) {
  Tensors tensors = {{"x", dtype, {-1, -1, 512}},
                     {"weight", dtype, {512, 4}},
                     {"bias", dtype, {512}},
                     {"y", dtype, {-1, -1, 512}}};
  if (backward) {
    append(&tensors, {{"dy", dtype, {-1, -1, 512}},
                      {"dx", dtype, {-1, -1, 512}},
                      {"dweight", dtype, {512, 4}},
                      {"dbias", dtype, {512}}});
  }
  return {"causal_conv1d", tensors, {{"activation", "silu"}}};
}

StartProblem conv_update(lathe_dtype dtype) {
  return {"causal_conv1d_update",
          {{"x", dtype, {-1, 512}},
           {"weight", dtype, {512, 4}},
           {"state", dtype, {-1, 512, 4}},
           {"y", dtype, {-1, 512}}},
          {}};
}

StartProblem attention(lathe_dtype dtype, int64_t kv_heads, bool backward) {
  Tensors tensors = {{"lse", LATHE_F32, {-1, 8, -1}}};
  for (const char* name : {"q", "out"}) tensors.push_back({name, dtype, {-1, -1, 8, 64}});
  for (const char* name : {"k", "v"}) tensors.push_back({name, dtype, {-1, -1, kv_heads, 64}});
  if (backward) {
    for (const char* name : {"dout", "dq"}) tensors.push_back({name, dtype, {-1, -1, 8, 64}});
    for (const char* name : {"dk", "dv"}) tensors.push_back({name, dtype, {-1, -1, kv_heads, 64}});
  }
  return {"flash_attention", tensors, {{"causal", "1"}}};
}

StartProblem decode(lathe_dtype dtype) {
  return {"flash_attention_decode",
          {{"q", dtype, {-1, 1, 8, 64}},
           {"k_cache", dtype, {-1, 16, 2, 64}},
           {"v_cache", dtype, {-1, 16, 2, 64}},
           {"k_new", dtype, {-1, 1, 2, 64}},
           {"v_new", dtype, {-1, 1, 2, 64}},
           {"block_table", LATHE_I32, {-1, -1}},
           {"cache_seqlens", LATHE_I32, {-1}},
           {"out", dtype, {-1, 1, 8, 64}},
           {"lse", LATHE_F32, {-1, 8, 1}}},
          {{"causal", "1"}}};
}

StartProblem sparse(lathe_dtype dtype) {
  Tensors tensors = {{"indices", LATHE_I32, {-1, -1, 1, -1}}, {"lse", LATHE_F32, {-1, 16, -1}}};
  for (const char* name : {"q", "out", "dout", "dq"})
    tensors.push_back({name, dtype, {-1, -1, 16, 64}});
  for (const char* name : {"k", "v", "dk", "dv"}) tensors.push_back({name, dtype, {-1, -1, 1, 64}});
  return {"sparse_flash_attention", tensors, {{"scale", "0.125"}, {"sparse_mode", "3"}}};
}

StartProblem kda(lathe_dtype dtype, bool backward) {
  Tensors tensors = {{"beta", dtype, {-1, -1, 8}}};
  for (const char* name : {"q", "k", "v", "g", "o"})
    tensors.push_back({name, dtype, {-1, -1, 8, 64}});
  if (backward) {
    tensors.push_back({"dbeta", dtype, {-1, -1, 8}});
    for (const char* name : {"do", "dq", "dk", "dv", "dg"})
      tensors.push_back({name, dtype, {-1, -1, 8, 64}});
  }
  return {"kda", tensors, {{"use_qk_l2norm_in_kernel", "1"}}};
}

StartProblem kda_recurrent(lathe_dtype dtype) {
  Tensors tensors = {{"beta", dtype, {-1, -1, 8}},
                     {"state_pool", LATHE_F32, {-1, 8, 64, 64}},
                     {"state_indices", LATHE_I32, {-1}}};
  for (const char* name : {"q", "k", "v", "g", "o"})
    tensors.push_back({name, dtype, {-1, -1, 8, 64}});
  return {"kda_recurrent", tensors, {}};
}

}  // namespace

apitest::Problem StartProblem::declare() const {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, op));
  apitest::Problem owner(problem);
  for (const Tensor& tensor : tensors) {
    API(lathe_problem_tensor(problem, tensor.name, tensor.dtype,
                             static_cast<int>(tensor.shape.size()), tensor.shape.data()));
  }
  for (const Option& option : options)
    API(lathe_problem_set_string(problem, option.name, option.value));
  return owner;
}

std::vector<StartProblem> start_problems(const std::string& which) {
  if (which == "one") return {conv(LATHE_BF16, false)};
  if (which == "conv") return {conv(LATHE_BF16, true)};
  if (which == "attention") return {attention(LATHE_BF16, 8, false)};
  if (which == "attention_grouped") return {attention(LATHE_BF16, 2, false)};
  if (which == "kda") return {kda(LATHE_BF16, false)};
  if (which != "all")
    throw std::runtime_error("problems '" + which +
                             "': all, one, conv, attention, attention_grouped, kda");
  std::vector<StartProblem> out;
  for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F16, LATHE_F32}) {
    out.push_back(conv(dtype, true));
    out.push_back(conv_update(dtype));
    out.push_back(kda_recurrent(dtype));
    if (dtype == LATHE_F32) continue;
    out.push_back(kda(dtype, true));
    out.push_back(attention(dtype, 2, true));
    out.push_back(decode(dtype));
    out.push_back(sparse(dtype));
  }
  return out;
}

}  // namespace bench
