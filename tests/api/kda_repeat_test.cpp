// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda over ten schedules and on several host threads: the order of warps, of blocks and of what is
// asynchronous differs, no bit of a result does. A process has one schedule, so each run is a
// child.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/api/kda_case.h"

using namespace apitest;

namespace {

constexpr int kSchedules = 10;

void run_child(const KdaCase& kda, int to) {
  try {
    const Context context = make_context();
    const KdaInputs inputs = make_kda_inputs(kda);
    std::vector<double> all;
    for (const auto& [name, values] : run_kda(context.get(), kda, inputs)) {
      all.insert(all.end(), values.begin(), values.end());
    }
    const auto* bytes = reinterpret_cast<const char*>(all.data());
    const Report report = take_report();
    for (const auto& finding : report.findings) std::fprintf(stderr, "%s\n", finding.c_str());
    size_t left = report.findings.empty() ? all.size() * sizeof(double) : 0;
    while (left > 0) {
      const ssize_t written = write(to, bytes, left);
      if (written <= 0) break;
      bytes += written;
      left -= static_cast<size_t>(written);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

// The bytes of every value of every output, by name, or nothing if the run failed.
std::string run_in_child(const KdaCase& kda, int schedule, const char* arch = "sm_90a") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    static const char* const policies[] = {"lazy", "eager", "random"};
    static const char* const threads[] = {"1", "2", "4"};
    setenv("LATHE_SIM_SEED", std::to_string(schedule).c_str(), 1);
    setenv("LATHE_SIM_ASYNC", policies[schedule % 3], 1);
    setenv("LATHE_SIM_THREADS", threads[schedule / 3 % 3], 1);
    setenv("LATHE_TEST_ARCH", arch, 1);
    run_child(kda, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  std::string bytes;
  char buffer[65536];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) bytes.append(buffer, got);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return bytes;
}

size_t differing(const std::string& a, const std::string& b) {
  size_t count = 0;
  for (size_t at = 0; at + 8 <= std::min(a.size(), b.size()); at += 8) {
    count += std::memcmp(&a[at], &b[at], 8) != 0;
  }
  return count;
}

void check_repeats(const KdaCase& kda) {
  INFO(kda.text());
  const std::string first = run_in_child(kda, 0);
  REQUIRE(!first.empty());
  for (int schedule = 1; schedule < kSchedules; ++schedule) {
    const std::string again = run_in_child(kda, schedule);
    CHECK_MESSAGE(again == first, "schedule ", schedule, ": ", again.size(), " bytes of ",
                  first.size(), ", of which ", differing(again, first), " values differ");
  }
}

KdaCase sample() {
  KdaCase kda;
  kda.group = 2;
  kda.key_dim = 128, kda.value_dim = 72;
  kda.tokens = 140;
  kda.l2norm = kda.sigmoid = kda.dt_bias = true;
  kda.gate = 1;
  kda.chunk_states = kda.backward = kda.dht = true;
  return kda;
}

TEST_CASE("kda: the same bits under ten schedules, and on 1, 2 and 4 host threads") {
  check_repeats(sample());
}

// Blocks of half as many values where shared memory is small: no value knows of another.
TEST_CASE("kda: the same bits whatever the architecture and its tiles") {
  KdaCase kda = sample();
  kda.group = 1;
  kda.segments = 2;
  const std::string first = run_in_child(kda, 0);
  REQUIRE(!first.empty());
  for (const char* arch : {"sm_80", "sm_86"}) {
    const std::string other = run_in_child(kda, 1, arch);
    CHECK_MESSAGE(other == first, std::string(arch), ": ", other.size(), " bytes of ", first.size(),
                  ", of which ", differing(other, first), " values differ");
  }
}

TEST_CASE("kda: the same of packed sequences in segments, with what the forward has saved") {
  KdaCase kda = sample();
  kda.element = LATHE_F16;
  kda.key_dim = 60, kda.value_dim = 36;
  kda.group = 1;
  kda.gate = 0, kda.dt_bias = false;
  kda.cu_seqlens = {0, 131, 131, 150, 215};
  kda.padding = 5;
  kda.segments = 3;
  kda.saved = kda.apart = true;
  check_repeats(kda);
}

}  // namespace
