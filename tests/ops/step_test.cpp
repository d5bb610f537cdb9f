// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check how implementations of a step compete, on three that are made up.
#include "ops/step.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace {

using lathe::DeviceFacts;
using lathe::KernelSpec;
using lathe::TuningKey;

struct Problem {
  int width = 0;
};
struct Launcher {
  KernelSpec spec;
};
using How = lathe::Implementation<Problem, Launcher>;

KernelSpec named(const char* kernel, int warps) {
  KernelSpec spec;
  spec.kernel = kernel, spec.threads = 32 * warps;
  return spec;
}

template <int kMost>
std::string up_to(const Problem& problem, const DeviceFacts&) {
  return problem.width <= kMost ? "" : "width above " + std::to_string(kMost);
}
std::unique_ptr<Launcher> make(KernelSpec spec, const Problem&, const DeviceFacts&) {
  return std::make_unique<Launcher>(std::move(spec));
}
std::vector<KernelSpec> narrow(const Problem&, const DeviceFacts&) { return {named("narrow", 1)}; }
std::vector<KernelSpec> middle(const Problem&, const DeviceFacts&) {
  return {named("middle", 2), named("middle", 4)};
}
std::vector<KernelSpec> wide(const Problem&, const DeviceFacts&) { return {named("wide", 8)}; }

const How kNarrow = {"sm90", up_to<8>, narrow, {}, make},
          kMiddle = {"portable", up_to<16>, middle, {}, make},
          kWide = {"portable", up_to<32>, wide, {}, make};
const How* const kStep[] = {&kNarrow, &kMiddle, &kWide};

class Answer : public lathe::Choices {
 public:
  explicit Answer(size_t answer) : answer_(answer) {}
  size_t choose(const TuningKey& tuning_key) const override {
    asked = tuning_key.candidates;
    return answer_;
  }
  mutable std::vector<std::string> asked;

 private:
  size_t answer_;
};

lathe::Result<std::unique_ptr<Launcher>> made(int width, const DeviceFacts& facts) {
  return make_step(lathe::Implementations<Problem, Launcher>(kStep), Problem{width}, facts);
}

std::string chosen(int width, const std::shared_ptr<Answer>& choices = nullptr) {
  DeviceFacts facts;
  facts.family = "auto", facts.choices = choices;
  const auto found = made(width, facts);
  return found.ok() ? (*found)->spec.text() : found.status().text();
}

TEST_CASE("implementations: the first that supports the case is the default") {
  CHECK(chosen(8) == "narrow threads=32 smem=0");
  CHECK(chosen(9) == "middle threads=64 smem=0");
  CHECK(chosen(32) == "wide threads=256 smem=0");
  CHECK(chosen(33) == "width above 16");  // the first one of the family that covers most
}

TEST_CASE("implementations: a plan says which family it took, and why not the first one") {
  DeviceFacts facts;
  facts.family = "sm90";
  const KernelSpec own = (*made(8, facts))->spec;
  CHECK(own.family == std::string_view("sm90"));
  CHECK(own.may_be_rejected);  // another one stands behind it
  CHECK(own.family_reason.empty());
  const KernelSpec other = (*made(9, facts))->spec;
  CHECK(other.family == std::string_view("portable"));
  CHECK_FALSE(other.may_be_rejected);
  CHECK(other.family_reason == "not sm90: width above 8");
  facts.family = "portable", facts.family_reason = "options.family is portable";
  CHECK((*made(8, facts))->spec.family_reason == "not sm90: options.family is portable");
  facts.family = "auto", facts.choices = std::make_shared<Answer>(1);
  CHECK((*made(8, facts))->spec.family_reason == "not sm90: the tuned choice is a portable kernel");
}

TEST_CASE("implementations: a choice is among the candidates of all that support the case") {
  const char* const texts[] = {"narrow threads=32 smem=0", "middle threads=64 smem=0",
                               "middle threads=128 smem=0", "wide threads=256 smem=0"};
  for (size_t i = 0; i < 4; ++i) {
    const auto answer = std::make_shared<Answer>(i);
    CHECK(chosen(8, answer) == texts[i]);
    CHECK(answer->asked == std::vector<std::string>{"warps=1", "kernel=middle warps=2",
                                                    "kernel=middle warps=4",
                                                    "kernel=wide warps=8"});
  }
  const auto fewer = std::make_shared<Answer>(1);
  CHECK(chosen(12, fewer) == texts[2]);
  CHECK(fewer->asked == std::vector<std::string>{"warps=2", "warps=4", "kernel=wide warps=8"});
  CHECK(chosen(8, std::make_shared<Answer>(4)) == texts[0]);  // no candidate
  const auto alone = std::make_shared<Answer>(0);
  CHECK(chosen(20, alone) == texts[3]);
  CHECK(alone->asked.empty());  // nothing to choose
}

}  // namespace
