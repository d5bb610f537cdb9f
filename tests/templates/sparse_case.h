// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of sparse attention's kernels share: random problems with lists of every kind, and
// their inputs on the simulator's device.
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/sparse_attention.h"
#include "tests/numbers.h"
#include "tests/ref/sparse_plain.h"

namespace sparse_case {

// What a list names, beside random keys of the row's sequence.
enum class Lists {
  mixed,      // entries of every kind, anywhere: negative, past the end, named twice
  nothing,    // -1
  one_key,    // one key, topk times
  last_only,  // -1 but for the last entry
  all         // 0, 1, 2, ... (and -1 behind the last)
};

struct Shape {
  std::vector<int> rows, keys;  // by sequence; without `packed` all alike
  int padding_q = 0, padding_k = 0;
  int kv_heads = 1, group = 1;
  int head_dim = 64, rope_dim = 0, value_dim = 64;
  int topk = 32, block = 1;
  bool packed = false, causal = false, absolute = false, q_pos = false, sinks = false;
  bool values_in_keys = false;  // v is the first value_dim columns of k
  Lists lists = Lists::mixed;
};

// Rounded to the type. Keys that no list names, and padding, are NaN: they must reach nothing.
ref::SparseAttention make(const Shape& shape, lathe_dtype dtype, uint32_t seed);

std::vector<char> encode(lathe_dtype dtype, const ref::Array& values);
inline void* at(uint64_t address) { return reinterpret_cast<void*>(address); }
ref::Array decode(const sim::test::Device& device, lathe_dtype dtype, const void* from,
                  size_t count);

// Everything but head_tiles, which the tile decides. v is null if the shape has it in k; offsets
// are 32 or 64 bits wide.
lathe::SparseInputs upload(sim::test::Device& device, const Shape& shape,
                           const ref::SparseAttention& a, lathe_dtype dtype, bool wide_offsets);
// As [B, S, heads, width], dense.
void dense_strides(const Shape& shape, bool keys, int heads, int width, long long* batch,
                   long long* token, long long* head);

// NULL, and a message, if there is none.
std::shared_ptr<const lathe::Compiler> compiler();
// PTX of a kernel for sm_80, compiled once whoever asks; nothing may spill.
std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec);

// Under every check; no finding is right.
template <class Params>
sim::Counters launch(sim::test::Device& device, const lathe::KernelSpec& spec,
                     const std::string& ptx, int64_t blocks, const Params& p) {
  if (blocks == 0) return {};
  device.load(ptx);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome =
      device.run("entry", static_cast<uint32_t>(blocks), static_cast<uint32_t>(spec.threads), p);
  INFO(spec.text());
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  return outcome.counters;
}

}  // namespace sparse_case
