// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One prepared call of sparse_flash_attention through lathe.h, of the shapes that absorbed latent
// attention has, checked against float64 in sampled rows and keys before anybody times it.
#pragma once

#include "tests/harness/large_call.h"

namespace bench {

struct SparseSize {
  int64_t rows = 1, keys = 1, heads = 64, topk = 512;  // of one key head
  int64_t head_dim = 512, rope_dim = 64, value_dim = 512;
  bool latent = true;  // values are the first columns of the keys
  bool backward = false, deterministic = false;

  std::string text() const;
  int64_t key_width() const { return head_dim + rope_dim; }
  // 2 (D + R + DV) for each head and listed key, as published figures count; a backward has five
  // products.
  double flops() const;
  // Returns the bytes if every input is read once and every output written once; of keys those that
  // are listed.
  double minimum_bytes() const;
  // Returns the bytes of keys and values of all lists, read once for all heads.
  double listed_bytes() const;
};

class SparseCall {
 public:
  SparseCall(lathe_context* context, const SparseSize& size);
  void run(void* stream) const { prepared_.run(stream); }
  // Runs, and throws with the first sample that is farther from float64 than roundings explain.
  void check(int samples) const;
  const lathe_plan* plan() const { return prepared_.plan(); }

 private:
  using Row = std::vector<double>;
  // A plan of all tensors that there are.
  apitest::LargeCall prepare(bool saved_forward) const;
  Row query(int64_t row, int64_t head) const;  // rotary columns behind the others
  Row key(int64_t key) const;
  Row value(int64_t key) const;
  int64_t entry(int64_t row, int64_t place) const;
  void check_row(int64_t row, int64_t head) const;
  void check_key(int64_t key) const;
  void compare(const char* name, const Row& found, const Row& expected, int64_t at) const;

  SparseSize size_;
  double scale_;
  apitest::LargeTensors tensors_;
  apitest::LargeCall prepared_;
};

}  // namespace bench
