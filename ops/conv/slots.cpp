// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// causal_conv1d over slots of a pool, and with its result in parts: what is refused beyond the
// tables, and the launch.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "ops/conv/run.h"

namespace lathe {
namespace {

using namespace conv;

constexpr PoolTensors kPool = {
    .state_pool = state_pool,
    .state_indices = state_indices,
    .source_indices = source_indices,
    .has_initial_state = has_initial_state,
    .cu_seqlens = cu_seqlens,
    .cu_checkpoints = cu_checkpoints,
    .checkpoint_tokens = checkpoint_tokens,
    .checkpoint_slots = checkpoint_slots,
};

Dim part_dim(size_t part) { return static_cast<Dim>(static_cast<size_t>(Dim::D0) + part); }

// With split there are as many results as it has entries, of its channels; without it y alone.
Status check_parts(const Resolved& resolved, const std::vector<int64_t>& widths) {
  for (int part = 0; part < kConvMostParts; ++part) {
    const char* name = kTensors[y_0 + part].name;
    const auto number = static_cast<size_t>(part);
    const bool wanted = number < widths.size();
    if (resolved.has(y_0 + part) == wanted || (wanted && !resolved.has(y_0))) continue;
    return invalid(text(name, wanted ? " is not declared" : " is declared", " and option split is ",
                        in_quotes(resolved.problem.option("split")), "; allowed are ",
                        widths.empty() ? "y alone, or split with the channels of each part"
                                       : text("y_0 to y_", widths.size() - 1)));
  }
  if (widths.empty()) return {};
  if (resolved.has(y)) {
    return invalid("y is declared and option split is set; allowed are its parts, y_0 and so on");
  }
  const int64_t sum = std::accumulate(widths.begin(), widths.end(), int64_t{0});
  if (sum != resolved[Dim::D]) {
    return invalid(text("option split is ", in_quotes(resolved.problem.option("split")),
                        ", the sum is ", sum, "; allowed is the sum D = ", resolved[Dim::D],
                        ", the channels of x"));
  }
  for (size_t part = 0; part < widths.size() && resolved.has(y_0); ++part) {
    const int64_t found = resolved[part_dim(part)];
    if (found == widths[part]) continue;
    return invalid(text(kTensors[y_0 + static_cast<int>(part)].name, " has D", part, " = ", found,
                        "; allowed is ", widths[part], ", as option split says"));
  }
  return {};
}

// What states in slots or a result in parts exclude. `what` names it.
Status check_alone(const Resolved& resolved, const char* what) {
  if (resolved.has(dy)) {
    return invalid(text(what, " and so is dy; allowed is one of them: there is no gradient"));
  }
  if (resolved.problem.group == nullptr) return {};
  return invalid(text(what,
                      " and the problem has a group; allowed with a group are y and states "
                      "of their own"));
}

Status check_pool(const Resolved& resolved) {
  const auto& options = resolved.options_as<ConvOptions>();
  if (!resolved.has(state_pool)) {
    if (options.null_slot == -1) return {};
    return invalid(text("option null_slot is ", options.null_slot,
                        " and state_pool is not declared; it says how a pool is used: allowed is "
                        "-1"));
  }
  for (const int tensor : {initial_state, final_state}) {
    if (!resolved.has(tensor)) continue;
    return invalid(text(kTensors[tensor].name,
                        " is declared with state_pool; allowed is one of them, the pool's states "
                        "being read and written in place"));
  }
  const int64_t width = resolved[Dim::W];
  LATHE_TRY(check_width("state_pool", "LS", resolved[Dim::LS], 1, width - 1, width));
  return check_alone(resolved, "state_pool is declared");
}

}  // namespace

Status check_conv_slots(const Resolved& resolved) {
  const auto& widths = resolved.options_as<ConvOptions>().split;
  if (widths.size() > kConvMostParts) {
    return invalid(
        text("option split has ", widths.size(), " entries; allowed are up to ", kConvMostParts));
  }
  LATHE_TRY(check_parts(resolved, widths));
  for (const int tensor : {final_state, state_pool}) {
    if (!resolved.has(tensor) || resolved.has(y) || resolved.has(y_0)) continue;
    return invalid(text(kTensors[tensor].name, " is declared without y, which it needs"));
  }
  if (!widths.empty()) LATHE_TRY(check_alone(resolved, "option split is set"));
  return check_pool(resolved);
}

Status check_conv_values(const Values& values) { return check_pool_values(values, kPool); }

void derive_conv(const lathe_problem& problem, Extents* extents) {
  const std::string words = problem.option("split");
  const std::vector<std::string_view> widths = split(words, ',');
  for (size_t part = 0; part < std::min<size_t>(widths.size(), kConvMostParts); ++part) {
    int64_t& extent = (*extents)[part_dim(part)];
    if (extent != kUnknown) continue;
    int64_t width = 0;
    const std::string_view word = widths[part];
    if (std::from_chars(word.data(), word.data() + word.size(), width).ec != std::errc()) return;
    extent = width;
  }
}

Status ConvExecutor::launch_slots(const Call& call, const ConvPlan& plan) const {
  const auto& t = call.tensors;
  ConvSlotsParams p = {};
  p.call = forward_params(call, plan);
  ConvPool& pool = p.pool;
  // Two tensors without a pool, and both have no gaps.
  const Tensor& states = t[problem_.pool          ? state_pool
                           : problem_.final_state ? final_state
                                                  : initial_state];
  pool.before = t[problem_.pool ? state_pool : initial_state].data;
  pool.after = t[problem_.pool ? state_pool : final_state].data;
  pool.slot_stride = states.stride[0], pool.channel_stride = states.stride[1];
  pool.column_stride = states.stride[2];
  p.call.initial_state = nullptr, p.call.final_state = nullptr;
  if (problem_.pool) {
    pool.state_indices = t[state_indices].data, pool.source_indices = t[source_indices].data;
    pool.has_initial_state = t[has_initial_state].data;
    pool.cu_checkpoints = t[cu_checkpoints].data;
    pool.checkpoint_tokens = t[checkpoint_tokens].data;
    pool.checkpoint_slots = t[checkpoint_slots].data;
    pool.slots = static_cast<int>(call.extents[Dim::S]);
    pool.null_slot = problem_.null_slot;
    pool.checkpoints = static_cast<int>(plan.part.shape.checkpoints);
  }
  int end = 0;
  for (int part = 0; part < problem_.parts; ++part) {
    const Tensor& result = t[y_0 + part];
    end += static_cast<int>(problem_.widths[part]);
    p.parts[part] = result.data, p.part_end[part] = end;
    p.part_batch_stride[part] = result.stride[0], p.part_token_stride[part] = result.stride[1];
  }
  if (p.call.tiles == 0 && p.call.state_tiles == 0) return {};
  const Grid grid = conv_grid(plan.forward, p.call.batch, p.call.tiles, p.call.state_tiles);
  return kernels_.forward.launch(grid, &p, call.stream);
}

}  // namespace lathe
