// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One prepared causal_conv1d call through lathe.h, large enough to be worth timing, and checked
// against float64 before anybody times it.
#pragma once

#include "tests/harness/large_call.h"

namespace bench {

enum class Direction { forward, backward, update };
const char* word(Direction direction);
const char* word(lathe_dtype dtype);

struct Shape {
  Direction direction = Direction::forward;
  lathe_dtype dtype = LATHE_BF16;
  int64_t batch = 1, tokens = 1, channels = 1, width = 4;
  int64_t sequences = 0;  // packed into that many; 0: not packed

  std::string text() const;
  // Returns the bytes if every activation is read or written once; states too for the update,
  // weights never.
  double minimum_bytes() const;
};

class Call {
 public:
  Call(lathe_context* context, const Shape& shape);
  void run(void* stream) const { call_.run(stream); }
  // Throws with the first sampled value that is farther from float64 than a rounding explains.
  void check() const;
  const lathe_plan* plan() const { return call_.plan(); }
  lathe_estimate estimate() const { return call_.estimate(); }

 private:
  void add(lathe_problem* problem, const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
           bool drawn);
  double value(const std::string& name, int64_t index) const;
  double expected(int64_t row, int64_t channel) const;

  Shape shape_;
  std::vector<int64_t> starts_;  // of sequences, on the flat axis of batch * tokens
  apitest::LargeTensors tensors_;
  apitest::LargeCall call_;
};

}  // namespace bench
