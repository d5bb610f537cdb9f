// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs a caller's kernels: all that can be known when the plan is made is put into its expressions
// then, so that a call evaluates what depends on its extents alone.
#include <algorithm>
#include <cstring>

#include "codegen/base/invalid.h"
#include "device/tensor_map.h"
#include "ops/executor.h"
#include "ops/own/kernels.h"
#include "ops/own/maps.h"
#include "ops/own/params.h"

namespace lathe::own {
namespace {

using Values = std::array<int64_t, kMostOwnDims>;

// A tensor that the problem declares.
struct GivenTensor {
  size_t index = 0;
  int rank = 0, element = 0;
  bool in_place = false, strided = false;
};

struct OwnPlan {
  Values dims{};
  std::array<int64_t, kMostWorkspaces> offsets{};
  std::array<Grid, kMostKernels> grids{};
  WorkspaceLayout workspace;

  int64_t total() const { return workspace.total(); }
};

// The expressions of a call, with numbers for what the plan knows.
struct CallExpressions {
  struct DimRule {
    size_t dim;
    std::string name;
    Expression extent;
  };
  struct Launch {
    std::vector<Expression> grid;
  };
  std::vector<DimRule> dims;
  std::vector<RuleText> rules;
  std::vector<WorkspaceText> workspaces;
  std::vector<Launch> launches;
  CostText cost;
};

CallExpressions bind_expressions(const Description& from, const KnownValues& known) {
  // Dims are the call's, even where the plan knows them: it checks that they agree.
  KnownValues values = known;
  for (size_t i = 0; i < from.dims.size(); ++i) values[i].reset();
  const auto bound = [&](Expression expression) {
    expression.bind(values);
    return expression;
  };
  CallExpressions out;
  for (size_t i = 0; i < from.dims.size(); ++i) {
    if (!from.dims[i].extent) continue;
    out.dims.push_back({i, from.dims[i].name, bound(from.dims[i].extent)});
  }
  for (const RuleText& rule : from.rules) {
    Expression when = bound(rule.when);
    if (!when.is_constant()) out.rules.push_back({std::move(when), rule.why});
  }
  for (const WorkspaceText& each : from.workspaces) {
    out.workspaces.push_back({each.name, each.dtype, bound(each.count)});
  }
  for (const KernelText& kernel : from.kernels) {
    CallExpressions::Launch launch;
    for (const Expression& extent : kernel.grid) launch.grid.push_back(bound(extent));
    out.launches.push_back(std::move(launch));
  }
  out.cost = {bound(from.cost.bytes), bound(from.cost.flops), bound(from.cost.tensor_ops)};
  return out;
}

class OwnExecutor : public PlannedExecutor<OwnExecutor, OwnPlan> {
 public:
  OwnExecutor(OperatorPointer op, ParamsLayout params, ChosenKernels chosen,
              std::vector<GivenTensor> tensors)
      : op_(std::move(op)),
        params_(std::move(params)),
        call_(bind_expressions(*OwnOperator::of(*op_).description, chosen.known)),
        tensors_(std::move(tensors)),
        kernels_(chosen.specs.begin(), chosen.specs.end()) {
    std::vector<KernelSlot*> slots;
    for (KernelSlot& kernel : kernels_) slots.push_back(&kernel);
    list(slots);
  }

  Result<OwnPlan> plan(const Call& call) const {
    Result<OwnPlan> out(std::in_place);
    LATHE_TRY(read_dims(call, &out->dims));
    LATHE_TRY(check_rules(out->dims));
    for (size_t i = 0; i < call_.workspaces.size(); ++i) {
      const WorkspaceText& array = call_.workspaces[i];
      int64_t count = 0;
      LATHE_TRY(array.count.evaluate(out->dims, &count));
      if (count < 0) {
        return invalid(text("workspace ", array.name, " has ", array.count.text(), " = ", count,
                            " elements; allowed are 0 and more"));
      }
      out->offsets[i] = out->workspace.add({count, bytes_of(array.dtype)});
    }
    LATHE_TRY(out->workspace.status());
    for (size_t i = 0; i < call_.launches.size(); ++i) {
      LATHE_TRY(read_grid(call_.launches[i].grid, out->dims, &out->grids[i]));
    }
    return out;
  }

  Status launch(const Call& call, const OwnPlan& plan) const {
    alignas(kMapAlignment) char params[kMostParamsBytes];
    std::memcpy(params, params_.values.data(), params_.values.size());
    for (const auto& field : params_.maps) LATHE_TRY(encode(call, field, params));
    for (const auto& field : params_.tensors) {
      put(params, field.offset, call.tensors[static_cast<size_t>(field.index)].data);
    }
    for (const auto& field : params_.workspaces) {
      put(params, field.offset, call.workspace + plan.offsets[static_cast<size_t>(field.index)]);
    }
    for (const auto& field : params_.strides) {
      const Tensor& tensor = call.tensors[static_cast<size_t>(field.index)];
      put(params, field.offset, tensor.stride[static_cast<size_t>(field.dim)]);
    }
    for (const auto& field : params_.dims) {
      put(params, field.offset, plan.dims[static_cast<size_t>(field.index)]);
    }
    for (size_t i = 0; i < kernels_.size(); ++i) {
      LATHE_TRY(kernels_[i].launch(plan.grids[i], params, call.stream));
    }
    return {};
  }

  Result<Estimate> estimate_plan(const Call& call, const OwnPlan& plan) const {
    Estimate out;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const Grid& grid = plan.grids[i];
      out.launches += grid.x > 0 && grid.y > 0 && grid.z > 0;
    }
    for (const GivenTensor& each : tensors_) {
      uint64_t bytes = static_cast<uint64_t>(each.element) * (each.in_place ? 2 : 1);
      for (int d = 0; d < each.rank; ++d) {
        bytes *= static_cast<uint64_t>(call.tensors[each.index].extent[static_cast<size_t>(d)]);
      }
      out.cost.minimum_bytes += bytes;
    }
    out.cost.bytes = out.cost.minimum_bytes;
    LATHE_TRY(evaluate_cost("bytes", call_.cost.bytes, plan.dims, &out.cost.bytes));
    LATHE_TRY(evaluate_cost("flops", call_.cost.flops, plan.dims, &out.cost.flops));
    LATHE_TRY(evaluate_cost("tensor_ops", call_.cost.tensor_ops, plan.dims, &out.cost.tensor_ops));
    return out;
  }

 private:
  template <typename Value>
  static void put(char* params, int offset, Value value) {
    static_assert(sizeof(Value) == 8, "pointers and 64-bit numbers");
    std::memcpy(params + offset, &value, sizeof(value));
  }

  // A map reads the tensor as it lies in memory, the last dimension first. A tensor without
  // elements has no map: its bytes stay 0.
  Status encode(const Call& call, const ParamsLayout::Field& field, char* params) const {
    const auto index = static_cast<size_t>(field.index);
    const Tensor& tensor = call.tensors[index];
    const auto given = std::ranges::find(tensors_, index, &GivenTensor::index);
    MappedTensor mapped{tensor.data, {}, {}, {}};
    int64_t contiguous = 1;
    for (int k = 0; k < given->rank; ++k) {
      const auto d = static_cast<size_t>(given->rank - 1 - k);
      const int64_t extent = tensor.extent[d];
      if (extent == 0) return {};
      const int64_t stride = given->strided ? tensor.stride[d] : contiguous;
      mapped.extent[static_cast<size_t>(k)] = extent;
      // Nobody uses the stride of one element, and a caller may have left anything there.
      mapped.stride[static_cast<size_t>(k)] = extent == 1 && k > 0 ? 16 : stride;
      contiguous *= extent;
      if (k == 0 || extent == 1) continue;
      LATHE_TRY(check_mapped_stride(op_->tensors[index].name, static_cast<int>(d), stride,
                                    given->element));
    }
    // Kernels share the parameters, and so the recipes.
    return kernels_[0].encode(static_cast<size_t>(field.dim), mapped,
                              reinterpret_cast<TensorMap*>(params + field.offset));
  }

  // A dim that only tensors have which are not given is 0, or follows from others.
  Status read_dims(const Call& call, Values* dims) const {
    for (size_t i = 0; i < op_->dims.size(); ++i) {
      (*dims)[i] = std::max<int64_t>(call.extents[own_dim(i)], 0);
    }
    for (const auto& rule : call_.dims) {
      int64_t extent = 0;
      LATHE_TRY(rule.extent.evaluate(*dims, &extent));
      const int64_t found = call.extents[own_dim(rule.dim)];
      if (found != kUnknown && found != extent) {
        return invalid(text(rule.name, " is ", found, "; allowed is ", extent, ", by ", rule.name,
                            " = ", rule.extent.text()));
      }
      (*dims)[rule.dim] = extent;
    }
    return {};
  }

  Status check_rules(const Values& dims) const {
    for (const RuleText& rule : call_.rules) {
      int64_t refused = 0;
      LATHE_TRY(rule.when.evaluate(dims, &refused));
      if (refused == 0) continue;
      return invalid(text(op_->name, ": ", rule.why, " (refused where ", rule.when.text(), ")"));
    }
    return {};
  }

  Status read_grid(const std::vector<Expression>& extents, const Values& dims, Grid* out) const {
    unsigned* const into[] = {&out->x, &out->y, &out->z};
    for (size_t i = 0; i < extents.size(); ++i) {
      const int64_t most = i == 0 ? INT32_MAX : 65535;
      int64_t blocks = 0;
      LATHE_TRY(extents[i].evaluate(dims, &blocks));
      if (blocks < 0 || blocks > most) {
        return invalid(text(op_->name, ": grid has ", extents[i].text(), " = ", blocks,
                            " blocks in ", "xyz"[i], "; allowed are 0 to ", most));
      }
      *into[i] = static_cast<unsigned>(blocks);
    }
    return {};
  }

  Status evaluate_cost(const char* what, const Expression& expression, const Values& dims,
                       uint64_t* out) const {
    if (!expression) return {};
    int64_t value = 0;
    LATHE_TRY(expression.evaluate(dims, &value));
    if (value < 0) {
      return invalid(text(op_->name, ": [cost] ", what, " = ", expression.text(), " is ", value,
                          "; allowed are 0 and more"));
    }
    *out = static_cast<uint64_t>(value);
    return {};
  }

  const OperatorPointer op_;  // rows and texts are its
  const ParamsLayout params_;
  const CallExpressions call_;
  const std::vector<GivenTensor> tensors_;
  std::vector<KernelSlot> kernels_;
};

}  // namespace

MadeExecutor make(const Resolved& resolved, const DeviceFacts& facts) {
  const lathe_problem& problem = resolved.problem;
  ParamsLayout params = lay_params(problem);
  if (params.values.size() > kMostParamsBytes) {
    return invalid(text(problem.op->name, " has ", params.values.size(),
                        " bytes of parameters; allowed are ", kMostParamsBytes));
  }
  LATHE_ASSIGN(ChosenKernels chosen, choose_kernels(resolved, params, facts));
  std::vector<GivenTensor> given;
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    given.push_back({i, declared.shape.rank, bytes_of(declared.dtype),
                     problem.op->tensors[i].role == Role::inout,
                     problem.op->tensors[i].is_strided});
  }
  auto out = std::make_unique<OwnExecutor>(problem.op, std::move(params), std::move(chosen),
                                           std::move(given));
  return std::unique_ptr<Executor>(std::move(out));
}

}  // namespace lathe::own
