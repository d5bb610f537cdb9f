// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover libraries that are not there or are not NCCL, and how its errors read.
#include "collective/nccl.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/collective/fakes.h"

using namespace lathe;

TEST_CASE("a library that cannot be used says which, why and what to do") {
  struct Bad {
    const char* file;
    const char* says;
  };
  for (const Bad& bad : {Bad{"/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2"},
                         Bad{"libm.so.6", "lacks ncclGetVersion, ncclGetUniqueId"}}) {
    setenv("LATHE_NCCL", bad.file, 1);
    const Status status = open_nccl(NcclChoice::real).status();
    CHECK(status.code() == Code::nccl);
    CHECK_MESSAGE(status.text().find(bad.says) != std::string::npos, status.text());
    CHECK_MESSAGE(status.text().find("LATHE_NCCL") != std::string::npos, status.text());
  }
  unsetenv("LATHE_NCCL");
}

TEST_CASE("the drop-in is taken for real when it is named, and never when it is found") {
  const auto drop_in = open_nccl(NcclChoice::threads);
  if (!drop_in.ok()) {
    MESSAGE("skipped: ", drop_in.status().text());
    return;
  }
  const std::string path = (*drop_in)->path;
  // From here on the loader answers the bare name with the drop-in.
  unsetenv("LATHE_NCCL");
  const auto found = open_nccl(NcclChoice::real);
  if (found.ok()) {
    CHECK_FALSE(std::filesystem::equivalent((*found)->path, path));
  } else {
    CHECK(found.status().code() == Code::nccl);
    CHECK_MESSAGE(
        found.status().text().find("leads to the simulator's " + path) != std::string::npos,
        found.status().text());
  }
  setenv("LATHE_NCCL", path.c_str(), 1);
  const auto named = open_nccl(NcclChoice::real);
  unsetenv("LATHE_NCCL");
  REQUIRE_MESSAGE(named.ok(), named.status().text());
  CHECK(std::filesystem::equivalent((*named)->path, path));
}

TEST_CASE("errors carry the call, the sentence, the number and the library's last words") {
  const auto nccl = fakes::nccl();
  CHECK(check(*nccl, nullptr, ncclSuccess, "x").ok());
  const Status status = check(*nccl, nullptr, ncclRemoteError, "ncclSend");
  CHECK(status.code() == Code::nccl);
  CHECK(status.text() == "ncclSend: a fake error (6): the fake's last words");
}
