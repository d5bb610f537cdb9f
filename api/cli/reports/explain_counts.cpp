// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <vector>

#include "api/cli/reports/explained.h"

namespace lathe::cli {
namespace {

constexpr uint64_t kSectorBytes = 32;
constexpr const char* kIssueSlots = "issue slots";

// The simulator's model and its clock, and the library's formulas, call resources by these names.
constexpr struct {
  const char *name, *word;
} kWords[] = {{"issue", kIssueSlots},     {"integer", "integer units"},
              {"float", "float units"},   {"half", "half units"},
              {"convert", "conversions"}, {"math", "special functions"},
              {"shuffle", "shuffles"},    {"DRAM", "memory"},
              {"tensor", "tensor cores"}, {"L2 to multiprocessor", "L2 port"}};

// Hashes a text as the simulator does for a launch's line: FNV-1a.
std::string digest_of(const std::string& text) {
  uint64_t digest = 0xCBF29CE484222325u;
  for (const char letter : text) {
    digest = (digest ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  }
  return formatted("0x%llx", llu(digest));
}

struct Sum {
  uint64_t launches = 0, blocks = 0, sampled_blocks = 0, memory_bytes = 0, l2_bytes = 0;
  uint64_t shared_bytes = 0, shared_passes = 0, shared_conflicts = 0, issue_slots = 0;
  uint64_t tensor_ops = 0;
  double microseconds = 0;
  std::map<std::string, double> alone;   // of each resource
  std::map<std::string, double> behind;  // of launches by what bounds them
  std::string bound = "launch";          // the one that most time is behind

  void add(const Json& launch);

 private:
  void add_times(const Json& launch);
};

// PTX copies registers where machine code names another, so that its copies take no slot.
uint64_t copies_in(const Json& launch) { return launch.at("by_class").value("move", uint64_t{0}); }

void Sum::add(const Json& launch) {
  const auto number = [&](const char* name) { return launch.at(name).get<uint64_t>(); };
  uint64_t grid = 1;
  for (const Json& size : launch.at("grid")) grid *= size.get<uint64_t>();
  ++launches;
  blocks += grid;
  sampled_blocks += launch.value("sampled_blocks", grid);
  memory_bytes += kSectorBytes * (number("unique_load_sectors") + number("unique_store_sectors"));
  l2_bytes += kSectorBytes * (number("global_load_sectors") + number("global_store_sectors") +
                              number("global_atomic_sectors"));
  shared_bytes += number("shared_load_bytes") + number("shared_store_bytes");
  shared_passes += number("shared_load_wavefronts") + number("shared_store_wavefronts");
  shared_conflicts += number("shared_load_conflicts") + number("shared_store_conflicts");
  issue_slots += number("warp_instructions") - copies_in(launch);
  tensor_ops += number("tensor_ops");
  add_times(launch);
}

void Sum::add_times(const Json& launch) {
  const Json& predicted = launch.at("predicted");
  const double cycle = 1e6 / predicted.at("clock_hz").get<double>();
  double before = 0, longest = 0;  // with copies and without
  std::string by = kIssueSlots;
  for (const auto& [name, cycles] : predicted.at("terms").items()) {
    const std::string word = resource_word(name);
    double took = cycle * cycles.get<double>();
    before = std::max(before, took);
    if (word == kIssueSlots) {
      const double all = launch.at("warp_instructions").get<double>();
      took *= 1 - static_cast<double>(copies_in(launch)) / std::max(all, 1.0);
    }
    alone[word] += took;
    if (took > longest) longest = took, by = word;
  }
  const double latency = cycle * predicted.at("cycles").get<double>() - before;
  const double start = 1e6 * predicted.at("launch_seconds").get<double>();
  const double working = std::max(latency, 0.0) + longest;
  if (start > working) by = "launch";
  alone["launch"] += start;
  microseconds += working + start;
  behind[by] += working + start;
  bound = std::max_element(behind.begin(), behind.end(), [](const auto& a, const auto& b) {
            return a.second < b.second;
          })->first;
}

LATHE_JSON_OBJECT(Sum, launches, blocks, sampled_blocks, memory_bytes, l2_bytes, shared_bytes,
                  shared_passes, shared_conflicts, issue_slots, tensor_ops, microseconds, bound,
                  alone)

}  // namespace

std::string resource_word(const std::string& name) {
  for (const auto& [from, word] : kWords) {
    if (name == from) return word;
  }
  return name;  // "shared memory", "memory instructions", "L2", "launch", "memory", "wgmma"
}

std::vector<std::string> digests_of(const lathe_plan* plan) {
  std::vector<std::string> out(lathe_plan_kernel_count(plan));
  for (size_t i = 0; i < out.size(); ++i) {
    const char* text = nullptr;
    size_t size = 0;
    check(lathe_plan_kernel_text(plan, i, LATHE_TEXT_PTX, &text, &size));
    out[i] = digest_of(std::string(text, size));
  }
  return out;
}

Json counts_json(const lathe_plan* plan, const Json& launches) {
  const std::vector<std::string> digests = digests_of(plan);
  std::vector<Sum> sums(digests.size());
  Sum total;
  for (const Json& launch : launches) {
    const auto found = std::find(digests.begin(), digests.end(), launch.value("module", ""));
    if (found == digests.end()) return nullptr;
    sums[static_cast<size_t>(found - digests.begin())].add(launch);
    total.add(launch);
  }
  Json kernels = Json::array();
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].launches == 0) continue;
    Json one = sums[i];
    one["kernel"] = i;
    one["name"] = kernel_info(plan, i).name;
    kernels.push_back(std::move(one));
  }
  return {{"kernels", std::move(kernels)}, {"total", total}};
}

Json prediction_json(const lathe_estimate& estimate, const Json& counted, const Json& clock) {
  Json out = {{"gpu", estimate.gpu}};
  const auto tell = [&](const Json& microseconds, const std::string& bound, const char* from,
                        const std::string& sentence) {
    out["microseconds"] = microseconds;
    out["bound"] = resource_word(bound);
    out["from"] = from;
    out["sentence"] = sentence;
    return out;
  };
  if (!clock.is_null()) {
    const bool machine_code = clock.at("from") == "sass";
    return tell(clock.at("microseconds"), clock.at("bound").get<std::string>(), "clock",
                text("a prediction by the simulator's clock, from ",
                     machine_code ? "machine code" : "PTX"));
  }
  const std::string rates = ", every resource busy at once, no stalls, full clocks";
  if (!counted.is_null()) {
    const Json& total = counted.at("total");
    return tell(total.at("microseconds"), total.at("bound").get<std::string>(), "counts",
                "the least by the data sheet for what the simulator counted" + rates);
  }
  return tell(estimate.microseconds, estimate.bound, "formulas",
              "the least by the data sheet for what formulas count" + rates +
                  "; instructions and shared memory left out");
}

}  // namespace lathe::cli
