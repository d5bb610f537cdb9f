// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/kda_predict.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "bench/operators/chain.h"
#include "bench/operators/kda_call.h"
#include "ops/kda/chunked_kernels.h"
#include "sim/model/model.h"

namespace bench {
namespace {

using Json = nlohmann::json;

constexpr int kWarpsOfScheduler = 16;
constexpr int kSchedulers = 4;

// True if every line that ran holds, in this text, what ran there.
bool ran_as(const Json& launch, const std::vector<std::string>& lines) {
  for (const Json& line : launch.at("lines")) {
    const auto at = static_cast<size_t>(line.at("ptx_line").get<int>() - 1);
    std::string word = line.at("text").get<std::string>();
    word = word.substr(0, word.find(' '));
    if (at >= lines.size() || lines[at].find(word) == std::string::npos) return false;
  }
  return true;
}

struct PlanKernel {
  lathe_kernel_info info{};
  std::string ptx;
  std::vector<std::string> lines;
};

std::vector<PlanKernel> kernels_of(const lathe_plan* plan) {
  std::vector<PlanKernel> all(lathe_plan_kernel_count(plan));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].info.size = sizeof all[i].info;
    API(lathe_plan_kernel(plan, i, &all[i].info));
    const char* text = nullptr;
    size_t size = 0;
    API(lathe_plan_kernel_text(plan, i, LATHE_TEXT_PTX, &text, &size));
    all[i].ptx.assign(text, size);
    std::istringstream stream(all[i].ptx);
    for (std::string line; std::getline(stream, line);) all[i].lines.push_back(line);
  }
  return all;
}

KdaLaunchCounts counts_of(const Json& launch, const PlanKernel& kernel) {
  KdaLaunchCounts out;
  const auto number = [&](const std::string& name) { return launch.at(name).get<double>(); };
  out.kernel = kernel.info.name;
  out.blocks = launch.at("grid")[0].get<double>() * launch.at("grid")[1].get<double>();
  out.threads = launch.at("block")[0].get<double>();
  out.registers = kernel.info.registers, out.shared_bytes = kernel.info.smem_bytes;
  out.spill_bytes = kernel.info.spill_bytes;
  out.memory_bytes = 32 * (number("unique_load_sectors") + number("unique_store_sectors"));
  for (const char* kind : {"global_load", "global_store", "global_atomic"}) {
    out.asked_bytes += 32 * number(std::string(kind) + "_sectors");
  }
  out.wavefronts = number("shared_load_wavefronts") + number("shared_store_wavefronts");
  out.conflicts = number("shared_load_conflicts") + number("shared_store_conflicts");
  out.local_requests = number("local_load_requests") + number("local_store_requests");
  out.tensor_ops = number("tensor_ops");
  for (const auto& [name, count] : launch.at("by_class").items()) {
    out.classes.emplace_back(name, count.get<double>());
  }
  std::map<int, uint64_t> executions;
  for (const Json& line : launch.at("lines")) {
    executions[line.at("ptx_line").get<int>()] += line.at("executions").get<uint64_t>();
  }
  const double warps = out.blocks * out.threads / 32;
  const auto code = stretches(kernel.ptx, executions, warps);
  out.issue = chain_issue(code) * warps;
  for (int w = 1; w <= kWarpsOfScheduler; ++w) out.chain.push_back(chain_cycles(code, w));
  return out;
}

std::vector<KdaLaunchCounts> run_once(lathe_context* context, const KdaSize& size) {
  const KdaCall call(context, size);
  const auto lines = apitest::counted_launches([&] {
    call.run(nullptr);
    API(lathe_stream_synchronize(context, nullptr));
  });
  const std::vector<PlanKernel> kernels = kernels_of(call.plan());
  std::vector<KdaLaunchCounts> launches;
  for (const std::string& line : lines) {
    const Json launch = Json::parse(line);
    const auto kernel = std::find_if(kernels.begin(), kernels.end(),
                                     [&](const PlanKernel& k) { return ran_as(launch, k.lines); });
    if (kernel == kernels.end()) throw std::runtime_error("a launch is of no kernel of the plan");
    launches.push_back(counts_of(launch, *kernel));
  }
  return launches;
}

// Returns the call's own sizes but one head, one sequence and `tokens`.
KdaSize unit_of(const KdaSize& size, int64_t tokens, int64_t segments) {
  KdaSize unit = size;
  unit.batch = 1, unit.heads = 1;
  unit.sequences = size.sequences > 0 ? 1 : 0;
  unit.tokens = tokens, unit.segments = segments;
  return unit;
}

}  // namespace

std::vector<KdaLaunchCounts> kda_counts(lathe_context* context, const KdaSize& size) {
  const int64_t segments = std::max<int64_t>(size.segments, 1);
  const int64_t short_tokens = 128 * segments, long_tokens = 256 * segments;
  const auto low = run_once(context, unit_of(size, short_tokens, segments));
  auto all = run_once(context, unit_of(size, long_tokens, segments));
  if (low.size() != all.size()) throw std::runtime_error("launches depend on the length");
  const double tokens =
      static_cast<double>(size.batch * size.tokens) / static_cast<double>(size.parts());
  const double heads = static_cast<double>(size.heads * size.parts());
  const double reach = (tokens - static_cast<double>(short_tokens)) /
                       static_cast<double>(long_tokens - short_tokens);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto along = [&](double* to, double from, double times) {
      *to = times * (from + (*to - from) * reach);
    };
    KdaLaunchCounts& one = all[i];
    // A chain is a straight line over all thread blocks together, and so over one of them where the
    // grid does not grow with the length.
    const auto total = [&](const KdaLaunchCounts& launch, size_t k) {
      return launch.chain[k] * launch.blocks;
    };
    const double blocks = low[i].blocks + (one.blocks - low[i].blocks) * reach;
    for (size_t k = 0; k < one.chain.size(); ++k) {
      const double from = total(low[i], k), to = total(one, k);
      one.chain[k] = (from + (to - from) * reach) / blocks;
    }
    for (const auto member :
         {&KdaLaunchCounts::blocks, &KdaLaunchCounts::issue, &KdaLaunchCounts::memory_bytes,
          &KdaLaunchCounts::asked_bytes, &KdaLaunchCounts::wavefronts, &KdaLaunchCounts::conflicts,
          &KdaLaunchCounts::local_requests, &KdaLaunchCounts::tensor_ops}) {
      along(&(one.*member), low[i].*member, heads);
    }
    for (size_t k = 0; k < one.classes.size(); ++k) {
      along(&one.classes[k].second, low[i].classes.at(k).second, heads);
    }
  }
  for (KdaLaunchCounts& one : all) {
    if (one.kernel != "kda_summary") continue;
    // Not every block has work: the last segment hands no state on, the first no gradient, and one
    // at an end of the chain needs no transition; with as many columns of K as of V.
    const double kinds = size.backward ? 3 : 2, each = static_cast<double>(segments);
    const double share = (kinds * each - kinds - 1) / (kinds * each);
    one.blocks *= share;
    for (double& cycles : one.chain) cycles /= share;
  }
  return all;
}

int64_t kda_chosen_segments(const KdaSize& size, const std::string& gpu) {
  const auto type = [](lathe_dtype dtype) {
    return dtype == LATHE_F32   ? lathe::Dtype::f32
           : dtype == LATHE_F16 ? lathe::Dtype::f16
                                : lathe::Dtype::bf16;
  };
  lathe::KdaProblem problem;
  problem.element = problem.beta = type(size.dtype), problem.gate = type(size.gate);
  problem.key_dim = static_cast<int>(size.key_dim);
  problem.value_dim = static_cast<int>(size.value_dim);
  problem.packed = size.sequences > 0, problem.segmented = true;
  problem.forward = !size.backward, problem.backward = size.backward;
  problem.grouped = size.group > 1;
  const auto facts = lathe::facts_of_gpu(gpu);
  if (!facts.ok()) throw std::runtime_error(facts.status().text());
  const auto kernels = lathe::kda_chunked_kernels(problem, *facts);
  if (!kernels.ok()) throw std::runtime_error(kernels.status().text());
  lathe::KdaChunkedShape shape;
  shape.sequences = size.parts(), shape.heads = size.heads;
  shape.value_heads = size.value_heads(), shape.tokens = size.tokens;
  return lathe::kda_segments(problem, *kernels, *facts, shape, static_cast<int>(size.segments));
}

double memory_rate(const std::string& gpu) {
  const auto facts = lathe::facts_of_gpu(gpu);
  if (!facts.ok()) throw std::runtime_error("no rates of " + gpu);
  return facts->memory_bytes_per_second;
}

KdaPrediction kda_predict(const std::vector<KdaLaunchCounts>& launches, const std::string& gpu) {
  const sim::model::Gpu* rates = sim::model::find_gpu(gpu);
  const auto facts = lathe::facts_of_gpu(gpu);
  if (rates == nullptr || !facts.ok()) throw std::runtime_error("no rates of " + gpu);
  KdaPrediction out;
  double longest = -1;
  for (const KdaLaunchCounts& one : launches) {
    const auto whole = [](double value) { return static_cast<uint64_t>(std::max(0.0, value)); };
    sim::Counters counters;
    counters.warp_instructions = whole(one.issue);
    for (const auto& [name, count] : one.classes) counters.by_class[name] = whole(count);
    counters.unique_load_sectors = whole(one.memory_bytes / 32);
    counters.global_load.sectors = whole(one.asked_bytes / 32);
    counters.shared_load.wavefronts = whole(one.wavefronts);
    counters.tensor_ops = whole(one.tensor_ops);
    const auto busy = sim::model::predict(counters, whole(one.blocks), *rates);
    const Residence at =
        residence({static_cast<int>(one.threads), one.registers, one.shared_bytes}, one.blocks,
                  facts->multiprocessors, facts->shared_bytes_per_multiprocessor,
                  facts->registers_per_multiprocessor);
    const int warps = at.resident * static_cast<int>(one.threads) / 32;
    const int sharing = std::clamp((warps + kSchedulers - 1) / kSchedulers, 1, kWarpsOfScheduler);
    const double chain =
        1e6 * at.rounds * one.chain.at(static_cast<size_t>(sharing - 1)) / rates->clock_hz;
    const double launch = 1e6 * rates->launch_seconds;
    const double working = 1e6 * busy.seconds - launch, took = std::max(working, chain) + launch;
    out.busy_microseconds += working + launch;
    out.chain_microseconds += chain + launch;
    out.microseconds += took;
    if (took <= longest) continue;
    longest = took;
    out.bound = chain > working ? "chain" : busy.bound;
  }
  return out;
}

}  // namespace bench
