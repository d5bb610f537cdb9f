// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/large_call.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/numbers.h"

namespace apitest {

void LargeTensors::add(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape) {
  Slot& slot = slots_[name];
  slot.dtype = dtype;
  slot.shape = std::move(shape);
  size_t bytes = numbers::bytes_of(dtype);
  for (const int64_t extent : slot.shape) bytes *= static_cast<size_t>(extent);
  slot.memory = std::make_unique<Memory>(context_, bytes);
  slot.tensor = describe(slot.memory->data(), dtype, slot.shape);
}

void LargeTensors::draw(const std::string& name, uint64_t seed,
                        const std::function<double(double)>& change) {
  constexpr size_t kPeriod = 65521;
  const lathe_dtype dtype = slots_.at(name).dtype;
  const size_t each = numbers::bytes_of(dtype);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<unsigned char> table(kPeriod * each), drawn(slots_.at(name).memory->bytes());
  for (size_t i = 0; i < kPeriod; ++i) {
    const double x = normal(random);
    numbers::encode(dtype, change ? change(x) : x, &table[i * each]);
  }
  for (size_t at = 0; at < drawn.size(); at += table.size()) {
    std::memcpy(&drawn[at], table.data(), std::min(table.size(), drawn.size() - at));
  }
  upload(name, std::move(drawn));
}

void LargeTensors::upload(const std::string& name, std::vector<unsigned char> bytes) {
  Slot& slot = slots_.at(name);
  slot.input = true;
  slot.bytes = std::move(bytes);
  API(lathe_copy_to_device(context_, slot.memory->data(), slot.bytes.data(), slot.bytes.size(),
                           nullptr));
}

void LargeTensors::read_back() const {
  for (const auto& [name, slot] : slots_) {
    if (slot.input) continue;
    slot.bytes.resize(slot.memory->bytes());
    API(lathe_copy_to_host(context_, slot.bytes.data(), slot.memory->data(), slot.bytes.size(),
                           nullptr));
  }
}

LargeTensors::Names LargeTensors::names() const {
  Names all;
  for (const auto& [name, slot] : slots_) all.push_back(name);
  return all;
}

std::vector<double> LargeTensors::values(const std::string& name, int64_t first,
                                         int64_t count) const {
  const Slot& slot = slots_.at(name);
  const size_t width = numbers::bytes_of(slot.dtype);
  std::vector<double> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = numbers::decode(slot.dtype, &slot.bytes[(static_cast<size_t>(first) + i) * width]);
  }
  return out;
}

Problem LargeTensors::problem(const char* op, const Counts& options, const Names& names) const {
  lathe_problem* made = nullptr;
  API(lathe_problem_create(&made, op));
  Problem problem(made);
  for (const auto& [name, value] : options) API(lathe_problem_set_int(made, name, value));
  for (const std::string& name : names) {
    const Slot& slot = slots_.at(name);
    API(lathe_problem_tensor(made, name.c_str(), slot.dtype, static_cast<int>(slot.shape.size()),
                             slot.shape.data()));
  }
  return problem;
}

LargeCall::LargeCall(const LargeTensors& tensors, const lathe_problem* problem,
                     const LargeTensors::Names& names) {
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, tensors.context(), problem));
  plan_.reset(plan);
  order_.assign(lathe_plan_slot_count(plan), nullptr);
  for (const std::string& name : names) {
    size_t slot = 0;
    API(lathe_plan_slot(plan, name.c_str(), &slot));
    order_.at(slot) = tensors.dl(name);
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, order_.data(), nullptr, &bytes));
  workspace_ = std::make_unique<Memory>(tensors.context(), bytes);
}

void LargeCall::run(void* stream) const {
  API(lathe_plan_run(plan(), order_.data(), workspace_->data(), workspace_->bytes(), stream));
}

lathe_estimate LargeCall::estimate() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan(), order_.data(), nullptr, &estimate));
  return estimate;
}

}  // namespace apitest
