// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/exact_sums.h"

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "collective/exchange.h"
#include "ops/dims.h"
#include "templates/params/exact_sums.h"

namespace lathe {
namespace {

constexpr int kThreads = 256, kColumns = 32;

}  // namespace

KernelSpec exact_sums_spec() {
  return shared_spec(LATHE_TEMPLATE("rows", "exact_sums", ExactSumsParams, columns),
                     "ExactSumsSmem", 8 * kExactWords * kThreads, kThreads);
}

KernelSpec exact_round_spec() {
  return KernelSpec::of(LATHE_TEMPLATE("rows", "exact_round", ExactRoundParams, reserved), kThreads,
                        {});
}

ExactSumKernels ExactSumKernels::make() { return {exact_sums_spec(), exact_round_spec()}; }

int64_t exact_sum_bytes(int64_t columns) { return bounded_product({8, kExactWords, columns}); }

Status make_exact_sums(const ExactSumKernels& kernels, const ExactSum& sum, Group* group,
                       CUstream_st* stream) {
  if (sum.columns == 0) return {};
  if (sum.columns > kMaxExtent || sum.rows > kMaxExtent) {
    return unsupported(text("a parameter's gradient has ", sum.columns, " sums of ", sum.rows,
                            " terms; allowed are 0 to ", kMaxExtent, " of either"));
  }
  ExactSumsParams add = {};
  add.terms = sum.terms, add.sums = sum.words, add.row_stride = sum.row_stride;
  add.rows = static_cast<int>(sum.rows), add.columns = static_cast<int>(sum.columns);
  LATHE_TRY(kernels.add.launch(ceil_div(sum.columns, kColumns), &add, stream));
  if (group) {
    const auto words = static_cast<size_t>(kExactWords * sum.columns);
    LATHE_TRY(all_reduce_i64(*group, sum.words, words, stream));
  }
  ExactRoundParams round = {};
  round.sums = sum.words, round.out = sum.out, round.columns = static_cast<int>(sum.columns);
  return kernels.round.launch(ceil_div(sum.columns, kThreads), &round, stream);
}

}  // namespace lathe
