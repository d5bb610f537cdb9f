// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator counts what the kernels of flash_attention do at S 1024, causal, bf16, widths 64
// and 128. The tests also check what the compiler made of them: nothing is multiplied but tiles
// that hold a pair which counts, memory is read once, shared memory without conflicts, registers
// without spills.
#include <doctest/doctest.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "ops/attention/kernels.h"
#include "reference/attention_tiles.h"
#include "tests/ops/attention/large.h"

using namespace apitest;

namespace {

constexpr int64_t kTokens = 1024;

lathe_kernel_info kernel_of(const lathe_plan* plan, size_t index) {
  lathe_kernel_info info{};
  info.size = sizeof info;
  API(lathe_plan_kernel(plan, index, &info));
  return info;
}

// Returns the constant `name` of a kernel's spec.
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

Counted count(lathe_context* context, const LargeAttention& call) {
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
      const double sectors = number(std::string(kind) + "_sectors");
      const double least = number(std::string(kind) + "_minimum_sectors");
      // Where a thread reads 32 bytes in a row it does so in two requests of 16, each of which
      // touches every sector of the two.
      CHECK(sectors <= (call.size().backward ? 2 : 1) * least);
      sum.asked_bytes += 32 * sectors;
    }
    CHECK(number("shared_load_conflicts") == 0);
    CHECK(number("shared_store_conflicts") == 0);
    CHECK(number("local_load_requests") == 0);
    CHECK(number("local_store_requests") == 0);
  }
  return sum;
}

AttentionSize causal(int64_t width, int64_t kv_heads, bool backward) {
  AttentionSize size;
  size.seq_q = size.seq_k = kTokens;
  size.heads = 2, size.kv_heads = kv_heads;
  size.head_dim = size.value_dim = width;
  size.causal = true;
  size.backward = backward;
  return size;
}

// Returns the kernel of the plan whose tiles have two sides.
lathe_kernel_info tiled_kernel(const lathe_plan* plan) {
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    const auto kernel = kernel_of(plan, i);
    if (std::string(kernel.spec).find(" n=") != std::string::npos) return kernel;
  }
  FAIL("no kernel has a tile");
  return {};
}

// Rows that a short first tile does not have: as if rows of nobody, which see no key, were ahead of
// the others. The tile copies so many of the next one's.
int64_t missing_rows(const AttentionSize& size, const lathe_kernel_info& kernel) {
  if (std::string(kernel.spec).find(" short_first=1") == std::string::npos) return 0;
  const int64_t rows = constant(kernel, "m");
  return (rows - size.seq_q % rows) % rows;
}

// Operations of `products` in the tiles of `kernel` that hold a pair which counts.
double useful_ops(const AttentionSize& size, const lathe_kernel_info& kernel, double products) {
  const int64_t rows = constant(kernel, "m"), keys = constant(kernel, "n");
  const ref::PairMask mask{size.seq_q + missing_rows(size, kernel), size.seq_k, size.causal};
  const int64_t pairs = ref::visible_tiles(mask, rows, keys) * rows * keys * size.heads;
  return products * 2 * static_cast<double>(pairs * size.head_dim);
}

void print(const AttentionSize& size, const Counted& counted, double useful, double least) {
  std::cout << (size.backward ? "backward " : "forward ") << size.text() << ": tensor operations "
            << counted.tensor_ops / useful << " times those of visible tiles; memory "
            << counted.memory_bytes / least << " times the least, asked for "
            << counted.asked_bytes / least << " times\n";
}

TEST_CASE("counters: a causal forward multiplies what counts and reads memory once") {
  if (!on_simulator()) return;
  const auto context = make_context();
  for (const int64_t width : {64, 128}) {
    for (const int64_t kv_heads : {2, 1}) {
      const AttentionSize size = causal(width, kv_heads, false);
      const LargeAttention call(context.get(), size);
      CAPTURE(size.text());
      call.check(6);
      const Counted counted = count(context.get(), call);
      const auto kernel = tiled_kernel(call.plan());
      const double useful = useful_ops(size, kernel, 2), least = size.minimum_bytes();
      print(size, counted, useful, least);
      CHECK(counted.tensor_ops >= useful);
      CHECK(counted.tensor_ops <= 1.10 * useful);
      CHECK(counted.memory_bytes >= least);
      CHECK(counted.memory_bytes <= 1.2 * least);
      // The second cache is asked for q once, and for k and v once for each tile that sees them.
      const auto key_bytes = static_cast<double>(2 * 2 * kTokens * kv_heads * width);
      const double tile_bytes = useful / static_cast<double>(2 * 2 * constant(kernel, "m")) * 2 * 2;
      const auto again = static_cast<double>(missing_rows(size, kernel) * 2 * 2 * width);
      CHECK(counted.asked_bytes <= least - key_bytes + tile_bytes + again);
    }
  }
}

// Blocks that own keys add to dq, so its sums in float32 are zeroed, added to and read again, and
// two float32 of each row are written and read: what this way must move where no cache lasts from
// one launch to the next.
double backward_least(const AttentionSize& size) {
  const auto rows = static_cast<double>(size.seq_q * size.heads);
  return size.minimum_bytes() + rows * (3.0 * 4 * static_cast<double>(size.head_dim) + 2 * 2 * 4);
}

TEST_CASE("counters: a causal backward multiplies what counts and reads memory once") {
  if (!on_simulator()) return;
  const auto context = make_context();
  for (const int64_t width : {64, 128}) {
    const AttentionSize size = causal(width, 2, true);
    const LargeAttention call(context.get(), size);
    CAPTURE(size.text());
    call.check(4);
    const Counted counted = count(context.get(), call);
    const double useful = useful_ops(size, tiled_kernel(call.plan()), 5);
    print(size, counted, useful, backward_least(size));
    CHECK(counted.tensor_ops >= useful);
    CHECK(counted.tensor_ops <= 1.10 * useful);
    CHECK(counted.memory_bytes >= size.minimum_bytes());
    CHECK(counted.memory_bytes <= 1.2 * backward_least(size));
  }
}

// Plans a forward, or a backward by itself, with open lengths.
Plan plan_for(lathe_context* context, int64_t width, bool backward) {
  lathe_problem* raw = nullptr;
  API(lathe_problem_create(&raw, "flash_attention"));
  const Problem problem(raw);
  const int64_t shape[] = {-1, -1, 2, width}, rows[] = {-1, 2, -1};
  std::vector<const char*> names = {"q", "k", "v", "out"};
  if (backward) names.insert(names.end(), {"dout", "dq", "dk", "dv"});
  for (const char* name : names) API(lathe_problem_tensor(raw, name, LATHE_BF16, 4, shape));
  API(lathe_problem_tensor(raw, "lse", LATHE_F32, 3, rows));
  API(lathe_problem_set_int(raw, "causal", 1));
  API(lathe_problem_set_int(raw, "saved_forward", backward));
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, raw));
  return Plan(plan);
}

// Without a device: what the compiler made of the defaults for each architecture.
void check_registers(const std::string& arch, bool backward) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = LATHE_DEVICE_NONE;
  options.arch = arch.c_str();
  options.cache_dir = LATHE_TEST_CACHE_DIR;
  lathe_context* made = nullptr;
  API(lathe_context_create(&made, &options));
  const Context context(made);
  const lathe::DeviceFacts facts = *lathe::facts_of_arch(arch);
  for (const int64_t width : {64, 128}) {
    const Plan plan = plan_for(made, width, backward);
    for (size_t i = 0; i < lathe_plan_kernel_count(plan.get()); ++i) {
      const auto kernel = kernel_of(plan.get(), i);
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

TEST_CASE("counters: no spills, and registers for as many blocks as the choice counts on") {
  for (const std::string& arch : lathe::supported_archs()) check_registers(arch, false);
}

TEST_CASE("counters: the same of the backward, where shared memory is large and small") {
  for (const char* arch : {"sm_80", "sm_86", "sm_90a"}) check_registers(arch, true);
}

}  // namespace
