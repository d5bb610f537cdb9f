// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe explain`: which kernels would run, of which constants they are made, what they cost.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "api/cli/options.h"
#include "api/cli/progress.h"
#include "api/cli/report.h"
#include "api/cli/verbs.h"

namespace lathe::cli {
namespace {

struct ExplainOptions {
  ProblemOptions problem;
  DeviceOptions device;
  bool json = false;
};

// Bytes and time need lengths; with an open extent there are none.
std::optional<lathe_estimate> estimate(const lathe_plan* plan, const Problem& problem) {
  std::map<std::string, ShapeTensor> tensors;
  for (const auto* specs : {&problem.inputs, &problem.outputs}) {
    for (const auto& [name, spec] : *specs) {
      if (std::count(spec.shape.begin(), spec.shape.end(), -1) > 0) return std::nullopt;
      tensors.try_emplace(name, spec);
    }
  }
  std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan), nullptr);
  for (const auto& [name, tensor] : tensors) {
    size_t slot = 0;
    check(lathe_plan_slot(plan, name.c_str(), &slot));
    slots[slot] = tensor.dlpack();
  }
  lathe_estimate out{};
  out.size = sizeof out;
  check(lathe_plan_estimate(plan, slots.data(), nullptr, &out));
  return out;
}

std::string number_or_unknown(int value) { return value < 0 ? "?" : std::to_string(value); }

// 1234567 as 1,234,567.
std::string grouped(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

void print_kernel(const lathe_kernel_info& kernel) {
  std::printf("%s\n", kernel.name);
  std::printf("  made of    %s\n", kernel.spec);
  std::printf("  key        %s\n", kernel.key);
  std::printf("  from       %s", kernel.from);
  if (std::string(kernel.from) == "compiler") std::printf(", %.0f ms", kernel.compile_ms);
  std::printf(
      "\n  threads %s, registers %s, shared memory %s bytes, spills %s bytes, stack %s "
      "bytes\n",
      number_or_unknown(kernel.threads).c_str(), number_or_unknown(kernel.registers).c_str(),
      number_or_unknown(kernel.smem_bytes).c_str(), number_or_unknown(kernel.spill_bytes).c_str(),
      number_or_unknown(kernel.stack_bytes).c_str());
}

void print_estimate(const std::optional<lathe_estimate>& cost) {
  if (!cost) {
    std::printf("bytes and time: give every extent (no -1) to see them\n");
    return;
  }
  const double ratio = cost->minimum_bytes == 0 ? 1.0
                                                : static_cast<double>(cost->bytes) /
                                                      static_cast<double>(cost->minimum_bytes);
  std::printf("launches   %s\n", grouped(cost->launches).c_str());
  std::printf("bytes      %s, %.3f times the minimum of %s\n", grouped(cost->bytes).c_str(), ratio,
              grouped(cost->minimum_bytes).c_str());
  std::printf("flops      %s\n", grouped(cost->flops).c_str());
  if (cost->tensor_ops > 0) {
    const double waste =
        cost->flops == 0 ? 1.0
                         : static_cast<double>(cost->tensor_ops) / static_cast<double>(cost->flops);
    std::printf("tensor ops %s, %.3f times the flops\n", grouped(cost->tensor_ops).c_str(), waste);
  }
  if (cost->microseconds > 0) {
    std::printf(
        "time       %.2f us, bound by %s: a prediction, at best, from the data sheet of %s\n",
        cost->microseconds, cost->bound, cost->gpu);
    std::printf("           memory alone %.2f us", cost->memory_microseconds);
    if (cost->tensor_ops > 0)
      std::printf(", tensor cores alone %.2f us", cost->tensor_microseconds);
    if (cost->chain_microseconds > 0) {
      std::printf(", thread blocks one after another %.2f us", cost->chain_microseconds);
    }
    std::printf("\n");
  } else {
    std::printf("time       unknown; bound by %s\n", cost->bound);
  }
}

Json kernel_json(const lathe_kernel_info& kernel) {
  return {{"name", kernel.name},
          {"spec", kernel.spec},
          {"key", kernel.key},
          {"from", kernel.from},
          {"threads", kernel.threads},
          {"registers", kernel.registers},
          {"smem_bytes", kernel.smem_bytes},
          {"spill_bytes", kernel.spill_bytes},
          {"stack_bytes", kernel.stack_bytes},
          {"compile_ms", kernel.compile_ms}};
}

Json estimate_json(const lathe_estimate& cost) {
  return {{"launches", cost.launches},
          {"bytes", cost.bytes},
          {"minimum_bytes", cost.minimum_bytes},
          {"flops", cost.flops},
          {"microseconds", cost.microseconds},
          {"bound", cost.bound},
          {"tensor_ops", cost.tensor_ops},
          {"memory_microseconds", cost.memory_microseconds},
          {"gpu", cost.gpu},
          {"tensor_microseconds", cost.tensor_microseconds},
          {"chain_microseconds", cost.chain_microseconds}};
}

std::string tensors_text(const Specs& specs) {
  std::vector<std::string> out;
  for (const auto& [name, spec] : specs) {
    out.push_back(name + " " + info(spec.dtype).word + shape_text(spec.shape));
  }
  return joined(out);
}

void print_all(const Problem& problem, const lathe_context* context, const lathe_plan* plan) {
  const lathe_context_info about = context_info(context);
  std::printf("%s for %s, device %s\n", problem.op->name, about.arch, device_word(about.device));
  std::printf("  in         %s\n  out        %s\n\n", tensors_text(problem.inputs).c_str(),
              tensors_text(problem.outputs).c_str());
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) print_kernel(kernel_info(plan, i));
  std::printf(
      "\nnot in any key: %s, strides, pointers; they are parameters of the launch, so "
      "a new length compiles nothing\n\n",
      joined(varying_letters(*problem.op)).c_str());
  print_estimate(estimate(plan, problem));
}

void print_all_json(const Problem& problem, const lathe_context* context, const lathe_plan* plan) {
  const Report report(context);
  Json json = {{"op", problem.op->name}, {"device", report.device}, {"arch", report.arch}};
  json["kernels"] = Json::array();
  for (size_t i = 0; i < lathe_plan_kernel_count(plan); ++i) {
    json["kernels"].push_back(kernel_json(kernel_info(plan, i)));
  }
  json["varies"] = varying_letters(*problem.op);
  const auto cost = estimate(plan, problem);
  json["estimate"] = cost ? estimate_json(*cost) : Json(nullptr);
  print_json(json);
}

int explain(const ExplainOptions& options) {
  const Problem problem = problem_from(options.problem);
  const ProblemHandle handle = declare(problem);
  const Context context = open_context(options.device);
  Progress progress("compiling");
  lathe_plan* raw = nullptr;
  check(lathe_plan_create(&raw, context.get(), handle.get()));
  const Plan plan(raw);
  (options.json ? print_all_json : print_all)(problem, context.get(), plan.get());
  return kDone;
}

}  // namespace

Action add_explain(CLI::App* app) {
  auto* verb = app->add_subcommand("explain", "what would run, why, and what it costs");
  const auto options = std::make_shared<ExplainOptions>();
  add_problem_flags(verb, &options->problem);
  add_device_flags(verb, &options->device, {"none", "auto", "cuda", "sim"});
  add_json_flag(verb, &options->json);
  return [options] { return explain(*options); };
}

}  // namespace lathe::cli
