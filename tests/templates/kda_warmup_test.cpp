// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward_warmup on the simulator, under every checker, against the exact walk.
#include "tests/templates/kda_segments_case.h"

using namespace kda_case;

namespace {

Setup setup() {
  return {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "packed l2norm initial final chunks"};
}

// Every gate of a token at most `weakest`, some of them much less.
void set_gates(double weakest, ref::Kda* a) {
  std::mt19937 random(9);
  std::exponential_distribution<double> less;
  for (double& g : a->g) g = static_cast<float>(weakest * (1 + less(random)));
}

}  // namespace

TEST_CASE("kda_forward_warmup: within its bound of the exact state, and no earlier than it must") {
  const Setup s = setup();
  const KernelSpec exact_spec = walk_spec(s, false);
  const std::vector<Kernel> exact = compile({exact_spec});
  const std::vector<Kernel> warmup = compile({lathe::kda_forward_warmup_spec(exact_spec)});
  if (exact.empty()) return;
  ref::Kda a = make_case(s, 6, {0, 330, 660}, 1, 1, 60, 32);
  const size_t late = static_cast<size_t>(300 * a.value_heads * a.value_dim);  // of token 300
  for (const double weakest : {-1.0, -0.1}) {  // 17 nats: 17 tokens, and 166
    CAPTURE(weakest);
    set_gates(weakest, &a);
    a.v[0] = 1;
    const Results whole = forward(s, a, exact, 1, 1);
    const Results early = forward(s, a, warmup, 3, 2);
    CHECK(rms(early.o, whole.o) < 2e-6);
    CHECK(rms(early.final_state, whole.final_state) < 2e-6);
    CHECK(rms(early.chunk_states, whole.chunk_states) < 2e-6);
    // The third segment begins at token 256: the first one is out of its sight.
    a.v[0] = std::nan("");
    CHECK(std::isfinite(forward(s, a, warmup, 3, 3).o[late]));
    CHECK_FALSE(std::isfinite(forward(s, a, exact, 1, 3).o[late]));
  }
}

TEST_CASE("kda_forward_warmup: gates too weak for the bound, and it is exact") {
  const Setup s = setup();
  const KernelSpec exact_spec = walk_spec(s, false);
  const std::vector<Kernel> exact = compile({exact_spec});
  const std::vector<Kernel> warmup = compile({lathe::kda_forward_warmup_spec(exact_spec)});
  if (exact.empty()) return;
  ref::Kda a = make_case(s, 8, {0, 0, 200, 201, 330}, 1, 2, 64, 40);
  set_gates(-1e-3, &a);
  // One channel of each token keeps what the others lose.
  for (size_t i = 0; i < a.g.size(); ++i) {
    const size_t token = i / static_cast<size_t>(a.value_heads * a.key_dim);
    if (i % 64 != token % 64) a.g[i] = -1;
  }
  const Results whole = forward(s, a, exact, 1, 1);
  for (const int segments : {1, 3, 4}) {
    const Results early = forward(s, a, warmup, segments, 2);
    CHECK(early.o == whole.o);
    CHECK(early.final_state == whole.final_state);
  }
}
