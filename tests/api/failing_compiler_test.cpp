// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover a compiler that crashes on kernels for Hopper and on no others: a fake, which
// the whole program uses.
#include <doctest/doctest.h>

#include <cstdlib>

#include "codegen/base/log.h"
#include "tests/harness/support.h"

namespace {

using test::Builder;
using test::contains;
using test::error;

const bool kCompiler = setenv("LATHE_NVRTC", LATHE_FAKE_NVRTC_DIR "/fake_hopper.so", 1) == 0;

std::string logged;

Builder attention() {
  Builder builder("flash_attention");
  for (const char* name : {"q", "k", "v", "out"}) {
    builder.tensors({{name, LATHE_BF16, {1, 512, 4, 128}}});
  }
  builder.tensors({{"lse", LATHE_F32, {1, 4, 512}}});
  return builder;
}

TEST_CASE("a plan takes portable kernels where the compiler crashes on others, and says so") {
  REQUIRE(kCompiler);
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  REQUIRE_MESSAGE(context, error());
  logged.clear();
  lathe::set_log_sink(
      [](void*, int level, const char* text) {
        if (level == static_cast<int>(lathe::LogLevel::warning)) logged += text;
      },
      nullptr);
  lathe_plan* made = nullptr;
  const lathe_status status = lathe_plan_create(&made, context.get(), attention().problem.get());
  lathe::set_log_sink(nullptr, nullptr);
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  const test::Plan plan(made);
  REQUIRE(lathe_plan_kernel_count(made) == 1);
  lathe_kernel_info info = {};
  info.size = sizeof(info);
  REQUIRE(lathe_plan_kernel(made, 0, &info) == LATHE_OK);
  CHECK(std::string(info.name) == "attention_forward");
  CHECK(std::string(info.family) == "portable");
  CHECK(std::string(info.family_reason) == "not sm90: the compiler fails");
  CHECK(contains(logged, "attention_forward_warpgroups"));
  CHECK(contains(logged, "ended by signal 11"));
}

TEST_CASE("warming reports the kernel that the compiler crashes on") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  REQUIRE_MESSAGE(context, error());
  CHECK(lathe_warm(context.get(), attention().problem.get(), nullptr, nullptr) ==
        LATHE_COMPILE_FAILED);
  CHECK(contains(error(), "attention_forward_warpgroups"));
}

}  // namespace
