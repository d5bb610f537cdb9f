// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One prepared call of sparse_flash_attention through lathe.h, of the shapes that absorbed latent
// attention has, checked against float64 in sampled rows and keys before anybody times it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/session.h"

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
  // Every input read once, every output written once; of keys those that are listed.
  double minimum_bytes() const;
  // Keys and values of all lists, read once for all heads.
  double listed_bytes() const;
};

class SparseCall {
 public:
  SparseCall(lathe_context* context, const SparseSize& size);
  void run(void* stream) const { run(prepared_, stream); }
  // Runs, and throws with the first sample that is farther from float64 than roundings explain.
  void check(int samples) const;
  const lathe_plan* plan() const { return prepared_.plan.get(); }
  lathe_estimate estimate() const;

 private:
  struct Slot {
    lathe_dtype dtype = LATHE_BF16;
    std::vector<int64_t> shape;
    std::unique_ptr<apitest::Memory> memory;
    std::vector<unsigned char> bytes;  // what an input holds, or what was read back
    DLTensor tensor{};
  };
  struct Prepared {
    apitest::Plan plan;
    std::vector<const DLTensor*> order;
    std::unique_ptr<apitest::Memory> workspace;
  };
  using Row = std::vector<double>;
  void add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape);
  void upload(const char* name, std::vector<unsigned char> bytes);
  void read_back(const char* name);
  Prepared prepare(const std::vector<const char*>& names, bool saved_forward) const;
  void run(const Prepared& prepared, void* stream) const;
  // `count` elements from `first` on, as read back or uploaded.
  Row values(const char* name, int64_t first, int64_t count) const;
  Row query(int64_t row, int64_t head) const;  // rotary columns behind the others
  Row key(int64_t key) const;
  Row value(int64_t key) const;
  int64_t entry(int64_t row, int64_t place) const;
  void check_row(int64_t row, int64_t head) const;
  void check_key(int64_t key) const;
  void compare(const char* name, const Row& found, const Row& expected, int64_t at) const;

  lathe_context* context_;
  SparseSize size_;
  double scale_;
  mutable std::map<std::string, Slot> slots_;
  Prepared prepared_;
};

}  // namespace bench
