// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks a step of ring attention against plain loops in double.
#include <algorithm>

#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/attention/block/block_case.h"

namespace apitest {
namespace {

// Returns the part of row b of the batch.
Values part(const Values& all, size_t b, size_t parts) {
  const auto size = static_cast<std::ptrdiff_t>(all.size() / parts);
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(b) * size;
  return {from, from + size};
}

double largest(const Values& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::isnan(value) ? 0 : std::abs(value));
  return most;
}
double worst_of(const Values& found, const Values& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(found[i] - expected[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
  }
  return worst;
}

}  // namespace

// Weights are rounded once to the element type, so out is off by at most half a last place of it,
// relative to the largest value; and a few places of float32.
void check_block(const TileRow& row, const BlockInputs& in, bool first, const Answer& answer) {
  check_clean(answer);
  if (!answer.error.empty()) return;
  const size_t batch = in.blocks.size();
  for (size_t b = 0; b < batch; ++b) {
    CAPTURE(b);
    const ref::AttentionBlock& a = in.blocks[b];
    Values out = part(answer.at("out"), b, batch), lse = part(answer.at("lse"), b, batch);
    const Values out_before = part(in.out, b, batch), lse_before = part(in.lse, b, batch);
    ref::AttentionForward expected = {out_before, lse_before};
    if (first) {
      std::fill(expected.out.begin(), expected.out.end(), 0.0);
      std::fill(expected.lse.begin(), expected.lse.end(), -ref::kInfinity);
    }
    ref::attention_block(a, &expected);
    size_t touched = 0;
    for (int64_t cell = 0; !first && cell < a.rows * a.heads; ++cell) {
      const auto at = static_cast<size_t>(cell);
      if (expected.lse[at] != lse_before[at]) continue;
      const size_t from = a.query(cell % a.rows, cell / a.rows) * static_cast<size_t>(a.value_dim);
      const auto columns = [&](const Values& values) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(from);
        return Values(begin, begin + a.value_dim);
      };
      touched += lse[at] != lse_before[at] || !same_bits(columns(out), columns(out_before));
      std::fill_n(&out[from], a.value_dim, 0.0), std::fill_n(&expected.out[from], a.value_dim, 0.0);
    }
    CHECK(touched == 0);
    const double most = std::max(largest(a.v), 5.0);
    CHECK(worst_of(out, expected.out) <= (1.1 * numbers::half_ulp(row.dtype) + 2e-6) * most);
    check_near(lse, expected.lse, 1e-5, 1e-6, "lse");
  }
}

// At most twice what a computation loses that rounds weights and gradients of scores to the element
// type, and some places of float32.
void check_block_gradients(const TileRow& row, const BlockInputs& in, const std::string& first,
                           const Answer& answer) {
  check_clean(answer);
  if (!answer.error.empty()) return;
  const size_t batch = in.blocks.size();
  for (size_t b = 0; b < batch; ++b) {
    CAPTURE(b);
    ref::AttentionBlockGradients exact = {part(in.dq, b, batch), part(in.dk, b, batch),
                                          part(in.dv, b, batch)};
    if (first == "first") exact.dq.assign(exact.dq.size(), 0.0);
    if (!first.empty())
      exact.dk.assign(exact.dk.size(), 0.0), exact.dv.assign(exact.dv.size(), 0.0);
    ref::AttentionBlockGradients plain = exact;
    const Values dout = part(in.dout, b, batch), lse = part(in.whole, b, batch),
                 e = part(in.e, b, batch);
    ref::attention_block_backward(in.blocks[b], dout, lse, e, &exact);
    ref::attention_block_backward(in.blocks[b], dout, lse, e, &plain,
                                  [&](double x) { return numbers::rounded(row.dtype, x); });
    const auto check = [&](const char* name, const Values& right, const Values& rough) {
      CAPTURE(name);
      const double allowed = 2 * worst_of(rough, right) + 4e-6 * largest(right);
      CHECK(worst_of(part(answer.at(name), b, batch), right) <= allowed);
    };
    check("dq", exact.dq, plain.dq), check("dk", exact.dk, plain.dk);
    check("dv", exact.dv, plain.dv);
  }
}

}  // namespace apitest
