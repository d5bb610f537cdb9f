// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/kernels.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/own/maps.h"

namespace lathe::own {
namespace {

constexpr int64_t kMostThreads = 1024, kMostThreadsInZ = 64, kMostCluster = 8, kMostMinBlocks = 32;

// What the launches of one combination are.
struct LaunchSizes {
  int threads = 0, block_y = 1, block_z = 1, smem_bytes = 0, cluster = 1, min_blocks = 1;
};
struct Combination {
  KnownValues known;
  std::vector<LaunchSizes> launches;  // by kernel
  std::vector<TensorMapRecipe> maps;  // of all kernels: they share the parameters
};

class Chooser {
 public:
  Chooser(const Resolved& resolved, const ParamsLayout& params, const DeviceFacts& facts)
      : problem_(resolved.problem),
        op_(OwnOperator::of(resolved.problem)),
        from_(*op_.description),
        params_(params),
        facts_(facts),
        known_(known_values(resolved.problem, resolved.extents)) {
    set(from_.symbols.sm, 0, arch_number(facts.arch));
    set(from_.symbols.sm_a, 0, facts.arch.ends_with('a'));
    set(from_.symbols.multiprocessors, 0, std::max(facts.multiprocessors, 1));
  }

  Result<ChosenKernels> choose() {
    size_t combinations = 1;
    for (const ConstantText& each : from_.constants) {
      combinations *= std::max<size_t>(each.values.size(), 1);
    }
    const bool measured = facts_.choices && !facts_.choices->silent();
    std::vector<Combination> able;
    Status first;
    for (size_t i = 0; i < combinations && (measured || able.empty()); ++i) {
      Result<Combination> made = combine(i);
      if (made.ok()) able.push_back(std::move(*made));
      if (!made.ok() && first.ok()) first = made.status();
    }
    if (able.empty()) return first;
    Combination& chosen = able[measured ? pick_of(able) : 0];
    ChosenKernels out;
    for (size_t k = 0; k < from_.kernels.size(); ++k) {
      LATHE_ASSIGN(KernelSpec spec, spec_of(k, chosen));
      out.specs.push_back(std::move(spec));
    }
    out.known = std::move(chosen.known);
    return out;
  }

 private:
  void set(int base, size_t index, int64_t value) {
    known_[static_cast<size_t>(base) + index] = value;
  }

  Status refuse(const std::string& what) const { return invalid(text(op_.name, ": ", what)); }

  // The first kernel's choice is everybody's: they share the constants.
  size_t pick_of(const std::vector<Combination>& able) const {
    CandidateGroup group;
    for (const ConstantText& each : from_.constants) {
      if (each.values.size() > 1) group.tile.push_back(each.name.c_str());
    }
    for (const Combination& each : able) {
      auto spec = spec_of(0, each);
      if (!spec.ok()) return 0;
      drop_followers(&*spec);
      for (size_t k = 1; k < from_.kernels.size(); ++k) {
        spec->also_decides += text(k == 1 ? " also=" : ",", from_.kernels[k].function);
      }
      group.specs.push_back(std::move(*spec));
    }
    return pick({group}, facts_).spec;
  }

  // The class of a choice has nothing that follows from the choice: a bundle carries the line of a
  // choice if the class fits a kernel in it.
  void drop_followers(KernelSpec* spec) const {
    std::erase_if(spec->constants, [&](const Constant& each) {
      return std::ranges::any_of(from_.constants, [&](const ConstantText& constant) {
        return constant.name == each.name && constant.value;
      });
    });
    spec->cluster = spec->block_y = spec->block_z = 1;
  }

  Result<Combination> combine(size_t number) const {
    Combination out{known_, {}, {}};
    for (size_t i = 0; i < from_.constants.size(); ++i) {
      const ConstantText& constant = from_.constants[i];
      if (constant.dim >= 0) continue;
      std::optional<int64_t>& value = out.known[static_cast<size_t>(from_.symbols.constants) + i];
      if (!constant.values.empty()) {
        value = constant.values[number % constant.values.size()];
        number /= constant.values.size();
        continue;
      }
      LATHE_ASSIGN(value, evaluate_known(constant.value, out.known));
      LATHE_TRY(check_value(constant.name, value));
    }
    LATHE_TRY(check_rules(out.known));
    for (const KernelText& kernel : from_.kernels) {
      LATHE_ASSIGN(const LaunchSizes sizes, launch_of(kernel, out.known));
      out.launches.push_back(sizes);
    }
    LATHE_ASSIGN(out.maps, map_recipes(problem_, out.known, facts_.arch));
    return out;
  }

  // A constant of the Config is an int.
  Status check_value(const std::string& name, const std::optional<int64_t>& value) const {
    if (!value) return refuse(text(name, " is not known"));
    if (*value > INT32_MIN && *value <= INT32_MAX) return {};
    return refuse(text(name, " is ", *value, "; allowed are whole numbers of 32 bits"));
  }

  Status check_rules(const KnownValues& known) const {
    for (const RuleText& rule : from_.rules) {
      LATHE_ASSIGN(const std::optional<int64_t> refused, evaluate_known(rule.when, known));
      if (!refused || *refused == 0) continue;
      const std::string what =
          text(op_.name, ": ", rule.why, " (refused where ", rule.when.text(), ")");
      const bool device = rule.when.uses(from_.symbols.sm) || rule.when.uses(from_.symbols.sm_a);
      return device ? unsupported(what) : invalid(what);
    }
    return {};
  }

  Result<int> size_of(const Expression& expression, const char* what, int64_t least, int64_t most,
                      const KnownValues& known) const {
    LATHE_ASSIGN(const std::optional<int64_t> value, evaluate_known(expression, known));
    if (value && *value >= least && *value <= most) return static_cast<int>(*value);
    const std::string found = value ? std::to_string(*value) : "not known";
    return refuse(
        text(what, " = ", expression.text(), " is ", found, "; allowed are ", least, " to ", most));
  }

  Status read_block(const KernelText& kernel, const KnownValues& known, LaunchSizes* out) const {
    int sides[] = {1, 1, 1};
    for (size_t i = 0; i < kernel.block.size(); ++i) {
      LATHE_ASSIGN(sides[i], size_of(kernel.block[i], "block", 1,
                                     i == 2 ? kMostThreadsInZ : kMostThreads, known));
    }
    const int64_t threads = int64_t{1} * sides[0] * sides[1] * sides[2];
    if (threads > kMostThreads) {
      return refuse(text("block has ", sides[0], " * ", sides[1], " * ", sides[2], " = ", threads,
                         " threads; allowed are 1 to ", kMostThreads));
    }
    out->threads = static_cast<int>(threads), out->block_y = sides[1], out->block_z = sides[2];
    return {};
  }

  Result<LaunchSizes> launch_of(const KernelText& kernel, const KnownValues& known) const {
    LaunchSizes out;
    LATHE_TRY(read_block(kernel, known, &out));
    if (kernel.shared) {
      const int64_t most = facts_.shared_bytes_per_block;
      LATHE_ASSIGN(out.smem_bytes, size_of(kernel.shared, "shared", 0, most, known));
    }
    if (kernel.cluster) {
      const bool clusters = arch_number(facts_.arch) >= 90;
      LATHE_ASSIGN(out.cluster,
                   size_of(kernel.cluster, "cluster", 1, clusters ? kMostCluster : 1, known));
    }
    if (kernel.min_blocks) {
      LATHE_ASSIGN(out.min_blocks,
                   size_of(kernel.min_blocks, "min_blocks", 1, kMostMinBlocks, known));
    }
    return out;
  }

  std::string name_of(const KernelText& kernel) const {
    const std::string& name = from_.name;
    if (name.empty()) return kernel.function;
    return from_.kernels.size() == 1 ? name : name + "_" + kernel.function;
  }

  Result<KernelSpec> spec_of(size_t index, const Combination& with) const {
    const KernelText& kernel = from_.kernels[index];
    const LaunchSizes& sizes = with.launches[index];
    KernelSpec spec;
    spec.kernel = name_of(kernel);
    spec.source = kernel.function;
    spec.params = "Params", spec.params_bytes = static_cast<int>(params_.values.size());
    spec.last_field = params_.last_field, spec.last_field_offset = params_.last_offset;
    spec.threads = sizes.threads, spec.smem_bytes = sizes.smem_bytes;
    spec.block_y = sizes.block_y, spec.block_z = sizes.block_z;
    spec.cluster = sizes.cluster, spec.min_blocks = sizes.min_blocks;
    spec.tensor_maps = with.maps;
    spec.mods = {op_.kernel_text};
    spec.before = "#include \"lathe/types.cuh\"\n";
    if (!with.maps.empty()) spec.before += "#include \"lathe/tma.cuh\"\n";
    for (const std::string& header : op_.headers) spec.before += "#include \"" + header + "\"\n";
    spec.before += params_.declaration;
    LATHE_TRY(add_constants(with.known, &spec));
    return spec;
  }

  Status add_constants(const KnownValues& known, KernelSpec* spec) const {
    for (size_t i = 0; i < from_.tensors.size(); ++i) {
      const TensorText& tensor = from_.tensors[i];
      const Declared& declared = problem_.tensors[i];
      if (declared.given)
        spec->add({Constant::type(tensor.name, tensor.name + "_t", declared.dtype)});
      const std::string has = "has_" + tensor.name;
      if (tensor.optional) spec->add({Constant::flag(has, has, declared.given)});
    }
    const auto add = [&](const std::string& name, int at) -> Status {
      const std::optional<int64_t>& value = known[static_cast<size_t>(at)];
      LATHE_TRY(check_value(name, value));
      spec->add({Constant::integer(name, name, *value)});
      return {};
    };
    for (size_t i = 0; i < from_.options.size(); ++i) {
      if (!from_.options[i].compiled) continue;
      LATHE_TRY(add(from_.options[i].name, from_.symbols.options + static_cast<int>(i)));
    }
    for (size_t i = 0; i < from_.constants.size(); ++i) {
      const ConstantText& each = from_.constants[i];
      LATHE_TRY(add(each.name, each.dim >= 0 ? from_.symbols.dims + each.dim
                                             : from_.symbols.constants + static_cast<int>(i)));
    }
    return {};
  }

  const lathe_problem& problem_;
  const OwnOperator& op_;
  const Description& from_;
  const ParamsLayout& params_;
  const DeviceFacts& facts_;
  KnownValues known_;
};

}  // namespace

Result<ChosenKernels> choose_kernels(const Resolved& resolved, const ParamsLayout& params,
                                     const DeviceFacts& facts) {
  return Chooser(resolved, params, facts).choose();
}

}  // namespace lathe::own
