// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda where counts are large: rows more than 2^31 elements apart, more sequences than a grid's
// second dimension could hold, and offsets that change from call to call without a new plan.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/api/kda_call.h"
#include "tests/harness/far_memory.h"
#include "tests/numbers.h"

namespace {

using namespace apitest;
using ref::Array;

lathe_context* context() {
  static const Context made = make_context();
  return made.get();
}

constexpr int64_t k2to31 = int64_t{1} << 31;

// A [B, T, heads, width] bf16 view whose batch rows and tokens lie far apart.
class FarTensor {
 public:
  FarTensor(int64_t batch, int64_t tokens, int64_t heads, int64_t width, int64_t token_stride,
            int64_t batch_stride)
      : shape_{batch, tokens, heads, width},
        strides_{batch_stride, token_stride, width, 1},
        memory_(context(), static_cast<size_t>(2 * ((batch - 1) * batch_stride +
                                                    (tokens - 1) * token_stride + heads * width))) {
    dl_.data = memory_.data();
    dl_.device = {kDLCUDA, 0};
    dl_.ndim = 4;
    dl_.dtype = {kDLBfloat, 16, 1};
    dl_.shape = shape_, dl_.strides = strides_;
  }
  const DLTensor* dl() const { return &dl_; }
  void upload(const Array& values) {
    size_t at = 0;
    for_rows([&](char* row, size_t count) {
      std::vector<uint16_t> bits(count);
      for (auto& each : bits) each = numbers::to_bf16(static_cast<float>(values[at++]));
      API(lathe_copy_to_device(context(), row, bits.data(), 2 * count, nullptr));
    });
  }
  Array download() const {
    Array values;
    for_rows([&](const char* row, size_t count) {
      std::vector<uint16_t> bits(count);
      API(lathe_copy_to_host(context(), bits.data(), row, 2 * count, nullptr));
      for (const auto& each : bits) values.push_back(numbers::decode(LATHE_BF16, &each));
    });
    return values;
  }

 private:
  template <typename Work>
  void for_rows(Work work) const {
    for (int64_t b = 0; b < shape_[0]; ++b) {
      for (int64_t t = 0; t < shape_[1]; ++t) {
        work(memory_.data() + 2 * (b * strides_[0] + t * strides_[1]),
             static_cast<size_t>(shape_[2] * shape_[3]));
      }
    }
  }

  int64_t shape_[4], strides_[4];
  FarMemory memory_;
  DLTensor dl_{};
};

KdaCase small() {
  KdaCase kda;
  kda.heads = 2, kda.group = 1;
  kda.key_dim = 16, kda.value_dim = 8;
  kda.gate_dtype = LATHE_BF16;
  kda.l2norm = true;
  kda.states = KdaCase::none;
  kda.backward = true;
  kda.gradients = "dq,dk,dv,dg";
  return kda;
}

void check_far(int64_t batch, int64_t tokens, int64_t token_stride, int64_t batch_stride) {
  KdaCase kda = small();
  kda.batch = batch, kda.tokens = tokens;
  INFO("token stride " << token_stride << ", batch stride " << batch_stride);
  const KdaInputs inputs = make_kda_inputs(kda);
  std::map<std::string, FarTensor> far;
  const std::map<std::string, const Array*> given = {{"q", &inputs.kda.q},
                                                     {"k", &inputs.kda.k},
                                                     {"v", &inputs.kda.v},
                                                     {"g", &inputs.kda.g},
                                                     {"do", &inputs.kda.d_o}};
  KdaCall call = make_kda_call(context(), kda, inputs);
  for (const char* name : {"q", "k", "v", "g", "do", "o", "dq", "dk", "dv", "dg"}) {
    const std::string tensor = name;
    const bool value = tensor.ends_with("v") || tensor.ends_with("o");
    const auto [at, added] =
        far.try_emplace(tensor, batch, tokens, kda.heads, value ? kda.value_dim : kda.key_dim,
                        token_stride, batch_stride);
    if (given.contains(tensor)) at->second.upload(*given.at(tensor));
    call.replace(tensor, at->second.dl());
  }
  call.run();
  KdaValues actual = {{"o", far.at("o").download()}};
  for (const char* name : {"dq", "dk", "dv", "dg"}) actual[name] = far.at(name).download();
  check_kda(kda, inputs, actual);
}

TEST_CASE("offsets: tokens and batch rows more than 2^31 elements apart") {
  check_far(1, 3, k2to31 + 64, 3 * (k2to31 + 64));
  check_far(2, 5, 64, 2 * k2to31 + 64);
}

TEST_CASE("offsets: more sequences times heads than 65535") {
  KdaCase kda = small();
  kda.key_dim = 8;
  kda.cu_seqlens.assign(33'001, 0);
  std::fill(kda.cu_seqlens.begin() + 32'000, kda.cu_seqlens.end(), 9);
  kda.cu_seqlens.back() = 20;
  const KdaInputs inputs = make_kda_inputs(kda);
  check_kda(kda, inputs, run_kda(context(), kda, inputs));
}

TEST_CASE("offsets: a plan serves other offsets, which no host reads") {
  KdaCase kda = small();
  kda.states = KdaCase::both;
  kda.dht = true;
  kda.cu_seqlens = {0, 40, 100, 150};
  KdaInputs inputs = make_kda_inputs(kda);
  KdaCall call = make_kda_call(context(), kda, inputs);
  for (const auto& begin : {kda.cu_seqlens, {0, 0, 149, 150}, {0, 50, 100, 150}}) {
    kda.cu_seqlens = begin;
    inputs.kda.begin = begin;
    call.tensor("cu_seqlens").upload(Array(begin.begin(), begin.end()));
    INFO(kda.text());
    call.run();
    KdaValues actual;
    for (const char* name : {"o", "final_state", "dq", "dk", "dv", "dg"}) {
      actual[name] = call.get(name);
    }
    check_kda(kda, inputs, actual);
  }
}

}  // namespace
