// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/call.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/numbers.h"

namespace apitest {
namespace {

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string each; std::getline(in, each, by);) out.push_back(each);
  return out;
}

// Heads and widths make the code. All other extents vary from call to call.
bool is_fixed(const std::string& dim) {
  static const std::set<std::string> kFixed = {"H", "HK", "HV", "HV*K", "D", "DV", "K", "V", "W",
                                               "R", "G", "LS",
                                               // Parts of D.
                                               "D0", "D1", "D2", "D3", "D4", "D5", "D6", "D7"};
  return kFixed.contains(dim) || std::isdigit(static_cast<unsigned char>(dim[0])) != 0;
}

uint64_t compiled_so_far(lathe_context* context) {
  lathe_context_info info = {};
  info.size = sizeof info;
  API(lathe_context_get_info(context, &info));
  return info.compiled;
}

std::string name_of(const std::string& spec) { return spec.substr(0, spec.find(' ')); }

// Returns whether a spec has the words of a tile; "warps=4" is "threads=128" there.
bool has_tile(const std::string& spec, const std::string& tile) {
  const std::string padded = spec + " ";
  for (const std::string& word : split(tile, ' ')) {
    const bool warps = word.starts_with("warps=");
    const std::string own =
        warps ? "threads=" + std::to_string(32 * std::stoi(word.substr(6))) : word;
    if (padded.find(" " + own + " ") == padded.npos) return false;
  }
  return true;
}

}  // namespace

ChooseTiles choose_tiles = nullptr;

Values random_values(lathe_dtype dtype, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Values values(static_cast<size_t>(count));
  for (double& value : values) value = numbers::rounded(dtype, normal(random));
  return values;
}

void Call::draw(const std::string& name, lathe_dtype dtype, std::vector<int64_t> shape,
                uint32_t seed) {
  Values values = random_values(dtype, static_cast<int64_t>(count(shape)), seed);
  put(name, dtype, std::move(shape), std::move(values));
}

void Call::set(const std::string& option, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  options[option] = text;
}

void Call::place(const Placement& placement) {
  for (auto& [name, tensor] : tensors) {
    if (tensor.dtype == LATHE_F16 || tensor.dtype == LATHE_BF16) tensor.placement = placement;
  }
}

std::vector<std::string> dims_of(const std::string& op, const std::string& tensor, size_t rank) {
  const lathe_operator_info* info = lathe_operator_find(op.c_str());
  if (info == nullptr) throw std::logic_error("no operator " + op);
  for (size_t i = 0; i < info->tensor_count; ++i) {
    if (info->tensors[i].name != tensor) continue;
    for (const std::string& shape : split(info->tensors[i].shape, '|')) {
      auto dims = split(shape, ',');
      if (dims.size() == rank) return dims;
    }
  }
  throw std::logic_error(op + " has no tensor " + tensor + " of rank " + std::to_string(rank));
}

Problem declare(const Call& call) {
  lathe_problem* made = nullptr;
  API(lathe_problem_create(&made, call.op.c_str()));
  Problem problem(made);
  for (const auto& [name, given] : call.tensors) {
    std::vector<int64_t> shape = given.shape;
    const auto dims = dims_of(call.op, name, shape.size());
    for (size_t i = 0; !call.fixed && i < shape.size(); ++i) {
      if (!is_fixed(dims[i]) || call.open.contains(dims[i])) shape[i] = -1;
    }
    API(lathe_problem_tensor(made, name.c_str(), given.dtype, static_cast<int>(shape.size()),
                             shape.data()));
  }
  if (call.alignment != 0) API(lathe_problem_alignment(made, call.alignment));
  for (const auto& [name, value] : call.options) {
    API(lathe_problem_set_string(made, name.c_str(), value.c_str()));
  }
  for (const auto& [name, text] : call.texts) {
    API(lathe_problem_set_text(made, name.c_str(), text.data(), text.size()));
  }
  if (!call.tiles.empty()) {
    if (choose_tiles == nullptr) throw std::logic_error("this program cannot choose tiles");
    choose_tiles(made, call.tiles);
  }
  return problem;
}

uint64_t Answer::total(const std::string& counter) const {
  uint64_t sum = 0;
  for (const auto& launch : launches) sum += launch.value(counter, uint64_t{0});
  return sum;
}

std::string Answer::spec(const std::string& kernel) const {
  for (const Kernel& each : kernels) {
    if (name_of(each.spec) == kernel) return each.spec;
  }
  return "";
}

PlannedCall::PlannedCall(lathe_context* context, const Call& call, const Seat& seat)
    : context_(context), call_(call), seat_(seat), stream_(context) {
  make_plan(call);
  for (const auto& [name, given] : call_.tensors) add(name, given);
  size_t bytes = 0;
  API(lathe_plan_workspace(plan_.get(), slots_.data(), seat_.shard, &bytes));
  workspace_ = std::make_unique<Memory>(context, bytes);
}

void PlannedCall::make_plan(const Call& call) {
  const Problem problem = declare(call);
  if (seat_.group != nullptr) API(lathe_problem_group(problem.get(), seat_.group, seat_.flags));
  const uint64_t before = compiled_so_far(context_);
  lathe_plan* made = nullptr;
  API(lathe_plan_create(&made, context_, problem.get()));
  plan_.reset(made);
  compiled_ = compiled_so_far(context_) - before;
  if (seat_.shard != nullptr && seat_.prepared) API(lathe_shard_prepare(seat_.shard, made));
  slots_.assign(lathe_plan_slot_count(made), nullptr);
  for (const auto& [kernel, tile] : call.tiles) {
    // Another implementation of the step says its kernel first.
    const bool other = tile.starts_with("kernel=");
    const size_t space = tile.find(' ');
    const std::string name = other ? tile.substr(7, space - 7) : kernel;
    const std::string wanted = other ? tile.substr(space + 1) : tile;
    const auto all = kernels();
    const bool found = std::any_of(all.begin(), all.end(), [&](const Kernel& each) {
      return name_of(each.spec) == name && has_tile(each.spec, wanted);
    });
    if (!found) throw std::logic_error("the plan has no " + kernel + " of " + tile);
  }
}

void PlannedCall::add(const std::string& name, const CallTensor& given) {
  if (given.at != nullptr) {
    DLTensor& view = views_.try_emplace(name, *given.at).first->second;
    view.ndim = static_cast<int32_t>(given.shape.size());
    view.shape = const_cast<int64_t*>(given.shape.data()), view.strides = nullptr;
  } else if (given.strides.empty()) {
    tensors_.try_emplace(name, context_, given.dtype, given.shape, given.placement, stream());
  } else {
    far_tensors_.try_emplace(name, context_, given.dtype, given.shape, given.strides, stream());
  }
  if (!given.values.empty()) upload(name, given.values);
  replace(name, dl(name));
}

void PlannedCall::replace(const std::string& name, const DLTensor* tensor) {
  size_t slot = 0;
  API(lathe_plan_slot(plan_.get(), name.c_str(), &slot));
  slots_.at(slot) = tensor;
}

const DLTensor* PlannedCall::dl(const std::string& name) const {
  const auto view = views_.find(name);
  if (view != views_.end()) return &view->second;
  const auto far = far_tensors_.find(name);
  return far != far_tensors_.end() ? far->second.dl() : tensors_.at(name).dl();
}

void PlannedCall::upload(const std::string& name, const Values& values) {
  const auto far = far_tensors_.find(name);
  far != far_tensors_.end() ? far->second.upload(values) : tensors_.at(name).upload(values);
}

void PlannedCall::reset() {
  for (const auto& [name, given] : call_.tensors) {
    const bool output = given.values.empty();
    if (given.at != nullptr) continue;
    if (output && given.strides.empty()) {
      tensors_.at(name).poison();
    } else if (output) {
      upload(name, Values(Call::count(given.shape), std::nan("")));
    } else if (given.changed) {
      upload(name, given.values);
    }
  }
  // Before the first run the checkers know that it is undefined.
  const std::vector<unsigned char> stale(used_ ? workspace_->bytes() : 0, 0xff);
  if (stale.empty()) return;
  API(lathe_copy_to_device(context_, workspace_->data(), stale.data(), stale.size(), stream()));
}

void PlannedCall::enqueue() {
  used_ = true;
  const size_t bytes = workspace_->bytes();
  void* const workspace = bytes == 0 ? nullptr : workspace_->data();
  if (seat_.shard != nullptr) {
    API(lathe_plan_run_sharded(plan_.get(), seat_.shard, slots_.data(), workspace, bytes,
                               stream()));
  } else {
    API(lathe_plan_run(plan_.get(), slots_.data(), workspace, bytes, stream()));
  }
}

void PlannedCall::synchronize() {
  API(lathe_stream_synchronize(context_, stream()));
  if (seat_.group != nullptr) API(lathe_group_error(seat_.group));
}

Outputs PlannedCall::outputs() const {
  Outputs out;
  for (const auto& [name, given] : call_.tensors) {
    if (given.at != nullptr || (!given.values.empty() && !given.changed)) continue;
    const auto far = far_tensors_.find(name);
    out[name] = far != far_tensors_.end() ? far->second.download() : tensors_.at(name).download();
  }
  return out;
}

std::vector<Kernel> PlannedCall::kernels() const {
  std::vector<Kernel> out;
  for (size_t i = 0; i < lathe_plan_kernel_count(plan_.get()); ++i) {
    lathe_kernel_info info{};
    info.size = sizeof info;
    API(lathe_plan_kernel(plan_.get(), i, &info));
    out.push_back({info.spec, info.registers, info.spill_bytes, info.stack_bytes});
  }
  return out;
}

lathe_estimate PlannedCall::estimate() const {
  lathe_estimate estimate = {};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan_.get(), slots_.data(), seat_.shard, &estimate));
  return estimate;
}

Answer execute(lathe_context* context, const Call& call) {
  PlannedCall planned(context, call);
  return execute(planned);
}

Answer execute(PlannedCall& planned) {
  return execute(planned, [&] { planned.run(); });
}

Answer execute(PlannedCall& planned, const std::function<void()>& run) {
  take_report();
  run();
  Answer answer;
  const Report report = take_report();
  answer.findings = report.findings;
  for (const std::string& line : report.launches) {
    answer.launches.push_back(nlohmann::json::parse(line));
  }
  answer.outputs = planned.outputs();
  answer.kernels = planned.kernels();
  answer.compiled = planned.compiled();
  return answer;
}

Answer joined(Answer first, const Answer& second) {
  const auto append = [](auto* to, const auto& from) {
    to->insert(to->end(), from.begin(), from.end());
  };
  for (const auto& [name, values] : second.outputs) first.outputs[name] = values;
  append(&first.kernels, second.kernels);
  append(&first.launches, second.launches);
  append(&first.findings, second.findings);
  first.compiled += second.compiled;
  return first;
}

}  // namespace apitest
