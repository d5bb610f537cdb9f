// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A call's counts follow from those of a part of it, and what the library tells of a call without
// running it (ops/kda/chain.cpp) is what counts say.
#include "bench/operators/kda_predict.h"

#include <doctest/doctest.h>

#include "bench/operators/attn_work.h"
#include "bench/operators/kda_call.h"

using bench::KdaSize;

namespace {

KdaSize size_of(int64_t tokens, int64_t heads, int64_t width) {
  KdaSize size;
  size.tokens = tokens, size.heads = heads;
  size.key_dim = size.value_dim = width;
  size.segments = 1;
  return size;
}

lathe_context* context() {
  static const apitest::Context made = [] {
    setenv("LATHE_SIM_PROFILE", "1", 1);
    setenv("LATHE_SIM_CHECK", "memcheck", 0);
    return apitest::make_context();
  }();
  return made.get();
}

bool skipped() {
  if (apitest::on_simulator()) return false;
  MESSAGE("skipped: counts are the simulator's");
  return true;
}

}  // namespace

TEST_CASE("kda: counts of a call follow from one head at two lengths") {
  if (skipped()) return;
  for (const bool backward : {false, true}) {
    KdaSize size = size_of(448, 2, 64);
    size.backward = size.fused = backward;
    CAPTURE(size.text());
    const bench::KdaCall call(context(), size);
    apitest::take_report();
    call.check(1);
    const bench::AttnCounts whole = bench::attn_counts(apitest::take_report().launches);
    double tensor = 0, asked = 0, memory = 0;
    for (const auto& launch : bench::kda_counts(context(), size)) {
      tensor += launch.tensor_ops, asked += launch.asked_bytes, memory += launch.memory_bytes;
    }
    CHECK(tensor == doctest::Approx(whole.tensor_ops));
    CHECK(asked == doctest::Approx(whole.asked_bytes).epsilon(0.01));
    CHECK(memory == doctest::Approx(whole.memory_bytes).epsilon(0.01));
  }
}

TEST_CASE("kda: what is told of a call is near what its counts say") {
  if (skipped()) return;
  std::vector<KdaSize> sizes = {size_of(8192, 12, 128), size_of(4096, 32, 64),
                                size_of(8192, 24, 128), size_of(8192, 24, 128)};
  sizes[1].fused = true;
  sizes[2].backward = true;
  sizes[3].segments = 4;
  for (const KdaSize& size : sizes) {
    CAPTURE(size.text());
    CAPTURE(size.backward);
    const double counted =
        bench::kda_predict(bench::kda_counts(context(), size), "h100").microseconds;
    const double told = bench::KdaCall(context(), size, true).estimate().microseconds;
    CHECK(told > 0.7 * counted);
    CHECK(told < 1.4 * counted);
  }
}
