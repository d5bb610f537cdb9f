// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe run` runs one operator on safetensors files.
#include "api/cli/run.h"

#include <algorithm>

#include "api/cli/inputs/safetensors.h"
#include "api/cli/inputs/text.h"
#include "api/cli/output.h"
#include "api/cli/reports/progress.h"

namespace lathe::cli {
namespace {

constexpr int kMostRanks = 256;

template <typename Value>
using Words = std::vector<std::pair<std::string, Value>>;

// The ways in which keys and rows meet, of the operators that pass keys around.
const std::map<std::string, Words<unsigned>> kMethods = {
    {"flash_attention",
     {{"ring", 0u},
      {"allgather", LATHE_ALLGATHER},
      {"dispatch", LATHE_DISPATCH},
      {"heads", LATHE_EXCHANGE_HEADS}}},
    {"sparse_flash_attention", {{"allgather", LATHE_ALLGATHER}}}};
const Words<lathe_balance> kBalances = {{"none", LATHE_BALANCE_NONE},
                                        {"head_tail", LATHE_BALANCE_HEAD_TAIL},
                                        {"per_document", LATHE_BALANCE_PER_DOCUMENT},
                                        {"ptrr", LATHE_BALANCE_PTRR}};

// Takes the value of a word that was given; refuses one that the operator does not allow.
template <typename Value>
void take_choice(const char* flag, const std::string& word, const lathe_operator_info* op,
                 const Words<Value>& allowed, Value* out) {
  if (word.empty()) return;
  const auto found = std::ranges::find(allowed, word, &Words<Value>::value_type::first);
  if (found == allowed.end()) {
    refuse(flag, " is ", in_quotes(word), "; ", op->name, " allows ",
           comma_list(allowed, &Words<Value>::value_type::first));
  }
  *out = found->second;
}

// Refuses what the operator has no choice of.
Ranks parse_ranks(const RunOptions& options, const lathe_operator_info* op) {
  Ranks out;
  const auto methods = kMethods.find(op->name);
  const bool rotates = methods != kMethods.end();
  for (const auto& [flag, word] :
       {std::pair("--rotate", options.rotate), std::pair("--balance", options.balance),
        std::pair("--ranges", options.table)}) {
    if (word.empty()) continue;
    if (!op->ranks) refuse(flag, " is ", in_quotes(word), ", but ", op->name, " runs on one rank");
    if (options.ranks.empty()) {
      refuse(flag, " is ", in_quotes(word), ", but --ranks is not given");
    }
  }
  if (rotates) {
    take_choice("--rotate", options.rotate, op, methods->second, &out.method);
  } else if (!options.rotate.empty()) {
    refuse("--rotate is ", in_quotes(options.rotate), ", but no keys travel in ", op->name);
  }
  take_choice("--balance", options.balance, op, kBalances, &out.balance);
  if (options.rank_invariant) {
    if (!op->ranks) refuse("--rank-invariant is given, but ", op->name, " runs on one rank");
    out.method |= LATHE_RANK_INVARIANT;
    out.count = 1;  // without --ranks
  }
  if (options.ranks.empty()) return out;
  const int64_t count = parse_int("--ranks", options.ranks, 1, op->ranks ? kMostRanks : 1);
  if (op->ranks) out.count = static_cast<int>(count);
  if (options.table.empty()) return out;
  if (!options.balance.empty()) refuse("--balance and --ranges are given; allowed is one");
  out.ranges = read_ranges("--ranges", options.table);
  if (std::ssize(out.ranges) != count) {
    refuse("--ranges is ", in_quotes(options.table), ", which has lists for ", out.ranges.size(),
           " ranks; --ranks is ", count);
  }
  return out;
}

// Writes "kda ran on the simulator (sm_90a) in 12 ms: 2 kernels, 1 compiled (310 ms to prepare), 1
// from the cache"
std::string summary(const std::string& op, const Report& report, const StageTimes& times) {
  const auto ms = [](double value) { return formatted("%.*f ms", value < 10 ? 2 : 0, value); };
  const size_t kernels = report.kernels.size(), compiled = report.compiled();
  const std::string device = report.device == "sim" ? "the simulator" : report.device_name;
  return text(
      op, " ran on ", device, " (", report.arch, ") in ", ms(times.run), ": ", kernels,
      kernels == 1 ? " kernel, " : " kernels, ",
      compiled > 0 ? text(compiled, " compiled (", ms(times.prepare), " to prepare), ") : "",
      report.hits(), " from the cache");
}

int run(const RunOptions& options) {
  Progress progress("reading");
  const Task task = load_task(options);
  progress.stage("compiling and running " + options.op);
  const Context context = open_context(options.device);
  Report report(context.get());
  StageTimes times;
  const TensorMap outputs =
      execute(context.get(), task.problem, task.inputs, task.ranks, &report, &times);
  write_safetensors_file(options.output, outputs);
  if (options.json) print_json(report.json());
  if (!options.quiet) say(summary(options.op, report, times));
  return kDone;
}

}  // namespace

void add_run_flags(CLI::App* verb, RunOptions* options, const std::vector<std::string>& devices) {
  add_operator(verb, &options->op);
  verb->add_option("--input", options->input, "safetensors file with the inputs")->required();
  verb->add_option("--output", options->output, "safetensors file to write; a link is not followed")
      ->required();
  add_set_flag(verb, &options->set);
  add_alignment_flag(verb, &options->alignment);
  verb->add_option("--ranks", options->ranks, "split the sequence axis over this many ranks");
  verb->add_option("--rotate", options->rotate,
                   "attention only: ring, allgather, dispatch or heads; how keys and rows meet");
  verb->add_option("--balance", options->balance,
                   "none, head_tail, per_document or ptrr; who holds which tokens");
  verb->add_option("--ranges", options->table,
                   "JSON file in place of --balance: for each rank its list of [first, last)");
  verb->add_flag("--rank-invariant", options->rank_invariant,
                 "the same bits for any number of ranks, 1 included, and any layout on multiples "
                 "of 64 tokens");
  add_device_flags(verb, &options->device, devices);
  add_json_flag(verb, &options->json);
}

Task load_task(const RunOptions& options) {
  Task task;
  const auto* op = find_operator(options.op);
  task.ranks = parse_ranks(options, op);
  const Settings settings = parse_settings(options.set);
  check_apart("--output", options.output, "--input", options.input);
  check_output("--output", options.output);
  task.inputs = read_safetensors(options.input);
  Specs specs;
  for (const auto& [name, tensor] : task.inputs) specs[name] = tensor.spec;
  task.problem = make_problem(op, settings, specs, &task.inputs);
  task.problem.alignment = options.alignment;
  for (const auto& [name, tensor] : task.inputs) {
    if (task.problem.tensors.at(name).read) continue;
    refuse("tensor ", in_quotes(name), " is an output of ", op->name,
           ", the input file must not hold it");
  }
  declare(task.problem);  // the library's own objections, before any device is opened
  return task;
}

Action add_run(CLI::App* app) {
  auto* verb = app->add_subcommand("run", "run one operator on safetensors files");
  const auto options = std::make_shared<RunOptions>();
  add_run_flags(verb, options.get(), {"auto", "cuda", "sim"});
  verb->add_flag("-q,--quiet", options->quiet, "do not say on standard error what ran where");
  return [options] { return run(*options); };
}

}  // namespace lathe::cli
