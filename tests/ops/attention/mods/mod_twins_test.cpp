// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover texts that are made to be taken for another one, or to change one: every plan
// computes what its own texts say.
#include "reference/attention.h"
#include "tests/harness/check.h"
#include "tests/twin_texts.h"

using namespace apitest;

namespace {

constexpr int64_t kTokens = 40, kWidth = 64;

Call small() {
  Call call;
  call.draw("q", LATHE_F16, {1, kTokens, 1, kWidth}, 1);
  call.draw("k", LATHE_F16, {1, kTokens, 1, kWidth}, 2);
  call.draw("v", LATHE_F16, {1, kTokens, 1, kWidth}, 3);
  call.want("out", LATHE_F16, {1, kTokens, 1, kWidth});
  call.want("lse", LATHE_F32, {1, 1, kTokens});
  return call;
}

ref::Attention plain(const Call& call) {
  ref::Attention a;
  a.heads = a.kv_heads = 1, a.head_dim = a.value_dim = kWidth;
  a.packed = false, a.scale = 0.125;
  a.begin_q = a.begin_k = {0, kTokens};
  a.q = call.tensors.at("q").values, a.k = call.tensors.at("k").values;
  a.v = call.tensors.at("v").values;
  return a;
}

void check_against(const Answer& answer, const ref::Attention& a) {
  const ref::AttentionForward expected = ref::attention_forward(a);
  check_near(answer.outputs.at("out"), expected.out, 0.01);
  check_near(answer.outputs.at("lse"), expected.lse, 1e-3);
}

}  // namespace

TEST_CASE("two texts with one digest are two kernels, in one process and from one cache") {
  const Context first = make_context(), second = make_context();
  for (const Context* context : {&first, &second}) {  // the second finds what the first one left
    for (const auto& [a, b] : {std::pair('2', '5'), std::pair('5', '2')}) {
      CAPTURE(a);
      Call call = small();
      call.texts["score_mod"] = twins::score_mod(a, b);
      ref::Attention expected = plain(call);
      expected.score_mod = [a = a - '0', b = b - '0'](double x, int64_t, int64_t, int64_t i,
                                                      int64_t j) {
        return x * a - b * static_cast<double>(i - j);
      };
      check_against(run(context->get(), call), expected);
    }
  }
}

TEST_CASE("the macros of one text end with it") {
  Call call = small();
  call.texts["mask_mod"] =  // from an editor that begins files with a byte order mark
      "\xef\xbb\xbf#ifndef NEAR\n#define NEAR 4\n#endif\n"
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
      "  return kv_idx <= q_idx && q_idx - kv_idx < NEAR;\n}\n";
  ref::Attention expected = plain(call);
  expected.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i && i - j < 4; };
  // The last defines names that lathe's own files use.
  for (const char* macros : {"", "#define NEAR 1\n",
                             "#define C 7\n#define I(x) x\n#define F\n"
                             "#define Given int\n#define Config 3\n"}) {
    CAPTURE(macros);
    call.texts["score_mod"] =
        std::string(macros) +
        "__device__ float score_mod(float s, int b, int h, int q, int k) { return s; }\n";
    check_against(run(call), expected);
  }
}
