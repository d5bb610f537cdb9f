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
namespace {

// A table of normal values of odd period: cheap for gigabytes, different from row to row.
std::vector<unsigned char> draw(lathe_dtype dtype, size_t count, uint64_t seed) {
  const size_t bytes = numbers::bytes_of(dtype);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<unsigned char> table(65521 * bytes), values(count * bytes);
  for (size_t i = 0; i < 65521; ++i) numbers::encode(dtype, normal(random), &table[i * bytes]);
  for (size_t at = 0; at < values.size(); at += table.size()) {
    std::memcpy(&values[at], table.data(), std::min(table.size(), values.size() - at));
  }
  return values;
}

DLDataType describe(lathe_dtype dtype) {
  const bool real = dtype == LATHE_F32 || dtype == LATHE_F16;
  const auto code = dtype == LATHE_BF16 ? kDLBfloat : real ? kDLFloat : kDLInt;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * numbers::bytes_of(dtype)), 1};
}

}  // namespace

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

Call::Call(lathe_context* context, const Shape& shape) : context_(context), shape_(shape) {
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
    add(problem, "cu_seqlens", LATHE_I64, {shape.sequences + 1}, true);
    auto& memory = *slots_.at("cu_seqlens").memory;
    API(lathe_copy_to_device(context, memory.data(), starts_.data(), memory.bytes(), nullptr));
  }
  if (shape.direction == Direction::backward) {
    add(problem, "dy", shape.dtype, activation, true);
    add(problem, "dx", shape.dtype, activation, false);
    add(problem, "dweight", shape.dtype, taps, false);
  } else {
    add(problem, "y", shape.dtype, activation, false);
  }

  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, problem));
  plan_.reset(plan);
  order_.assign(lathe_plan_slot_count(plan), nullptr);
  for (auto& [name, slot] : slots_) {
    size_t index = 0;
    API(lathe_plan_slot(plan, name.c_str(), &index));
    order_.at(index) = &slot.tensor;
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, order_.data(), nullptr, &bytes));
  workspace_ = std::make_unique<apitest::Memory>(context, bytes);
}

void Call::add(lathe_problem* problem, const char* name, lathe_dtype dtype,
               std::vector<int64_t> shape, bool input) {
  std::vector<int64_t> declared = shape;
  if (shape.size() == 3) declared[1] = shape_.direction == Direction::update ? shape[1] : -1;
  if (name[0] == 'x' || name[0] == 'y' || shape.size() == 3) declared[0] = -1;
  if (dtype == LATHE_I64) declared[0] = -1;
  API(lathe_problem_tensor(problem, name, dtype, static_cast<int>(shape.size()), declared.data()));
  Slot& slot = slots_[name];
  slot.dtype = dtype;
  slot.shape = std::move(shape);
  size_t count = 1;
  for (int64_t extent : slot.shape) count *= static_cast<size_t>(extent);
  slot.memory = std::make_unique<apitest::Memory>(context_, count * numbers::bytes_of(dtype));
  if (input && dtype != LATHE_I64) {
    slot.bytes = draw(dtype, count, slots_.size());
    API(lathe_copy_to_device(context_, slot.memory->data(), slot.bytes.data(), slot.bytes.size(),
                             nullptr));
  }
  slot.tensor.data = slot.memory->data();
  slot.tensor.device = {kDLCUDA, 0};
  slot.tensor.ndim = static_cast<int32_t>(slot.shape.size());
  slot.tensor.dtype = describe(dtype);
  slot.tensor.shape = slot.shape.data();
}

void Call::run(void* stream) const {
  API(lathe_plan_run(plan_.get(), order_.data(), workspace_->data(), workspace_->bytes(), stream));
}

lathe_estimate Call::estimate() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan_.get(), order_.data(), nullptr, &estimate));
  return estimate;
}

double Call::value(const std::string& name, int64_t index) const {
  const Slot& slot = slots_.at(name);
  const size_t at = static_cast<size_t>(index) * numbers::bytes_of(slot.dtype);
  return numbers::decode(slot.dtype, &slot.bytes[at]);
}

// y or dx of one row, from a window of its own sequence around it.
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
  const Slot& slot = slots_.at(name);
  run(nullptr);
  std::vector<unsigned char> actual(slot.memory->bytes());
  API(lathe_copy_to_host(context_, actual.data(), slot.memory->data(), actual.size(), nullptr));
  const size_t size = numbers::bytes_of(slot.dtype);
  const int64_t count = static_cast<int64_t>(actual.size() / size);
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    // The last elements as well: that is where an offset would wrap.
    const int64_t index = i < 16 ? count - 1 - i % count : static_cast<int64_t>(random() % count);
    const double a = numbers::decode(slot.dtype, &actual[static_cast<size_t>(index) * size]);
    const double r = expected(index / shape_.channels, index % shape_.channels);
    if (!(std::abs(a - r) <= numbers::half_ulp(slot.dtype) * std::abs(r) + 1e-4)) {
      throw std::runtime_error(std::string(word(shape_.direction)) + " " + shape_.text() + ": " +
                               name + "[" + std::to_string(index) + "] is " + std::to_string(a) +
                               ", expected " + std::to_string(r));
    }
  }
}

}  // namespace bench
