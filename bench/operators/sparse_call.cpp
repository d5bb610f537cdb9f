// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/sparse_call.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "reference/attention.h"
#include "tests/numbers.h"

namespace bench {
namespace {

// A table of normal values of odd period: cheap for gigabytes, different from row to row.
std::vector<unsigned char> draw(lathe_dtype dtype, size_t count, uint64_t seed) {
  const size_t bytes = numbers::bytes_of(dtype);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<unsigned char> table(65521 * bytes), drawn(count * bytes);
  for (size_t i = 0; i < 65521; ++i) numbers::encode(dtype, normal(random), &table[i * bytes]);
  for (size_t at = 0; at < drawn.size(); at += table.size()) {
    std::copy_n(table.begin(), std::min(table.size(), drawn.size() - at), drawn.begin() + at);
  }
  return drawn;
}

// Each list names keys anywhere, each once unless there are fewer keys than entries.
std::vector<unsigned char> draw_lists(const SparseSize& size) {
  std::vector<unsigned char> out(static_cast<size_t>(size.rows * size.topk) * 4);
  std::mt19937_64 random(5);
  for (int64_t row = 0; row < size.rows; ++row) {
    // A walk of odd step over 2^n places visits each once.
    int64_t places = 1;
    while (places < size.keys) places *= 2;
    const auto step = static_cast<int64_t>(random() % places) | 1;
    auto at = static_cast<int64_t>(random() % places);
    for (int64_t i = 0; i < size.topk; ++i) {
      do {
        at = (at + step) % places;
      } while (at >= size.keys);
      numbers::put(&out[static_cast<size_t>(row * size.topk + i) * 4], static_cast<int32_t>(at));
    }
  }
  return out;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return ref::dot(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

size_t count_of(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

}  // namespace

std::string SparseSize::text() const {
  return "T" + std::to_string(rows) + " keys" + std::to_string(keys) + " H" +
         std::to_string(heads) + " D" + std::to_string(head_dim) + "+" + std::to_string(rope_dim) +
         " DV" + std::to_string(value_dim) + (latent ? " in k" : "") + " topk" +
         std::to_string(topk) + (deterministic ? " deterministic" : "");
}

double SparseSize::flops() const {
  const int64_t widths = backward ? 3 * key_width() + 2 * value_dim : key_width() + value_dim;
  return 2.0 * static_cast<double>(rows * topk * heads * widths);
}

double SparseSize::listed_bytes() const {
  return 2.0 * static_cast<double>(rows * topk * (key_width() + (latent ? 0 : value_dim)));
}

double SparseSize::minimum_bytes() const {
  const auto own = static_cast<double>(rows * heads * (key_width() + value_dim));
  const int64_t of_key = key_width() + (latent ? 0 : value_dim);
  const auto seen = static_cast<double>(std::min(keys, rows * topk) * of_key);
  const double once = 2 * (own + seen) + 4 * static_cast<double>(rows * (heads + topk));
  return backward ? once + 2 * (own + static_cast<double>(keys * of_key)) : once;
}

SparseCall::SparseCall(lathe_context* context, const SparseSize& size)
    : context_(context), size_(size), scale_(1 / std::sqrt(double(size.key_width()))) {
  add("q", LATHE_BF16, {size.rows, size.heads, size.head_dim});
  add("q_rope", LATHE_BF16, {size.rows, size.heads, size.rope_dim});
  add("k", LATHE_BF16, {size.keys, 1, size.head_dim});
  add("k_rope", LATHE_BF16, {size.keys, 1, size.rope_dim});
  if (!size.latent) add("v", LATHE_BF16, {size.keys, 1, size.value_dim});
  add("indices", LATHE_I32, {size.rows, 1, size.topk});
  add("out", LATHE_BF16, {size.rows, size.heads, size.value_dim});
  add("lse", LATHE_F32, {size.heads, size.rows});
  uint64_t seed = 1;
  for (const char* name : {"q", "q_rope", "k", "k_rope", "v"}) {
    if (!slots_.count(name)) continue;
    upload(name, draw(LATHE_BF16, count_of(slots_.at(name).shape), seed++));
  }
  upload("indices", draw_lists(size));
  prepared_ = prepare({}, false);
  if (!size.backward) return;
  run(nullptr);
  read_back("out");
  read_back("lse");
  add("dout", LATHE_BF16, slots_.at("out").shape);
  upload("dout", draw(LATHE_BF16, count_of(slots_.at("out").shape), seed));
  std::vector<const char*> names = {"dout"};
  for (const auto& [gradient, of] :
       {std::pair("dq", "q"), std::pair("dq_rope", "q_rope"), std::pair("dk", "k"),
        std::pair("dk_rope", "k_rope"), std::pair("dv", "v")}) {
    if (!slots_.count(of)) continue;
    add(gradient, LATHE_BF16, slots_.at(of).shape);
    names.push_back(gradient);
  }
  prepared_ = prepare(names, true);
}

void SparseCall::add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape) {
  Slot& slot = slots_[name];
  slot.dtype = dtype;
  slot.shape = std::move(shape);
  slot.memory =
      std::make_unique<apitest::Memory>(context_, count_of(slot.shape) * numbers::bytes_of(dtype));
  const auto code = dtype == LATHE_BF16 ? kDLBfloat : dtype == LATHE_I32 ? kDLInt : kDLFloat;
  slot.tensor.data = slot.memory->data();
  slot.tensor.device = {kDLCUDA, 0};
  slot.tensor.ndim = static_cast<int>(slot.shape.size());
  slot.tensor.dtype = {static_cast<uint8_t>(code),
                       static_cast<uint8_t>(8 * numbers::bytes_of(dtype)), 1};
  slot.tensor.shape = slot.shape.data();
}

void SparseCall::upload(const char* name, std::vector<unsigned char> bytes) {
  Slot& slot = slots_.at(name);
  slot.bytes = std::move(bytes);
  API(lathe_copy_to_device(context_, slot.memory->data(), slot.bytes.data(), slot.bytes.size(),
                           nullptr));
}

void SparseCall::read_back(const char* name) {
  Slot& slot = slots_.at(name);
  slot.bytes.resize(slot.memory->bytes());
  API(lathe_copy_to_host(context_, slot.bytes.data(), slot.memory->data(), slot.bytes.size(),
                         nullptr));
}

lathe_estimate SparseCall::estimate() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan(), prepared_.order.data(), nullptr, &estimate));
  return estimate;
}

SparseCall::Prepared SparseCall::prepare(const std::vector<const char*>& more,
                                         bool saved_forward) const {
  std::vector<const char*> names = {"q", "q_rope", "k", "k_rope", "indices", "out", "lse"};
  if (!size_.latent) names.push_back("v");
  names.insert(names.end(), more.begin(), more.end());
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, "sparse_flash_attention"));
  const apitest::Problem owner(problem);
  API(lathe_problem_set_double(problem, "scale", scale_));
  // As with thousands of rows, which fill a device; on the simulator there are fewer.
  API(lathe_problem_set_int(problem, "num_splits", 1));
  if (saved_forward) API(lathe_problem_set_int(problem, "saved_forward", 1));
  if (size_.deterministic) API(lathe_problem_set_int(problem, "deterministic", 1));
  for (const char* name : names) {
    const Slot& slot = slots_.at(name);
    API(lathe_problem_tensor(problem, name, slot.dtype, static_cast<int>(slot.shape.size()),
                             slot.shape.data()));
  }
  Prepared out;
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context_, problem));
  out.plan.reset(plan);
  out.order.resize(lathe_plan_slot_count(plan));
  for (const char* name : names) {
    size_t slot = 0;
    API(lathe_plan_slot(plan, name, &slot));
    out.order.at(slot) = &slots_.at(name).tensor;
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, out.order.data(), nullptr, &bytes));
  out.workspace = std::make_unique<apitest::Memory>(context_, bytes);
  return out;
}

void SparseCall::run(const Prepared& prepared, void* stream) const {
  API(lathe_plan_run(prepared.plan.get(), prepared.order.data(), prepared.workspace->data(),
                     prepared.workspace->bytes(), stream));
}

SparseCall::Row SparseCall::values(const char* name, int64_t first, int64_t count) const {
  const Slot& slot = slots_.at(name);
  const size_t bytes = numbers::bytes_of(slot.dtype);
  Row out;
  for (int64_t i = first; i < first + count; ++i) {
    out.push_back(numbers::decode(slot.dtype, &slot.bytes[static_cast<size_t>(i) * bytes]));
  }
  return out;
}

SparseCall::Row SparseCall::query(int64_t row, int64_t head) const {
  const int64_t at = row * size_.heads + head;
  Row out = values("q", at * size_.head_dim, size_.head_dim);
  const Row rope = values("q_rope", at * size_.rope_dim, size_.rope_dim);
  out.insert(out.end(), rope.begin(), rope.end());
  return out;
}

SparseCall::Row SparseCall::key(int64_t key) const {
  Row out = values("k", key * size_.head_dim, size_.head_dim);
  const Row rope = values("k_rope", key * size_.rope_dim, size_.rope_dim);
  out.insert(out.end(), rope.begin(), rope.end());
  return out;
}

SparseCall::Row SparseCall::value(int64_t key) const {
  if (!size_.latent) return values("v", key * size_.value_dim, size_.value_dim);
  return values("k", key * size_.head_dim, size_.value_dim);
}

int64_t SparseCall::entry(int64_t row, int64_t place) const {
  const auto at = static_cast<size_t>(row * size_.topk + place) * 4;
  return numbers::get<int32_t>(&slots_.at("indices").bytes[at]);
}

void SparseCall::compare(const char* name, const Row& found, const Row& expected,
                         int64_t at) const {
  double error = 0, square = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    square += expected[i] * expected[i];
  }
  // Roundings of weights and of the result.
  if (std::sqrt(error) <= 0.02 * std::sqrt(square) + 1e-6) return;
  throw std::runtime_error(std::string(name) + " of " + size_.text() + " at " + std::to_string(at) +
                           " is off by " + std::to_string(std::sqrt(error / square)) +
                           " of its size");
}

// Compares out of a row's head, and dq of a backward, with one query over the keys of its list,
// each entry a key of its own.
void SparseCall::check_row(int64_t row, int64_t head) const {
  ref::Attention a;
  a.head_dim = size_.key_width(), a.value_dim = size_.value_dim, a.scale = scale_;
  a.begin_q = {0, 1}, a.begin_k = {0, size_.topk};
  a.q = query(row, head);
  for (int64_t i = 0; i < size_.topk; ++i) {
    const Row k = key(entry(row, i)), v = value(entry(row, i));
    a.k.insert(a.k.end(), k.begin(), k.end());
    a.v.insert(a.v.end(), v.begin(), v.end());
  }
  const int64_t place = (row * size_.heads + head) * size_.value_dim;
  const ref::AttentionForward forward = ref::attention_forward(a);
  compare("out", values("out", place, size_.value_dim), forward.out, row);
  if (!size_.backward) return;
  a.dout = values("dout", place, size_.value_dim);
  Row found = values("dq", (row * size_.heads + head) * size_.head_dim, size_.head_dim);
  const Row rope = values("dq_rope", (row * size_.heads + head) * size_.rope_dim, size_.rope_dim);
  found.insert(found.end(), rope.begin(), rope.end());
  compare("dq", found, ref::attention_backward(a, forward).dq, row);
}

// dk over all rows that list the key, from their out and lse.
void SparseCall::check_key(int64_t at) const {
  const Row k = key(at), v = value(at);
  Row dk(k.size()), dv(v.size());
  for (int64_t row = 0; row < size_.rows; ++row) {
    int64_t times = 0;
    for (int64_t i = 0; i < size_.topk; ++i) times += entry(row, i) == at;
    for (int64_t head = 0; times > 0 && head < size_.heads; ++head) {
      const int64_t place = (row * size_.heads + head) * size_.value_dim;
      const Row q = query(row, head), dout = values("dout", place, size_.value_dim);
      const double lse = values("lse", head * size_.rows + row, 1)[0];
      const double p = times * std::exp(scale_ * dot(q, k) - lse);
      const double delta = dot(dout, values("out", place, size_.value_dim));
      const double dx = p * (dot(dout, v) - delta) * scale_;
      ref::add_scaled(dk.data(), dx, q.data(), size_.key_width());
      ref::add_scaled(dv.data(), p, dout.data(), size_.value_dim);
    }
  }
  for (size_t c = 0; size_.latent && c < dv.size(); ++c) dk[c] += dv[c];
  Row found = values("dk", at * size_.head_dim, size_.head_dim);
  const Row rope = values("dk_rope", at * size_.rope_dim, size_.rope_dim);
  found.insert(found.end(), rope.begin(), rope.end());
  compare("dk", found, dk, at);
  if (!size_.latent) compare("dv", values("dv", at * size_.value_dim, size_.value_dim), dv, at);
}

void SparseCall::check(int samples) const {
  run(nullptr);
  auto* self = const_cast<SparseCall*>(this);
  for (const char* name : {"out", "dq", "dq_rope", "dk", "dk_rope", "dv"}) {
    if (slots_.count(name)) self->read_back(name);
  }
  std::mt19937_64 random(9);
  for (int i = 0; i < samples; ++i) {
    check_row(static_cast<int64_t>(random() % size_.rows),
              static_cast<int64_t>(random() % size_.heads));
    const auto listed = static_cast<int64_t>(random() % (size_.rows * size_.topk));
    if (size_.backward) check_key(entry(listed / size_.topk, listed % size_.topk));
  }
}

}  // namespace bench
