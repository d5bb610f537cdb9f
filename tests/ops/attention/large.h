// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one prepared call of flash_attention or flash_attention_decode through lathe.h,
// large enough to be timed or counted, and checked against float64 in sampled rows.
#pragma once

#include "tests/harness/large_call.h"

namespace ref {
struct Attention;
}

namespace apitest {

struct AttentionSize {
  lathe_dtype dtype = LATHE_BF16;
  int64_t batch = 1, seq_q = 1, seq_k = 1;  // packed: of all sequences together, batch being 1
  int64_t heads = 1, kv_heads = 1, head_dim = 64, value_dim = 64;
  bool causal = false;
  int64_t window_left = -1;
  int64_t sequences = 0;  // packed into that many; 0: not packed
  bool backward = false;  // dq, dk and dv, from out and lse of a forward that is not part of it
  bool deterministic = false;
  int64_t page = 0;  // decode, over a cache in shuffled pages of so many keys; 0: no decode

  std::string text() const;
  int64_t parts() const { return sequences > 0 ? sequences : batch; }
  int64_t queries(int64_t part) const { return length(seq_q, part); }
  int64_t keys(int64_t part) const { return length(seq_k, part); }
  // Counts 2 (D + DV) for each head and pair of a row and a key, half of the pairs if causal and
  // not decoding; a backward is 2.5 forwards. Published figures count so.
  double flops() const;
  // Counts every input read once and every output written once.
  double minimum_bytes() const;

 private:
  int64_t length(int64_t tokens, int64_t part) const {
    if (sequences == 0) return tokens;
    return (part + 1) * tokens / sequences - part * tokens / sequences;
  }
};

class LargeAttention {
 public:
  // Every extent is declared to the plan, which may choose by it. A backward runs its forward here.
  LargeAttention(lathe_context* context, const AttentionSize& size);
  void run(void* stream) const { prepared_.run(stream); }
  // Runs, and throws with the first sampled row that is farther from float64 than roundings
  // explain.
  void check(int rows = 24) const;
  const lathe_plan* plan() const { return prepared_.plan(); }
  const AttentionSize& size() const { return size_; }

 private:
  void draw(const char* name, std::vector<int64_t> shape);  // an input
  void integers(const char* name, std::vector<int64_t> shape, const std::vector<int32_t>& values);
  void offsets(const char* name, int64_t tokens);
  void add_tokens();  // what flash_attention reads and writes
  void add_pages();   // what flash_attention_decode does
  // Makes a plan of these tensors, and those that every call has.
  LargeCall prepare(LargeTensors::Names names, bool saved_forward) const;
  // A Row is token `row` of a sequence, and a head of it.
  struct Row {
    int64_t part = 0, head = 0, row = 0;
  };
  int64_t first(int64_t tokens, int64_t part) const;   // token of a sequence
  int64_t key_token(int64_t part, int64_t key) const;  // where its row of k and v lies
  const char* keys_name() const { return size_.page > 0 ? "k_cache" : "k"; }
  const char* values_name() const { return size_.page > 0 ? "v_cache" : "v"; }
  int64_t lse_place(const Row& row) const;
  ref::Attention alone(const Row& row) const;  // as a problem of its own
  void check_row(const Row& row) const;
  void check_key(const Row& key) const;
  [[noreturn]] void fail(const char* name, const Row& at, size_t column, double found,
                         double expected) const;
  // Throws if `found` is farther from `expected` than a share of its root mean square.
  void compare(const char* name, const Row& at, const std::vector<double>& found,
               const std::vector<double>& expected) const;

  AttentionSize size_;
  LargeTensors tensors_;
  std::vector<int32_t> pages_;  // block_table
  LargeCall prepared_;
};

}  // namespace apitest
