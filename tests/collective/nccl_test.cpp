// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Libraries that are not there or are not NCCL, and how its errors read.
#include "collective/nccl.h"

#include <doctest/doctest.h>

#include <cstdlib>

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

TEST_CASE("errors carry the call, the sentence, the number and the library's last words") {
  const auto nccl = fakes::nccl();
  CHECK(check(*nccl, nullptr, ncclSuccess, "x").ok());
  const Status status = check(*nccl, nullptr, ncclRemoteError, "ncclSend");
  CHECK(status.code() == Code::nccl);
  CHECK(status.text() == "ncclSend: a fake error (6): the fake's last words");
}
