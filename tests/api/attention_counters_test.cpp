// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the kernels of flash_attention do, counted by the simulator at S 1024, causal, bf16, widths
// 64 and 128, and what the compiler made of them: nothing is multiplied but tiles that hold a pair
// which counts, memory is read once, shared memory without conflicts, registers without spills.
#include <doctest/doctest.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "codegen/kernels/attention_memory.h"
#include "tests/api/attention_call.h"
#include "tests/ref/attention_tiles.h"

using namespace apitest;

namespace {

constexpr int64_t kTokens = 1024;

lathe_kernel_info kernel_of(const lathe_plan* plan, size_t index) {
  lathe_kernel_info info{};
  info.size = sizeof info;
  API(lathe_plan_kernel(plan, index, &info));
  return info;
}

// The constant `name` of a kernel's spec.
int64_t constant(const lathe_kernel_info& kernel, const std::string& name) {
  const std::string spec = kernel.spec, key = " " + name + "=";
  const size_t at = spec.find(key);
  REQUIRE_MESSAGE(at != spec.npos, spec);
  return std::stoll(spec.substr(at + key.size()));
}

// The launches of one run, added up. Memory is what reaches the device at all, its second cache
// holding the keys and values of the heads in progress: each 32-byte sector once per launch.
struct Counted {
  double tensor_ops = 0, memory_bytes = 0, asked_bytes = 0;
};

Counted count(lathe_context* context, const AttentionCall& call) {
  take_report();
  call.run(nullptr);
  API(lathe_stream_synchronize(context, nullptr));
  const Report report = take_report();
  for (const auto& finding : report.findings) FAIL_CHECK(finding);
  REQUIRE(!report.launches.empty());
  Counted sum;
  for (const auto& line : report.launches) {
    const auto launch = nlohmann::json::parse(line);
    const auto number = [&](const std::string& name) { return launch.at(name).get<double>(); };
    sum.tensor_ops += number("tensor_ops");
    sum.memory_bytes += 32 * (number("unique_load_sectors") + number("unique_store_sectors"));
    for (const char* kind : {"global_load", "global_store", "global_atomic"}) {
      CHECK(number(std::string(kind) + "_sectors") ==
            number(std::string(kind) + "_minimum_sectors"));
      sum.asked_bytes += 32 * number(std::string(kind) + "_sectors");
    }
    CHECK(number("shared_load_conflicts") == 0);
    CHECK(number("shared_store_conflicts") == 0);
    CHECK(number("local_load_requests") == 0);
    CHECK(number("local_store_requests") == 0);
  }
  return sum;
}

TEST_CASE("counters: a causal forward multiplies what counts and reads memory once") {
  if (!on_simulator()) return;
  const auto context = make_context();
  for (const int64_t width : {64, 128}) {
    for (const int64_t kv_heads : {2, 1}) {
      AttentionSize size;
      size.seq_q = size.seq_k = kTokens;
      size.heads = 2, size.kv_heads = kv_heads;
      size.head_dim = size.value_dim = width;
      size.causal = true;
      const AttentionCall call(context.get(), size);
      CAPTURE(size.text());
      call.check(6);
      const Counted counted = count(context.get(), call);
      const auto kernel = kernel_of(call.plan(), 0);
      const int64_t rows = constant(kernel, "m"), keys = constant(kernel, "n");
      const ref::PairMask mask{kTokens, kTokens, true};
      const auto tiles = static_cast<double>(ref::visible_tiles(mask, rows, keys));
      const double pairs = static_cast<double>(ref::kept_pairs(mask)) * 2;  // two heads
      const double per_pair = 2.0 * 2 * static_cast<double>(width);         // two products
      const double useful = per_pair * tiles * static_cast<double>(rows * keys) * 2;
      std::cout << "forward " << size.text() << ": tensor operations "
                << counted.tensor_ops / useful << " times those of visible tiles, "
                << counted.tensor_ops / (pairs * per_pair) << " times those of pairs; memory "
                << counted.memory_bytes / size.minimum_bytes() << " times the minimum, asked for "
                << counted.asked_bytes / size.minimum_bytes() << " times\n";
      CHECK(counted.tensor_ops >= useful);
      CHECK(counted.tensor_ops <= 1.10 * useful);
      CHECK(counted.memory_bytes >= size.minimum_bytes());
      CHECK(counted.memory_bytes <= 1.2 * size.minimum_bytes());
      // What the second cache is asked for: q once, k and v once for each tile that sees them.
      const double own =
          size.minimum_bytes() - 2.0 * 2 * static_cast<double>(kTokens * kv_heads * width);
      const double tile_bytes = 2.0 * 2 * static_cast<double>(keys * width);
      CHECK(counted.asked_bytes <= own + 2 * tiles * tile_bytes);
    }
  }
}

// Plans without a device: what the compiler made of the default for each architecture.
TEST_CASE("counters: no spills, and registers for as many blocks as the choice counts on") {
  for (const std::string& arch : lathe::supported_archs()) {
    lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
    options.device = LATHE_DEVICE_NONE;
    options.arch = arch.c_str();
    options.cache_dir = LATHE_TEST_CACHE_DIR;
    lathe_context* made = nullptr;
    API(lathe_context_create(&made, &options));
    const Context context(made);
    const lathe::DeviceFacts facts = *lathe::facts_of_arch(arch);
    for (const int64_t width : {64, 128}) {
      lathe_problem* raw = nullptr;
      API(lathe_problem_create(&raw, "flash_attention"));
      const Problem problem(raw);
      const int64_t shape[] = {-1, -1, 2, width}, rows[] = {-1, 2, -1};
      for (const char* name : {"q", "k", "v", "out"}) {
        API(lathe_problem_tensor(raw, name, LATHE_BF16, 4, shape));
      }
      API(lathe_problem_tensor(raw, "lse", LATHE_F32, 3, rows));
      API(lathe_problem_set_int(raw, "causal", 1));
      lathe_plan* planned = nullptr;
      API(lathe_plan_create(&planned, made, raw));
      const Plan plan(planned);
      for (size_t i = 0; i < lathe_plan_kernel_count(planned); ++i) {
        const auto kernel = kernel_of(planned, i);
        CAPTURE(arch);
        CAPTURE(kernel.spec);
        CHECK(kernel.spill_bytes == 0);
        CHECK(kernel.stack_bytes == 0);
        lathe::KernelSpec spec;
        spec.threads = kernel.threads;
        spec.smem_bytes = kernel.smem_bytes;
        // A warp gets registers in units of 256.
        const int registers = (kernel.registers + 7) / 8 * 8 * kernel.threads;
        CHECK(kernel.registers > 0);
        CHECK(lathe::attention_resident_blocks(spec, facts) * registers <=
              facts.registers_per_multiprocessor);
      }
    }
  }
}

}  // namespace
