// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention over ten schedules: the order of warps, of blocks' additions and of what
// is asynchronous differs, results must not. A process has one schedule, so each run is a child.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/api/sparse_case.h"

using namespace apitest;

namespace {

constexpr int kSchedules = 10;

// Every value of every output, one after another by name, or nothing if the run failed.
void run_child(const SparseCase& sparse, int to) {
  try {
    const Context context = make_context();
    const SparseAnswer answer = run_sparse(context.get(), sparse, make_sparse(sparse));
    const Report report = take_report();
    for (const auto& finding : report.findings) std::fprintf(stderr, "%s\n", finding.c_str());
    if (!report.findings.empty()) return;
    for (const auto& [name, values] : answer.outputs) {
      const auto* bytes = reinterpret_cast<const char*>(values.data());
      for (size_t left = values.size() * sizeof(double); left > 0;) {
        const ssize_t written = write(to, bytes, left);
        if (written <= 0) return;
        bytes += written, left -= static_cast<size_t>(written);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

std::string run_in_child(const SparseCase& sparse, int schedule) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    static const char* const policies[] = {"lazy", "eager", "random"};
    setenv("LATHE_SIM_SEED", std::to_string(schedule).c_str(), 1);
    setenv("LATHE_SIM_ASYNC", policies[schedule % 3], 1);
    run_child(sparse, ends[1]);
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

SparseCase small() {
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 64, s.rope_dim = 16, s.value_dim = 64, s.kv_heads = 2, s.group = 8;
  s.rows = {17, 0, 9}, s.keys = {40, 3, 11}, s.topk = 65;
  s.packed = s.causal = s.sinks = true;
  return c;
}

void check_repeats(const SparseCase& c) {
  INFO(c.text());
  const std::string first = run_in_child(c, 0);
  REQUIRE_FALSE(first.empty());
  for (int schedule = 1; schedule < kSchedules; ++schedule) {
    CHECK_MESSAGE((run_in_child(c, schedule) == first), "schedule ", schedule);
  }
}

TEST_CASE("sparse attention: a forward is the same bits in every schedule") {
  for (const int splits : {1, 3}) {
    SparseCase c = small();
    c.splits = splits;
    check_repeats(c);
  }
}

// Keys are named by many rows, and more than once by a row.
TEST_CASE("sparse attention: a deterministic backward is the same bits in every schedule") {
  for (const bool inside : {false, true}) {
    SparseCase c = small();
    c.backward = c.deterministic = true, c.shape.values_in_keys = inside;
    check_repeats(c);
  }
}

}  // namespace
