// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ten schedules: the order of warps, of blocks' additions and of what is
// asynchronous differs, results must not. A process has one schedule, so each run is a child.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/api/attention_case.h"

using namespace apitest;

namespace {

constexpr int kSchedules = 10;

// Every value of every output, one after another by name, or nothing if the run failed.
std::vector<double> flatten(const Values& values) {
  std::vector<double> all;
  for (const auto& [name, each] : values) all.insert(all.end(), each.begin(), each.end());
  return all;
}

void run_child(const AttentionCase& attention, int to) {
  try {
    const Context context = make_context();
    const Values values = run_attention(context.get(), attention, make_inputs(attention));
    const std::vector<double> all = flatten(values);
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

std::vector<double> run_in_child(const AttentionCase& attention, int schedule) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    static const char* const policies[] = {"lazy", "eager", "random"};
    setenv("LATHE_SIM_SEED", std::to_string(schedule).c_str(), 1);
    setenv("LATHE_SIM_ASYNC", policies[schedule % 3], 1);
    run_child(attention, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  std::string bytes;
  char buffer[65536];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) bytes.append(buffer, got);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(double));
  return values;
}

// The share of the values that no schedule changes must be all of them, `but` for one output.
void check_repeats(const AttentionCase& attention, const char* but = "") {
  INFO(attention.text());
  // Where each output lies: names in order, as flatten has them.
  const int64_t rows = 2 * attention.queries[0], keys = 2 * attention.keys[0];
  const std::map<std::string, int64_t> sizes = {
      {"dk", keys * attention.kv_heads * attention.head_dim},
      {"dq", rows * attention.heads() * attention.head_dim},
      {"dsinks", attention.sinks ? attention.heads() : 0},
      {"dv", keys * attention.kv_heads * attention.value_dim},
      {"lse", rows * attention.heads()},
      {"out", rows * attention.heads() * attention.value_dim}};
  const std::vector<double> first = run_in_child(attention, 0);
  size_t expected = 0;
  for (const auto& [name, size] : sizes) expected += static_cast<size_t>(size);
  REQUIRE(first.size() == expected);
  for (int schedule = 1; schedule < kSchedules; ++schedule) {
    const std::vector<double> again = run_in_child(attention, schedule);
    REQUIRE(again.size() == expected);
    const double *a = first.data(), *b = again.data();
    for (const auto& [name, size] : sizes) {
      const size_t bytes = static_cast<size_t>(size) * sizeof(double);
      if (name != but) {
        CHECK_MESSAGE(std::memcmp(a, b, bytes) == 0, name, " differs under schedule ", schedule);
      }
      a += size, b += size;
    }
  }
}

AttentionCase sample() {
  AttentionCase c{.kv_heads = 1, .group = 3};
  c.queries = {130, 130}, c.keys = {300, 300};
  c.causal = c.sinks = c.backward = c.dlse = true;
  return c;
}

TEST_CASE("attention: deterministic gradients are the same bits under ten schedules") {
  AttentionCase c = sample();
  c.deterministic = true;
  check_repeats(c);
  c.group = 1;
  c.head_dim = 96, c.value_dim = 40;
  c.softcap = 5;
  check_repeats(c);
}

TEST_CASE("attention: without asking for it all but dq are") { check_repeats(sample(), "dq"); }

}  // namespace
