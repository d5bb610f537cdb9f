// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes a kernel with a buffer, an mbarrier and the usual registers, for the tests of
// asynchronous instructions. The kernel runs under every policy, or until a seed shows what is
// missing.
#pragma once

#include <algorithm>

#include "sim/tests/kernel_run.h"

namespace sim::test {

constexpr AsyncPolicy kPolicies[] = {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random};

inline std::string kernel(const std::string& body, const std::string& shared = "4096") {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b32 %t, %rank;
  .shared .align 128 .b8 buffer[)" +
         shared + R"(];
  .shared .align 8 .b8 bar[64];
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %t, %tid.x;
  mov.u32 %rank, %cluster_ctarank;
  mul.wide.u32 %rd3, %t, 16; add.u64 %rd4, %rd1, %rd3;
  mov.u32 %r1, buffer; mov.u32 %r2, bar; shl.b32 %r3, %t, 4; add.u32 %r4, %r1, %r3;
)" + body +
         "\n  ret;\n}\n";
}

struct Trial {
  Outcome outcome;
  std::vector<uint32_t> out;
};

inline std::vector<uint32_t> numbers(size_t n) {
  std::vector<uint32_t> v(n);
  for (size_t k = 0; k < n; ++k) v[k] = static_cast<uint32_t>(k * 2654435761u + 17);
  return v;
}

inline Trial run(const std::string& ptx, AsyncPolicy policy, uint64_t seed, uint32_t threads = 32,
                 uint32_t blocks = 1, uint32_t cluster = 1, size_t words = 1024) {
  Device d;
  d.settings.async_policy = policy;
  d.settings.seed = seed;
  d.settings.instruction_limit = 3'000'000;
  d.cluster = cluster;
  d.load(ptx);
  const uint64_t in = d.upload(numbers(words));
  const uint64_t out = d.upload(std::vector<uint32_t>(words, 0));
  Trial t;
  t.outcome = d.run("k", blocks, threads, in, out);
  t.out = d.download<uint32_t>(out, words);
  return t;
}

// Checks that every policy and some seeds give the first `count` words of the input, and no
// finding.
inline void expect_copy(const std::string& ptx, size_t count, uint32_t threads = 32,
                        uint32_t blocks = 1, uint32_t cluster = 1) {
  const auto in = numbers(1024);
  for (const AsyncPolicy policy : kPolicies) {
    for (uint64_t seed = 0; seed < 7; ++seed) {
      const Trial t = run(ptx, policy, seed, threads, blocks, cluster);
      CAPTURE(static_cast<int>(policy));
      CAPTURE(seed);
      INFO(texts(t.outcome));
      REQUIRE(t.outcome.error == 0);
      CHECK(t.outcome.findings.empty());
      CHECK(std::equal(in.begin(), in.begin() + static_cast<long>(count), t.out.begin()));
    }
  }
}

// Checks that some seed shows the finding: a run may still go well by luck.
inline void expect_finding(const std::string& ptx, const std::string& kind, const std::string& at,
                           uint32_t threads = 32, uint32_t blocks = 1, uint32_t cluster = 1) {
  int line = 1;
  for (size_t k = 0; k < ptx.find(at); ++k) line += ptx[k] == '\n';
  std::string seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Trial t = run(ptx, AsyncPolicy::lazy, seed, threads, blocks, cluster);
    for (const Finding& f : t.outcome.findings) {
      if (f.kind == kind && f.ptx_line == line) return;
    }
    seen = texts(t.outcome);
  }
  FAIL_CHECK("expected " << kind << " at line " << line << ", found: " << seen);
}

inline const std::string kCopyOut = R"(
  ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r4]; add.u64 %rd5, %rd2, %rd3;
  st.global.v4.u32 [%rd5], {%r10,%r11,%r12,%r13};)";

inline std::string without(std::string text, const std::string& part,
                           const std::string& instead = "") {
  const size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), instead);
}

}  // namespace sim::test
