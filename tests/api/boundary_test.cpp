// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover codes, texts and structs that carry their size.
#include "api/boundary.h"

#include <doctest/doctest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lathe {
namespace {

TEST_CASE("every status has a name of its own") {
  std::set<std::string> names;
  for (int i = LATHE_OK; i <= LATHE_INTERNAL; ++i) {
    names.insert(lathe_status_name(static_cast<lathe_status>(i)));
  }
  CHECK(names.size() == LATHE_INTERNAL + 1);
  CHECK(names.count("UNKNOWN") == 0);
  CHECK(std::string(lathe_status_name(LATHE_NOT_CACHED)) == "NOT_CACHED");
  CHECK(std::string(lathe_status_name(static_cast<lathe_status>(99))) == "UNKNOWN");
}

TEST_CASE("a failure keeps its text, a success leaves it") {
  CHECK(boundary([] { return Status(Code::cuda, "cuX: broken"); }) == LATHE_CUDA);
  CHECK(std::string(lathe_last_error()) == "cuX: broken");
  CHECK(boundary([] { return Status(); }) == LATHE_OK);
  CHECK(std::string(lathe_last_error()) == "cuX: broken");
}

TEST_CASE("exceptions become INTERNAL") {
  CHECK(boundary([]() -> Status { throw std::runtime_error("lost"); }) == LATHE_INTERNAL);
  CHECK(std::string(lathe_last_error()) == "lost");
  CHECK(boundary([]() -> Status { throw std::bad_alloc(); }) == LATHE_INTERNAL);
  CHECK(std::string(lathe_last_error()).find("memory") != std::string::npos);
  CHECK(boundary([]() -> Status { throw 7; }) == LATHE_INTERNAL);
}

TEST_CASE("each thread has its own text") {
  boundary([] { return Status(Code::internal, "mine"); });
  std::string before, after;
  std::thread other([&] {
    before = lathe_last_error();
    boundary([] { return Status(Code::internal, "other"); });
    after = lathe_last_error();
  });
  other.join();
  CHECK(before == "");
  CHECK(after == "other");
  CHECK(std::string(lathe_last_error()) == "mine");
}

struct Sized {
  size_t size;
  int value;
  int more;
};
struct Longer {
  Sized known;
  int64_t unknown;
};

TEST_CASE("a longer struct is taken if what is not known is zero") {
  Longer from = {{sizeof(Longer), 3, 4}, 0};
  Sized to = {};
  CHECK(take_sized(&from.known, "options", &to).ok());
  CHECK(to.value == 3);
  CHECK(to.more == 4);

  from.unknown = int64_t{1} << 56;
  const Status refused = take_sized(&from.known, "options", &to);
  CHECK(refused.code() == Code::invalid_argument);
  CHECK(refused.text().find("options has a value at byte 23") != std::string::npos);

  from.known.size = sizeof(Sized) - 1;
  CHECK(take_sized(&from.known, "options", &to).text().find("at least 16") != std::string::npos);
}

TEST_CASE("a longer struct is given with zeros behind what is known") {
  Longer out = {{sizeof(Longer), 9, 9}, -1};
  CHECK(check_sized(&out.known).ok());
  CHECK(give_sized(Sized{0, 1, 2}, &out.known).ok());
  CHECK(out.known.size == sizeof(Longer));
  CHECK(out.known.value == 1);
  CHECK(out.known.more == 2);
  CHECK(out.unknown == 0);
  out.known.size = 8;
  CHECK(check_sized(&out.known).code() == Code::invalid_argument);
  CHECK(check_sized(static_cast<Sized*>(nullptr)).code() == Code::invalid_argument);
}

TEST_CASE("a size that no struct has is refused, and nothing is read or written by it") {
  for (const size_t size : {size_t{4097}, size_t{100000}, ~size_t{0}}) {
    CAPTURE(size);
    Sized in = {size, 1, 2}, out = {size, 9, 9}, to = {};
    for (const Status& refused : {take_sized(&in, "options", &to), check_sized(&out)}) {
      CHECK(refused.code() == Code::invalid_argument);
      CHECK(refused.text().find("size is " + std::to_string(size)) != std::string::npos);
      CHECK(refused.text().find("at least 16 and at most 4096") != std::string::npos);
    }
  }
  struct {
    Sized known;
    char rest[4096 - sizeof(Sized)];
  } whole = {};
  whole.known.size = sizeof whole;
  Sized to = {};
  CHECK(take_sized(&whole.known, "options", &to).ok());
  CHECK(check_sized(&whole.known).ok());
}

TEST_CASE("the version is that of the header") {
  CHECK(std::string(lathe_version()) == std::to_string(LATHE_VERSION_MAJOR) + "." +
                                            std::to_string(LATHE_VERSION_MINOR) + "." +
                                            std::to_string(LATHE_VERSION_PATCH));
}

TEST_CASE("null arguments are refused by name") {
  CHECK(lathe_context_create(nullptr, nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(std::string(lathe_last_error()) == "out is NULL, but must be given");
  lathe_plan* plan = nullptr;
  CHECK(lathe_plan_create(&plan, nullptr, nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_plan_run(nullptr, nullptr, nullptr, 0, nullptr) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_group_error(nullptr) == LATHE_INVALID_ARGUMENT);
  lathe_context_destroy(nullptr);
  lathe_problem_destroy(nullptr);
  lathe_plan_destroy(nullptr);
  lathe_group_destroy(nullptr);
  lathe_shard_destroy(nullptr);
}

}  // namespace
}  // namespace lathe
