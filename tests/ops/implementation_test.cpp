// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check how implementations of a step compete, on three that are made up.
#include "ops/implementation.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace {

using lathe::DeviceFacts;
using lathe::KernelSpec;
using lathe::Status;
using lathe::TuningKey;

struct Problem {
  int width = 0;
};
struct Shape {};
struct Params {};
using How = lathe::Implementation<Problem, Shape, Params>;

KernelSpec named(const char* kernel, int warps) {
  KernelSpec spec;
  spec.kernel = kernel, spec.threads = 32 * warps;
  return spec;
}

template <int kMost>
Status up_to(const Problem& problem, const DeviceFacts&) {
  if (problem.width <= kMost) return {};
  return Status(lathe::Code::unsupported, "width above " + std::to_string(kMost));
}
std::vector<KernelSpec> narrow(const Problem&, const DeviceFacts&) { return {named("narrow", 1)}; }
std::vector<KernelSpec> middle(const Problem&, const DeviceFacts&) {
  return {named("middle", 2), named("middle", 4)};
}
std::vector<KernelSpec> wide(const Problem&, const DeviceFacts&) { return {named("wide", 8)}; }
lathe::Grid grid(const KernelSpec&, const Shape&) { return {}; }

const How kNarrow = {up_to<8>, narrow, {}, grid}, kMiddle = {up_to<16>, middle, {}, grid},
          kWide = {up_to<32>, wide, {}, grid};
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

std::string chosen(int width, const std::shared_ptr<Answer>& choices = nullptr) {
  DeviceFacts facts;
  facts.choices = choices;
  const auto found =
      lathe::choose_kernel(std::span<const How* const>(kStep), Problem{width}, facts);
  if (!found.ok()) return found.status().text();
  CHECK(found->how == (found->spec.kernel == "narrow"   ? &kNarrow
                       : found->spec.kernel == "middle" ? &kMiddle
                                                        : &kWide));
  return found->spec.text();
}

TEST_CASE("implementations: the first that supports the case is the default") {
  CHECK(chosen(8) == "narrow threads=32 smem=0");
  CHECK(chosen(9) == "middle threads=64 smem=0");
  CHECK(chosen(32) == "wide threads=256 smem=0");
  CHECK(chosen(33) == "width above 8");  // the first one says why
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
