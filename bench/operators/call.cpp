// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/call.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "reference/conv.h"
#include "tests/numbers.h"

namespace bench {

const char* word(Direction direction) {
  static const char* words[] = {"forward", "backward", "update"};
  return words[static_cast<int>(direction)];
}

const char* word(lathe_dtype dtype) {
  static const char* words[] = {"f32", "f16", "bf16", "i32", "i64"};
  return words[dtype];
}

std::string Shape::text() const {
  std::string out = "B" + std::to_string(batch);
  if (direction != Direction::update) out += " T" + std::to_string(tokens);
  out += " D" + std::to_string(channels) + " W" + std::to_string(width);
  if (sequences > 0) out += " N" + std::to_string(sequences);
  return out;
}

double Shape::minimum_bytes() const {
  const auto rows = static_cast<double>(batch * tokens * channels);
  const auto size = static_cast<double>(numbers::bytes_of(dtype));
  if (direction == Direction::forward) return 2 * rows * size;
  if (direction == Direction::backward) return 3 * rows * size;
  return rows * static_cast<double>(2 * width + 2) * size;
}

Call::Call(lathe_context* context, const Shape& shape) : shape_(shape), tensors_(context) {
  const bool update = shape.direction == Direction::update;
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, update ? "causal_conv1d_update" : "causal_conv1d"));
  const apitest::Problem owner(problem);
  API(lathe_problem_set_string(problem, "activation", "silu"));
  std::vector<int64_t> activation = {shape.batch, shape.tokens, shape.channels};
  if (update) activation = {shape.batch, shape.channels};
  const std::vector<int64_t> taps = {shape.channels, shape.width};
  add(problem, "x", shape.dtype, activation, true);
  add(problem, "weight", shape.dtype, taps, true);
  if (update) add(problem, "state", shape.dtype, {shape.batch, taps[0], taps[1]}, true);
  const int64_t sequences = shape.sequences > 0 ? shape.sequences : shape.batch;
  for (int64_t n = 0; n <= sequences; ++n) {
    starts_.push_back(n * shape.batch * shape.tokens / sequences);
  }
  if (shape.sequences > 0) {
    add(problem, "cu_seqlens", LATHE_I64, {shape.sequences + 1}, false);
    tensors_.upload("cu_seqlens", starts_);
  }
  if (shape.direction == Direction::backward) {
    add(problem, "dy", shape.dtype, activation, true);
    add(problem, "dx", shape.dtype, activation, false);
    add(problem, "dweight", shape.dtype, taps, false);
  } else {
    add(problem, "y", shape.dtype, activation, false);
  }
  call_ = apitest::LargeCall(tensors_, problem, tensors_.names());
}

void Call::add(lathe_problem* problem, const char* name, lathe_dtype dtype,
               std::vector<int64_t> shape, bool drawn) {
  std::vector<int64_t> declared = shape;
  if (shape.size() == 3) declared[1] = shape_.direction == Direction::update ? shape[1] : -1;
  if (name[0] == 'x' || name[0] == 'y' || shape.size() == 3) declared[0] = -1;
  if (dtype == LATHE_I64) declared[0] = -1;
  API(lathe_problem_tensor(problem, name, dtype, static_cast<int>(shape.size()), declared.data()));
  tensors_.add(name, dtype, std::move(shape));
  if (drawn) tensors_.draw(name, tensors_.size());
}

double Call::value(const std::string& name, int64_t index) const {
  return tensors_.values(name, index, 1)[0];
}

// Computes y or dx of one row, from a window of its own sequence around it.
double Call::expected(int64_t row, int64_t channel) const {
  ref::Conv conv;
  conv.channels = 1;
  conv.width = shape_.width;
  conv.silu = true;
  for (int64_t i = 0; i < shape_.width; ++i) {
    conv.weight.push_back(value("weight", channel * shape_.width + i));
  }
  if (shape_.direction == Direction::update) {
    conv.x = {value("x", row * shape_.channels + channel)};
    ref::Array state;
    for (int64_t s = 0; s < shape_.width; ++s) {
      state.push_back(value("state", (row * shape_.channels + channel) * shape_.width + s));
    }
    return ref::conv_update(conv, state).y[0];
  }
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
  const int64_t reach = 2 * shape_.width;
  const int64_t from = std::max(*std::prev(next), row - reach), to = std::min(*next, row + reach);
  conv.begin = {0, to - from};
  for (int64_t t = from; t < to; ++t) {
    conv.x.push_back(value("x", t * shape_.channels + channel));
    if (shape_.direction == Direction::backward) {
      conv.dy.push_back(value("dy", t * shape_.channels + channel));
    }
  }
  const auto at = static_cast<size_t>(row - from);
  return shape_.direction == Direction::forward ? ref::conv_forward(conv).y[at]
                                                : ref::conv_backward(conv).dx[at];
}

void Call::check() const {
  const char* name = shape_.direction == Direction::backward ? "dx" : "y";
  run(nullptr);
  tensors_.read_back();
  int64_t count = 1;
  for (const int64_t extent : tensors_.shape(name)) count *= extent;
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    // The last elements as well: that is where an offset would wrap.
    const int64_t index = i < 16 ? count - 1 - i % count : static_cast<int64_t>(random() % count);
    const double a = value(name, index);
    const double r = expected(index / shape_.channels, index % shape_.channels);
    if (!(std::abs(a - r) <= numbers::half_ulp(shape_.dtype) * std::abs(r) + 1e-4)) {
      throw std::runtime_error(std::string(word(shape_.direction)) + " " + shape_.text() + ": " +
                               name + "[" + std::to_string(index) + "] is " + std::to_string(a) +
                               ", expected " + std::to_string(r));
    }
  }
}

}  // namespace bench
