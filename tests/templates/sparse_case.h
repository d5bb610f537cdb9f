// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of sparse attention's kernels share: inputs on the simulator's device, launches.
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
#include "tests/ref/sparse_inputs.h"
#include "tests/ref/sparse_plain.h"

namespace sparse_case {

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
// PTX of a kernel, compiled once whoever asks; nothing may spill.
std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec,
                    const std::string& arch = "sm_80");

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
