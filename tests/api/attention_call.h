// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One prepared flash_attention call through lathe.h, large enough to be timed or counted, and
// checked against float64 in sampled rows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/api/session.h"

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

  std::string text() const;
  int64_t parts() const { return sequences > 0 ? sequences : batch; }
  int64_t queries(int64_t part) const { return length(seq_q, part); }
  int64_t keys(int64_t part) const { return length(seq_k, part); }
  // 2 (D + DV) for each head and pair of a row and a key, half of the pairs if causal: what
  // published figures count.
  double flops() const;
  // Every input read once, every output written once.
  double minimum_bytes() const;

 private:
  int64_t length(int64_t tokens, int64_t part) const {
    if (sequences == 0) return tokens;
    return (part + 1) * tokens / sequences - part * tokens / sequences;
  }
};

class AttentionCall {
 public:
  // Every extent is promised to the plan, which may choose by it.
  AttentionCall(lathe_context* context, const AttentionSize& size,
                const std::map<std::string, std::string>& options = {});
  void run(void* stream) const;
  // Runs, and throws with the first sampled row that is farther from float64 than roundings
  // explain.
  void check(int rows = 24) const;
  const lathe_plan* plan() const { return plan_.get(); }
  lathe_estimate estimate() const;
  const AttentionSize& size() const { return size_; }

 private:
  struct Slot {
    lathe_dtype dtype = LATHE_BF16;
    std::vector<int64_t> shape;
    std::unique_ptr<Memory> memory;
    std::vector<unsigned char> bytes;  // what an input holds
    DLTensor tensor{};
  };
  void add(lathe_problem* problem, const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
           bool input);
  void offsets(lathe_problem* problem, const char* name, int64_t tokens);
  // `count` elements from `first` on.
  static std::vector<double> values(const Slot& slot, const std::vector<unsigned char>& bytes,
                                    int64_t first, int64_t count);
  std::vector<unsigned char> download(const std::string& name) const;
  // One row of one head as a problem of its own.
  struct Row {
    int64_t part = 0, head = 0, row = 0;
  };
  int64_t first(int64_t tokens, int64_t part) const;  // token of a sequence
  ref::Attention alone(const Row& row) const;

  lathe_context* context_;
  AttentionSize size_;
  std::map<std::string, Slot> slots_;
  Plan plan_;
  std::vector<const DLTensor*> order_;
  std::unique_ptr<Memory> workspace_;
};

}  // namespace apitest
