// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the demo's problems, small enough for the simulator, and compares results.
#include "api/cli/demo/demo_cases.h"

#include <algorithm>
#include <cmath>

#include "api/cli/inputs/made_up.h"
#include "api/cli/options.h"

namespace lathe::cli {
namespace {

// A problem in the words of the command line. `values`: those of integers that are not made up.
struct DemoLine {
  const char *op, *title, *tensors, *set, *values = "";
  int ranks = 0;
  bool known = false;
};

constexpr const char* kPacked =
    "x=f16:1,103,64 weight=f16:64,4 bias=f16:64 residual=f16:1,103,64 initial_state=f16:5,64,4 "
    "dy=f16:1,103,64 dfinal_state=f16:5,64,4 cu_seqlens=i32:6";
constexpr const char* kPackedSet = "activation=silu output_final_state=1";
constexpr const char* kPackedValues = "cu_seqlens=0,40,40,41,43,103";

constexpr DemoLine kLines[] = {
    {"causal_conv1d", "bf16, silu, bias",
     "x=bf16:2,96,128 weight=bf16:128,4 bias=bf16:128 dy=bf16:2,96,128", "activation=silu"},
    {"causal_conv1d", "the same with 3 times the tokens",
     "x=bf16:2,288,128 weight=bf16:128,4 bias=bf16:128 dy=bf16:2,288,128", "activation=silu", "", 0,
     true},
    {"causal_conv1d", "f32, states and their gradients, odd D",
     "x=f32:2,50,51 weight=f32:51,3 initial_state=f32:2,51,3 dy=f32:2,50,51 "
     "dfinal_state=f32:2,51,3",
     "output_final_state=1"},
    {"causal_conv1d", "f16, 5 packed sequences, residual, states", kPacked, kPackedSet,
     kPackedValues},
    {"causal_conv1d", "the same split over 3 ranks", kPacked, kPackedSet, kPackedValues, 3},
    {"causal_conv1d_update", "bf16, one token for 16 sequences",
     "x=bf16:16,256 state=bf16:16,256,4 weight=bf16:256,4 bias=bf16:256", "activation=silu"},
    {"flash_attention", "bf16, causal, 2 query heads a key head, sinks",
     "q=bf16:1,100,4,64 k=bf16:1,100,2,64 v=bf16:1,100,2,64 sinks=f32:4 dout=bf16:1,100,4,64",
     "causal=1"},
    {"flash_attention", "the same with 3 times the tokens",
     "q=bf16:1,300,4,64 k=bf16:1,300,2,64 v=bf16:1,300,2,64 sinks=f32:4 dout=bf16:1,300,4,64",
     "causal=1", "", 0, true},
    // Sequences of 30 queries and 50 keys, 0 and 4, 70 and 70.
    {"flash_attention", "f16, 3 packed sequences, window, softcap, ALiBi",
     "q=f16:100,2,40 k=f16:124,2,40 v=f16:124,2,64 alibi_slopes=f32:2 dout=f16:100,2,64 "
     "cu_seqlens_q=i32:4 cu_seqlens_k=i32:4",
     "window_left=24 window_right=5 softcap=8",
     "cu_seqlens_q=0,30,30,100 cu_seqlens_k=0,50,54,124"},
    {"flash_attention_decode", "bf16, causal, 2 queries over pages of 16 keys",
     "q=bf16:2,2,4,64 k_cache=bf16:7,16,2,64 v_cache=bf16:7,16,2,64 block_table=i32:2,3 "
     "cache_seqlens=i32:2",
     "causal=1", "block_table=5,1,3,0,2,6 cache_seqlens=41,20"},
    {"sparse_flash_attention", "bf16, causal, lists of 24 keys",
     "q=bf16:1,40,4,64 k=bf16:1,60,1,64 v=bf16:1,60,1,64 dout=bf16:1,40,4,64 "
     "indices=i32:1,40,1,24",
     "scale=0.125 sparse_mode=3"},
    {"kda", "bf16, 2 value heads a key head, 3 packed sequences, states",
     "q=bf16:1,150,1,64 k=bf16:1,150,1,64 v=bf16:1,150,2,64 g=f32:1,150,2,64 beta=bf16:1,150,2 "
     "initial_state=f32:3,2,64,64 do=bf16:1,150,2,64 dht=f32:3,2,64,64 cu_seqlens=i32:4",
     "output_final_state=1", "cu_seqlens=0,70,71,150"},
    {"kda_recurrent", "bf16, one token for 3 sequences, in place in a pool",
     "q=bf16:3,1,1,64 k=bf16:3,1,1,64 v=bf16:3,1,2,64 g=f32:3,1,2,64 beta=bf16:3,1,2 "
     "state_pool=f32:5,2,64,64 state_indices=i32:3",
     "", "state_indices=4,0,2"},
    {"kda_decode", "bf16, a layer's step for 3 sequences: convolution, recurrence, gated norm",
     "qkv=bf16:3,256 conv_weight=bf16:256,4 conv_pool=bf16:5,256,3 g=f32:3,2,64 beta=bf16:3,2 "
     "state_pool=f32:5,2,64,64 state_indices=i32:3 output_gate=bf16:3,2,64 norm_weight=f32:64",
     "use_qk_l2norm_in_kernel=1", "state_indices=4,0,2"},
};

std::vector<std::string> words(const char* text) {
  return *text == '\0' ? std::vector<std::string>() : split(text, ' ');
}

DemoCase demo_case(const DemoLine& line) {
  Specs specs;
  for (const std::string& text : words(line.tensors)) specs.insert(parse_tensor(text));
  Problem problem = make_problem(find_operator(line.op), parse_settings(words(line.set)), specs);
  TensorMap inputs = noise_inputs(problem, 1 + static_cast<uint64_t>(&line - kLines));
  for (const auto& [name, values] : parse_settings(words(line.values))) {
    int64_t i = 0;
    for (const std::string& value : split(values, ',')) {
      set_element(&inputs.at(name), i++, std::stod(value));
    }
  }
  // Some entries of a list name a key twice, none, or one behind the row.
  const auto lists = inputs.find("indices");
  for (int64_t i = 0; lists != inputs.end() && i < element_count(lists->second.spec.shape); ++i) {
    set_element(&lists->second, i, i % 7 == 6 ? -1 : static_cast<double>(i * 37 % 11 * i % 60));
  }
  return {line.title, std::move(problem), std::move(inputs), line.ranks, line.known};
}

double bound_of(const Problem& problem, const std::string& output) {
  const bool copied = problem.inputs.count("x") > 0;  // a convolution keeps what it was given
  if (output == "state" || output == "conv_pool" || output == "dresidual" ||
      (copied && output == "final_state"))
    return 0;
  if (output == "lse") return 1e-5;
  const auto& inputs = problem.inputs;
  const char* first = copied ? "x" : inputs.count("q") > 0 ? "q" : "qkv";
  switch (inputs.at(first).dtype) {
    case LATHE_F16:
      return 3e-3;
    case LATHE_BF16:
      return 1e-2;
    default:
      return 1e-3;
  }
}

double relative_rms(const HostTensor& actual, const Values& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = element(actual, static_cast<int64_t>(i)) - expected[i];
    error += difference * difference;
    norm += expected[i] * expected[i];
  }
  if (error == 0) return 0;
  return norm == 0 ? INFINITY : std::sqrt(error / norm);
}

}  // namespace

std::vector<DemoCase> demo_cases() {
  std::vector<DemoCase> out;
  for (const DemoLine& line : kLines) out.push_back(demo_case(line));
  return out;
}

Verdict verdict_of(const std::string& output, const HostTensor& actual, const Values& expected,
                   double bound) {
  const bool same_size = static_cast<int64_t>(expected.size()) == element_count(actual.spec.shape);
  const double error = same_size ? relative_rms(actual, expected) : INFINITY;
  // Not "!(error > bound)": a NaN must not pass.
  return {output, error, bound, error <= bound};
}

std::vector<Verdict> compare(const Problem& problem, const TensorMap& outputs,
                             const Expected& expected) {
  std::vector<Verdict> out;
  for (const auto& [name, tensor] : outputs) {
    const auto found = expected.find(name);
    out.push_back(verdict_of(name, tensor, found == expected.end() ? Values() : found->second,
                             bound_of(problem, name)));
  }
  return out;
}

const Verdict& worst_of(const std::vector<Verdict>& verdicts) {
  const auto share = [](const Verdict& verdict) {
    if (!verdict.good) return HUGE_VAL;
    return verdict.bound == 0 ? 0 : verdict.error / verdict.bound;
  };
  return *std::max_element(verdicts.begin(), verdicts.end(),
                           [&](const Verdict& a, const Verdict& b) { return share(a) < share(b); });
}

}  // namespace lathe::cli
