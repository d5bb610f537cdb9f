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
    : size_(size), scale_(1 / std::sqrt(double(size.key_width()))), tensors_(context) {
  uint64_t seed = 1;
  const auto draw = [&](const char* name, std::vector<int64_t> shape) {
    tensors_.add(name, LATHE_BF16, std::move(shape));
    tensors_.draw(name, seed++);
  };
  draw("q", {size.rows, size.heads, size.head_dim});
  draw("q_rope", {size.rows, size.heads, size.rope_dim});
  draw("k", {size.keys, 1, size.head_dim});
  draw("k_rope", {size.keys, 1, size.rope_dim});
  if (!size.latent) draw("v", {size.keys, 1, size.value_dim});
  tensors_.add("indices", LATHE_I32, {size.rows, 1, size.topk});
  tensors_.upload("indices", draw_lists(size));
  tensors_.add("out", LATHE_BF16, {size.rows, size.heads, size.value_dim});
  tensors_.add("lse", LATHE_F32, {size.heads, size.rows});
  prepared_ = prepare(false);
  if (!size.backward) return;
  run(nullptr);
  draw("dout", tensors_.shape("out"));
  for (const auto& [gradient, of] :
       {std::pair("dq", "q"), std::pair("dq_rope", "q_rope"), std::pair("dk", "k"),
        std::pair("dk_rope", "k_rope"), std::pair("dv", "v")}) {
    if (tensors_.has(of)) tensors_.add(gradient, LATHE_BF16, tensors_.shape(of));
  }
  prepared_ = prepare(true);
}

apitest::LargeCall SparseCall::prepare(bool saved_forward) const {
  // One split, as with thousands of rows, which fill a device; on the simulator there are fewer.
  apitest::LargeTensors::Counts options = {{"num_splits", 1}};
  if (saved_forward) options.emplace_back("saved_forward", 1);
  if (size_.deterministic) options.emplace_back("deterministic", 1);
  const auto names = tensors_.names();
  const apitest::Problem problem = tensors_.problem("sparse_flash_attention", options, names);
  API(lathe_problem_set_double(problem.get(), "scale", scale_));
  return apitest::LargeCall(tensors_, problem.get(), names);
}

SparseCall::Row SparseCall::query(int64_t row, int64_t head) const {
  const int64_t at = row * size_.heads + head;
  Row out = tensors_.values("q", at * size_.head_dim, size_.head_dim);
  const Row rope = tensors_.values("q_rope", at * size_.rope_dim, size_.rope_dim);
  out.insert(out.end(), rope.begin(), rope.end());
  return out;
}

SparseCall::Row SparseCall::key(int64_t key) const {
  Row out = tensors_.values("k", key * size_.head_dim, size_.head_dim);
  const Row rope = tensors_.values("k_rope", key * size_.rope_dim, size_.rope_dim);
  out.insert(out.end(), rope.begin(), rope.end());
  return out;
}

SparseCall::Row SparseCall::value(int64_t key) const {
  if (!size_.latent) return tensors_.values("v", key * size_.value_dim, size_.value_dim);
  return tensors_.values("k", key * size_.head_dim, size_.value_dim);
}

int64_t SparseCall::entry(int64_t row, int64_t place) const {
  const auto at = static_cast<size_t>(row * size_.topk + place) * 4;
  return numbers::get<int32_t>(tensors_.bytes("indices") + at);
}

void SparseCall::compare(const char* name, const Row& found, const Row& expected,
                         int64_t at) const {
  double error = 0, square = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    square += expected[i] * expected[i];
  }
  // The bound allows roundings of weights and of the result.
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
  compare("out", tensors_.values("out", place, size_.value_dim), forward.out, row);
  if (!size_.backward) return;
  a.dout = tensors_.values("dout", place, size_.value_dim);
  Row found = tensors_.values("dq", (row * size_.heads + head) * size_.head_dim, size_.head_dim);
  const Row rope =
      tensors_.values("dq_rope", (row * size_.heads + head) * size_.rope_dim, size_.rope_dim);
  found.insert(found.end(), rope.begin(), rope.end());
  compare("dq", found, ref::attention_backward(a, forward).dq, row);
}

// Checks dk over all rows that list the key, from their out and lse.
void SparseCall::check_key(int64_t at) const {
  const Row k = key(at), v = value(at);
  Row dk(k.size()), dv(v.size());
  for (int64_t row = 0; row < size_.rows; ++row) {
    int64_t times = 0;
    for (int64_t i = 0; i < size_.topk; ++i) times += entry(row, i) == at;
    for (int64_t head = 0; times > 0 && head < size_.heads; ++head) {
      const int64_t place = (row * size_.heads + head) * size_.value_dim;
      const Row q = query(row, head), dout = tensors_.values("dout", place, size_.value_dim);
      const double lse = tensors_.values("lse", head * size_.rows + row, 1)[0];
      const double p = times * std::exp(scale_ * dot(q, k) - lse);
      const double delta = dot(dout, tensors_.values("out", place, size_.value_dim));
      const double dx = p * (dot(dout, v) - delta) * scale_;
      ref::add_scaled(dk.data(), dx, q.data(), size_.key_width());
      ref::add_scaled(dv.data(), p, dout.data(), size_.value_dim);
    }
  }
  for (size_t c = 0; size_.latent && c < dv.size(); ++c) dk[c] += dv[c];
  Row found = tensors_.values("dk", at * size_.head_dim, size_.head_dim);
  const Row rope = tensors_.values("dk_rope", at * size_.rope_dim, size_.rope_dim);
  found.insert(found.end(), rope.begin(), rope.end());
  compare("dk", found, dk, at);
  if (!size_.latent)
    compare("dv", tensors_.values("dv", at * size_.value_dim, size_.value_dim), dv, at);
}

void SparseCall::check(int samples) const {
  run(nullptr);
  tensors_.read_back();
  std::mt19937_64 random(9);
  for (int i = 0; i < samples; ++i) {
    check_row(static_cast<int64_t>(random() % size_.rows),
              static_cast<int64_t>(random() % size_.heads));
    const auto listed = static_cast<int64_t>(random() % (size_.rows * size_.topk));
    if (size_.backward) check_key(entry(listed / size_.topk, listed % size_.topk));
  }
}

}  // namespace bench
