// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tests of the kernels in templates/rows share a kernel on the simulator under every checker,
// and values of each type.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/row_kernels.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/rows.h"
#include "tests/numbers.h"

namespace rows {

using lathe::Dtype;
using lathe::KernelSpec;
using lathe::RowIndex;
using Bytes = std::vector<uint8_t>;

inline void* at(uint64_t address) { return reinterpret_cast<void*>(address); }
inline uint64_t address(const void* at) { return reinterpret_cast<uint64_t>(at); }
inline lathe_dtype tested(Dtype dtype) { return static_cast<lathe_dtype>(dtype); }

// A kernel on a device of its own, with schedules in turn.
class Runner {
 public:
  Runner(const lathe::Compiler& compiler, const KernelSpec& spec, uint32_t seed)
      : spec_(spec), device_("sm_80") {
    const auto compiled = compiler.compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    CHECK(compiled->report.spill_stores == 0);
    device_.settings.seed = seed;
    device_.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
    device_.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
    device_.load(compiled->ptx);
  }
  sim::test::Device& device() { return device_; }
  template <class Params>
  void run(int64_t blocks, const Params& p) {
    const auto outcome = device_.run("entry", static_cast<uint32_t>(blocks),
                                     static_cast<uint32_t>(spec_.threads), p);
    INFO(sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
  }

 private:
  KernelSpec spec_;
  sim::test::Device device_;
};

inline std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

struct Values {
  Dtype type;
  std::vector<float> value;  // rounded to the type

  static Values random(Dtype type, int64_t count, std::mt19937& random) {
    std::normal_distribution<double> normal;
    Values out{type, {}};
    for (int64_t i = 0; i < count; ++i) {
      // The sizes differ, so that a sum in another order has other bits.
      const double size = random() % 3 == 0 ? 1e3 : 1;
      out.value.push_back(
          static_cast<float>(numbers::rounded(tested(type), size * normal(random))));
    }
    return out;
  }
  Bytes bytes() const {
    const size_t each = numbers::bytes_of(tested(type));
    Bytes out(value.size() * each);
    for (size_t i = 0; i < value.size(); ++i) {
      numbers::encode(tested(type), value[i], &out[i * each]);
    }
    return out;
  }
};

inline std::vector<float> decoded(const Bytes& bytes, Dtype type) {
  const size_t each = numbers::bytes_of(tested(type));
  std::vector<float> out;
  for (size_t i = 0; i < bytes.size(); i += each) {
    out.push_back(static_cast<float>(numbers::decode(tested(type), &bytes[i])));
  }
  return out;
}
inline float rounded(Dtype type, float value) {
  return static_cast<float>(numbers::rounded(tested(type), value));
}

}  // namespace rows
