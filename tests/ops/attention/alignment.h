// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file moves the tensors of a call to where they are multiples of 2, 4 or 8 bytes only, and
// runs it.
#pragma once

#include <algorithm>

#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/attention/case.h"

namespace apitest {

// Moves every tensor with strides to where its address and strides are odd multiples of the
// alignment, or of an element, and promises that.
inline Call misplaced(Call call, int alignment) {
  call.alignment = alignment;
  for (auto& [name, tensor] : call.tensors) {
    const std::string last = dims_of(call.op, name, tensor.shape.size()).back();
    if (last != "D" && last != "DV") continue;
    const auto bytes = static_cast<int64_t>(numbers::bytes_of(tensor.dtype));
    const int64_t odd = std::max<int64_t>(alignment / bytes, 1);
    tensor.placement = {.token_gap = odd, .batch_gap = 2 * odd, .offset = odd, .guard = 32 * odd};
  }
  return call;
}

// Runs it and checks that no kernel expects more than was promised, or keeps anything in memory.
inline Answer run_misplaced(const Call& call, int alignment) {
  const Answer answer = execute(shared_context(), misplaced(call, alignment));
  check_findings(answer);
  check_no_spills(answer);
  const std::string promise = " alignment=" + std::to_string(alignment) + " ";
  for (const Kernel& kernel : answer.kernels) {
    CAPTURE(kernel.spec);
    CHECK(kernel.spec.find("warpgroups") == std::string::npos);
    if (!kernel.spec.starts_with("attention_positions")) {
      CHECK(kernel.spec.find(promise) != std::string::npos);
    }
  }
  return answer;
}

inline Answer check_case(const AttentionCase& c, int alignment) {
  INFO(c.text());
  CAPTURE(alignment);
  const ref::Attention in = make_inputs(c);
  const AttentionPart part = c.backward ? AttentionPart::both : AttentionPart::forward;
  Answer answer = run_misplaced(attention_call(c, in, part), alignment);
  check_attention(c, in, answer.outputs);
  return answer;
}

}  // namespace apitest
