// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the operator sparse_flash_attention.
#include "ops/sparse/schema.h"

#include "ops/infer.h"
#include "ops/options.h"
#include "ops/sparse/ranks.h"
#include "ops/sparse/run.h"

namespace lathe {
namespace {

using Sparse = Bind<SparseOptions>;

constexpr OptionInfo kSparseOptions[] = {
    Sparse::number<&SparseOptions::scale>("scale", "unset", "unset|>0",
                                          "Scores are multiplied by it; it must be given."),
    Sparse::integer<&SparseOptions::block_size>(
        "block_size", "1", "1|2|4|8|16|32|64|128",
        "How many consecutive keys an entry names; 1 with absolute entries."),
    Sparse::integer<&SparseOptions::sparse_mode>(
        "sparse_mode", "0", "0|3",
        "3: a row sees no key after its position; 0: all keys that its list names."),
    Sparse::word<&SparseOptions::index_space>("index_space", "sequence", "sequence|absolute",
                                              "Entries count from the first key of the row's "
                                              "sequence, or from the first row of k (absolute)."),
    Sparse::integer<&SparseOptions::num_splits>("num_splits", "0", "0|>=0",
                                                "How many splits each list has, computed at the "
                                                "same time and joined; 0: chosen for the device."),
    Sparse::flag<&SparseOptions::deterministic>(
        "deterministic",
        "1: results and gradients repeat bit for bit, whatever other rows the call has."),
    Sparse::flag<&SparseOptions::sinks_in_statistics>(
        "sinks_in_statistics",
        "0: softmax_max, softmax_sum and lse leave the sinks out, which out counts.", "1|0"),
    Sparse::word<&SparseOptions::row_format>("row_format", "none", "none|e4m3_656",
                                             kRowFormatSentence),
    Sparse::flag<&SparseOptions::saved_forward>(
        kSavedForward,
        "Whether out, lse and statistics hold the results of an earlier forward; the backward "
        "reads the first two."),
};

// Sets the heads of a group, and the width of values that are columns of the keys.
void derive(const lathe_problem&, Extents* extents) {
  Extents& e = *extents;
  if (e[Dim::G] == kUnknown && e[Dim::H] != kUnknown && e[Dim::HK] > 0) {
    e[Dim::G] = e[Dim::H] / e[Dim::HK];
  }
  if (e[Dim::DV] == kUnknown) e[Dim::DV] = e[Dim::D];
}
// Values of rows of bytes are the columns of their codes.
void derive_all(const lathe_problem& problem, Extents* extents) {
  const bool bytes =
      problem.has(sparse_attention::k) && problem.tensors[sparse_attention::k].dtype == Dtype::u8;
  if (bytes && (*extents)[Dim::DV] == kUnknown) (*extents)[Dim::DV] = kByteRowValues;
  derive(problem, extents);
}

Status check_values(const Values& values) { return check_sinks(values, sparse_attention::sinks); }

constexpr Operator kOperators[] = {
    {.name = "sparse_flash_attention",
     .sentence = "Softmax attention of each row over the keys that its list names.",
     .tensors = sparse_attention::kTensors,
     .options = kSparseOptions,
     .produces = "out,dq,dk,dv,dq_rope,dk_rope,dsinks",
     .backward = "dout",
     .ranks = true,
     .sequences = Sequences::apart,
     .least_alignment = 16,
     .new_options = new_options<SparseOptions>,
     .check = check_sparse,
     .make = make_sparse,
     .derive = derive_all,
     .check_values = check_values},
};

}  // namespace

std::span<const Operator> sparse_operators() { return kOperators; }

}  // namespace lathe
