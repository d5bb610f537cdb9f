// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This test is a program of its own: a process that has used the simulator forks. Its child is told
// so in every call that needs the device, can end what it has inherited, and never hangs.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/harness/support.h"

namespace {

using test::Array;
using test::Builder;
using test::contains;
using test::error;

#define API(call) REQUIRE_MESSAGE((call) == LATHE_OK, #call ": ", error())

const int kUnset = unsetenv("LATHE_SIM_ARCH");

struct Parent {
  const test::Folder folder;
  test::Context context = test::make_context(LATHE_DEVICE_SIM, folder.path, "sm_80");
  test::Group group;
  test::Plan plan;
  void* memory = nullptr;
  Array x, weight, y;
  std::vector<const DLTensor*> slots;

  Parent() {
    REQUIRE_MESSAGE(context, error());
    char id[LATHE_UNIQUE_ID_BYTES];
    API(lathe_unique_id(context.get(), id));
    lathe_group* made = nullptr;
    API(lathe_group_create(&made, context.get(), id, 1, 0, 20000));
    group.reset(made);
    Builder builder("causal_conv1d");
    builder.tensors({{"x", LATHE_F32, {1, 16, 8}},
                     {"weight", LATHE_F32, {8, 4}},
                     {"y", LATHE_F32, {1, 16, 8}}});
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    lathe_plan* planned = nullptr;
    API(lathe_plan_create(&planned, context.get(), builder.problem.get()));
    plan.reset(planned);
    API(lathe_malloc(context.get(), &memory, 4096));
    char* const bytes = static_cast<char*>(memory);
    x = Array(LATHE_F32, {1, 16, 8}, bytes);
    weight = Array(LATHE_F32, {8, 4}, bytes + 1024);
    y = Array(LATHE_F32, {1, 16, 8}, bytes + 2048);
    slots.resize(lathe_plan_slot_count(planned));
    const std::pair<const char*, Array*> tensors[] = {{"x", &x}, {"weight", &weight}, {"y", &y}};
    for (const auto& [name, array] : tensors) {
      size_t slot = 0;
      API(lathe_plan_slot(planned, name, &slot));
      slots.at(slot) = array->get();
    }
    REQUIRE(run() == LATHE_OK);
    API(lathe_stream_synchronize(context.get(), nullptr));
  }
  lathe_status run() { return lathe_plan_run(plan.get(), slots.data(), nullptr, 0, nullptr); }
};

bool refused(lathe_status status) { return status == LATHE_CUDA && contains(error(), "fork()"); }

// Returns the number of the first step that went otherwise; 0: none.
int in_the_child(Parent* parent) {
  alarm(60);  // a child that hangs dies of it
  void* memory = nullptr;
  lathe_context* context = nullptr;
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = LATHE_DEVICE_SIM;
  if (!refused(parent->run())) return 1;
  if (!refused(lathe_malloc(parent->context.get(), &memory, 64))) return 2;
  if (!refused(lathe_stream_synchronize(parent->context.get(), nullptr))) return 3;
  if (!refused(lathe_context_create(&context, &options))) return 4;
  parent->plan.reset();
  parent->group.reset();
  parent->context.reset();
  const test::Context other = test::make_context(LATHE_DEVICE_NONE, "off");
  return other ? 0 : 5;
}

Parent& parent() {
  static Parent* const made = new Parent;
  return *made;
}

}  // namespace

TEST_CASE("an architecture is chosen without the environment") {
  lathe_context_info info = {};
  info.size = sizeof info;
  API(lathe_context_get_info(parent().context.get(), &info));
  CHECK(std::string(info.arch) == "sm_80");
  CHECK(std::getenv("LATHE_SIM_ARCH") == nullptr);
}

TEST_CASE("a place that does not exist is refused with what is allowed") {
  const char id[LATHE_UNIQUE_ID_BYTES] = {};
  lathe_group* group = nullptr;
  for (const int world : {0, 65537, 1000000000}) {
    CHECK(lathe_group_create(&group, parent().context.get(), id, world, 0, 1000) ==
          LATHE_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(error(), "world is " + std::to_string(world)), error());
    CHECK_MESSAGE(contains(error(), "1 to 65536"), error());
  }
  for (const int rank : {-1, 2}) {
    CHECK(lathe_group_create(&group, parent().context.get(), id, 2, rank, 1000) ==
          LATHE_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(error(), "rank is " + std::to_string(rank)), error());
    CHECK_MESSAGE(contains(error(), "0 to 1"), error());
  }
  CHECK(lathe_group_create(&group, parent().context.get(), id, 2, 0, -5) == LATHE_INVALID_ARGUMENT);
  CHECK_MESSAGE(contains(error(), "timeout_ms is -5"), error());
}

TEST_CASE("a forked child is refused in words, and ends") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) std::exit(in_the_child(&parent()));
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(parent().run() == LATHE_OK);
}
