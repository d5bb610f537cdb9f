// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every family asks who decides among its tiles, and takes the answer.
#include "codegen/choice.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>

#include "ops/conv/update/step.h"
#include "ops/kda/chunked_kernels.h"
#include "ops/kda/decode/kernels.h"
#include "ops/kda/kernels.h"
#include "ops/sparse/run.h"
#include "tests/ops/attention/kernel_problems.h"

using namespace lathe;

namespace {

// Notes what is asked, and answers `answer` to the tuning key of that number.
class Listener : public Choices {
 public:
  explicit Listener(size_t number = 0, size_t answer = 0) : number_(number), answer_(answer) {}
  size_t choose(const TuningKey& tuning_key) const override {
    asked.push_back(tuning_key);
    return asked.size() == number_ + 1 ? answer_ : 0;
  }
  mutable std::vector<TuningKey> asked;

 private:
  size_t number_, answer_;
};

std::string texts(std::initializer_list<const KernelSlot*> specs) {
  std::string all;
  for (const auto* spec : specs) {
    if (*spec) all += (*spec)->text() + '\n';
  }
  return all;
}

// A problem, as the specs that its kernels have on a device.
using Specs = std::function<std::string(const DeviceFacts&)>;

Specs conv(bool forward, bool backward) {
  return [=](const DeviceFacts& facts) {
    ConvProblem problem;
    problem.forward = forward, problem.backward = problem.weight_grad = backward;
    const auto kernels = *conv_kernels(problem, facts, false);
    return texts({&kernels.forward, &kernels.backward, &kernels.weight_grad});
  };
}

Specs attention(int width, bool local, Dtype element = Dtype::bf16) {
  return [=](const DeviceFacts& facts) {
    AttentionProblem problem;
    problem.head_dim = problem.value_dim = width;
    problem.local = local, problem.element = element;
    problem.forward = problem.backward = true;
    const auto forward = kernel_problems::forward_kernels(problem, facts);
    const auto backward = kernel_problems::backward_kernels(problem, facts, {true, true});
    return texts({&forward->kernel, &backward->together, &backward->apart});
  };
}

Specs block() {
  return [](const DeviceFacts& facts) {
    AttentionProblem problem;
    problem.ranges = problem.forward = problem.backward = true;
    const KernelSlot forward = kernel_problems::block_spec(problem, facts);
    const KernelSlot backward = kernel_problems::block_backward_spec(problem, facts);
    return texts({&forward, &backward});
  };
}

Specs decode() {
  return [](const DeviceFacts& facts) {
    AttentionProblem problem;
    problem.decode = true;
    std::string all;
    for (const auto& each : kernel_problems::decode_kernels(problem, facts, {})) {
      all += each->kernel->text() + '\n';
    }
    return all;
  };
}

Specs kda(bool forward, bool backward, bool segmented) {
  return [=](const DeviceFacts& facts) {
    KdaProblem problem;
    problem.forward = forward, problem.backward = backward, problem.segmented = segmented;
    problem.grouped = false;
    auto kernels = kda_chunked_kernels(problem, facts);
    std::string all;
    for (const KernelSlot* slot : kernels->slots()) all += texts({slot});
    return all;
  };
}

Specs recurrent() {
  return [](const DeviceFacts& facts) {
    const KernelSlot kernel = *kda_recurrent_kernel({}, facts);
    return texts({&kernel});
  };
}

Specs decode_layer() {
  return [](const DeviceFacts& facts) {
    const KernelSlot kernel = *kda_decode_kernel({}, facts);
    return texts({&kernel});
  };
}

Specs sparse(int group) {
  return [=](const DeviceFacts& facts) {
    SparseProblem problem;
    problem.group = group, problem.values_in_keys = true;
    problem.forward = problem.backward = true;
    const auto kernels = sparse_kernels(problem, facts);
    return texts({&kernels->forward->kernel, &kernels->backward.main->kernel});
  };
}

struct Row {
  const char* name;
  Specs specs;
  size_t tuning_keys;
};
const Row kProblems[] = {
    {"conv forward", conv(true, false), 1},
    {"conv both", conv(true, true), 2},
    {"attention 64", attention(64, false), 2},
    {"attention 128 causal", attention(128, true), 2},
    {"attention 256", attention(256, true), 2},
    {"attention f32", attention(64, false, Dtype::f32), 2},
    {"block", block(), 2},
    {"decode", decode(), 2},
    {"kda forward", kda(true, false, false), 1},
    {"kda forward, segments", kda(true, false, true), 1},
    {"kda backward", kda(false, true, false), 1},
    {"kda recurrent", recurrent(), 1},
    {"kda decode", decode_layer(), 1},
    {"sparse 128", sparse(128), 2},
    {"sparse 16", sparse(16), 2},
};

// With Hopper's kernels among the candidates if `sm90`.
DeviceFacts with(const char* arch, std::shared_ptr<const Choices> choices, bool sm90 = false) {
  DeviceFacts facts = *facts_of_arch(arch);
  facts.family = sm90 ? "sm90" : "portable";
  facts.choices = std::move(choices);
  return facts;
}

// Without and with Hopper's kernels.
void for_each_row(const std::function<void(const Row&, bool sm90)>& check) {
  for (const Row& row : kProblems) {
    for (const bool sm90 : {false, true}) {
      const std::string name = row.name;
      CAPTURE(name);
      CAPTURE(sm90);
      check(row, sm90);
    }
  }
}

}  // namespace

TEST_CASE("choice: who is asked and says the first changes nothing") {
  for (const char* arch : {"sm_80", "sm_90a", "sm_120"}) {
    for (const Row& row : kProblems) {
      const std::string name = row.name;
      CAPTURE(arch);
      CAPTURE(name);
      const auto listener = std::make_shared<Listener>();
      CHECK(row.specs(with(arch, listener)) == row.specs(*facts_of_arch(arch)));
      CHECK(row.specs(with(arch, std::make_shared<Listener>(0, 1000))) ==
            row.specs(*facts_of_arch(arch)));
      CHECK(listener->asked.size() <= row.tuning_keys);
    }
  }
}

TEST_CASE("choice: each kernel of each family has a tuning_key of its own") {
  for_each_row([](const Row& row, bool sm90) {
    const auto listener = std::make_shared<Listener>();
    row.specs(with("sm_90a", listener, sm90));
    REQUIRE(listener->asked.size() == row.tuning_keys);
    std::set<std::string> distinct;
    for (const TuningKey& each : listener->asked) {
      distinct.insert(each.kernel + each.problem_class);
      CHECK(each.candidates.size() > 1);
      const std::set<std::string> candidates(each.candidates.begin(), each.candidates.end());
      CHECK(candidates.size() == each.candidates.size());
      // Values that the tile decides are no part of the class.
      for (const char* word : {" n=", " stages=", " threads=", " smem=", " tokens=", " warps="}) {
        CHECK_MESSAGE((' ' + each.problem_class).find(word) == std::string::npos,
                      each.problem_class);
      }
      for (const std::string& text : {each.kernel, each.problem_class}) {
        CHECK(text.find('|') == std::string::npos);
        CHECK(!text.empty());
      }
    }
    CHECK(distinct.size() == listener->asked.size());
  });
}

TEST_CASE("choice: the answer is the tile of that kernel, and of no other tuning_key's") {
  for_each_row([](const Row& row, bool sm90) {
    const auto first = std::make_shared<Listener>();
    const std::string usual = row.specs(with("sm_90a", first, sm90));
    for (size_t number = 0; number < first->asked.size(); ++number) {
      const TuningKey& tuning_key = first->asked[number];
      std::set<std::string> seen = {usual};
      for (size_t answer = 1; answer < tuning_key.candidates.size(); ++answer) {
        CAPTURE(tuning_key.candidates[answer]);
        const auto forced = std::make_shared<Listener>(number, answer);
        const std::string specs = row.specs(with("sm_90a", forced, sm90));
        CHECK(seen.insert(specs).second);
        // The tuning keys do not depend on the answers.
        REQUIRE(forced->asked.size() == first->asked.size());
        for (size_t i = 0; i < first->asked.size(); ++i) {
          CHECK(forced->asked[i].problem_class == first->asked[i].problem_class);
          CHECK(forced->asked[i].candidates == first->asked[i].candidates);
        }
        // Each constant of the candidate is one of the kernel's line.
        std::string tile = tuning_key.candidates[answer];
        const std::string kernel(kernel_of(tuning_key, tile));
        CHECK_MESSAGE(('\n' + specs).find('\n' + kernel + ' ') != std::string::npos, specs);
        if (tile.starts_with("kernel=")) tile.erase(0, tile.find(' ') + 1);
        const size_t space = tile.rfind(' ');
        if (space == std::string::npos) continue;
        tile.resize(space);
        CHECK_MESSAGE(specs.find(tile.substr(0, tile.find(' '))) != std::string::npos, specs);
      }
    }
  });
}

TEST_CASE("choice: implementations of a step compete in one tuning_key") {
  ConvProblem problem;
  problem.update = true;
  const auto listener = std::make_shared<Listener>();
  const auto update = [&](const auto& choices) {
    return *(*make_step(conv_updates(), problem, with("sm_90a", choices)))->kernel;
  };
  const std::string usual = update(listener).text();
  REQUIRE(listener->asked.size() == 1);
  const TuningKey tuning_key = listener->asked.front();
  CHECK(tuning_key.kernel == "causal_conv1d_update");
  std::vector<std::string> expected;
  std::vector<std::string> kernels;
  for (const ConvUpdateStep* how : conv_updates()) {
    if (!how->refusal(problem, *facts_of_arch("sm_90a")).empty()) continue;
    for (const KernelSpec& spec : how->candidates(problem, *facts_of_arch("sm_90a"))) {
      const std::string tile = "warps=" + std::to_string(spec.threads / 32);
      expected.push_back((kernels.empty() ? "" : "kernel=" + spec.kernel + " ") + tile);
      kernels.push_back(spec.kernel);
    }
  }
  REQUIRE(expected.size() >= 4);
  CHECK(tuning_key.candidates == expected);
  CHECK(kernel_of(tuning_key, expected[0]) == "causal_conv1d_update");
  CHECK(kernel_of(tuning_key, expected[1]) == "causal_conv1d_update_row");
  std::set<std::string> seen = {usual};
  for (size_t answer = 1; answer < expected.size(); ++answer) {
    const auto forced = std::make_shared<Listener>(0, answer);
    const KernelSpec spec = update(forced);
    CHECK(seen.insert(spec.text()).second);
    CHECK(spec.kernel == kernel_of(tuning_key, expected[answer]));
    CHECK(spec.kernel == kernels[answer]);
  }
  // An answer that is none, and nobody to ask.
  const auto none = std::make_shared<Listener>(0, expected.size());
  CHECK(update(none).text() == usual);
  CHECK((*make_step(conv_updates(), problem, *facts_of_arch("sm_90a")))->kernel->text() == usual);
}

TEST_CASE("choice: the class and candidates are texts of the spec") {
  const auto listener = std::make_shared<Listener>();
  conv(true, false)(with("sm_90a", listener));
  REQUIRE(listener->asked.size() == 1);
  const TuningKey& tuning_key = listener->asked.front();
  CHECK(tuning_key.kernel == "causal_conv1d");
  CHECK(tuning_key.candidates.front() == "tokens=64 warps=4");
  CHECK(tuning_key.candidates.back() == "tokens=128 warps=2");
  CHECK(tuning_key.problem_class.substr(0, 30) == "x=bf16 weight=bf16 offsets=i32");
  CHECK(tuning_key_of({}).candidates.empty());
}
