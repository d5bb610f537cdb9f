// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention over ten schedules: the order of warps, of blocks' additions and of what is
// asynchronous differs, results must not. A process has one schedule, so each run is a child.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/api/attention_ranks.h"

using namespace apitest;

namespace {

constexpr int kSchedules = 10;

// Every value of every output, one after another by name, or nothing if the run failed.
std::vector<double> flatten(const Values& values) {
  std::vector<double> all;
  for (const auto& [name, each] : values) all.insert(all.end(), each.begin(), each.end());
  return all;
}

// `ranks` of one: no group.
void run_child(const AttentionCase& attention, const RankOptions& ranks, int to) {
  try {
    const Context context = make_context();
    const ref::Attention inputs = make_inputs(attention);
    const Values values = ranks.world > 1 ? run_attention_ranks(attention, inputs, ranks)
                                          : run_attention(context.get(), attention, inputs);
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

std::vector<double> run_in_child(const AttentionCase& attention, const RankOptions& ranks,
                                 int schedule) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    static const char* const policies[] = {"lazy", "eager", "random"};
    setenv("LATHE_SIM_SEED", std::to_string(schedule).c_str(), 1);
    setenv("LATHE_SIM_ASYNC", policies[schedule % 3], 1);
    run_child(attention, ranks, ends[1]);
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

// Float32 sums of another order, rounded to bf16: at most one step, and rounding errors near 0.
bool within_two_roundings(const double* a, const double* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double larger = std::max(std::abs(a[i]), std::abs(b[i]));
    if (!(std::abs(a[i] - b[i]) <= larger * 0x1p-7 + 1e-6)) return false;
  }
  return true;
}

// No schedule changes a bit of any output, `but` one, which may differ by its last place.
void check_repeats(const AttentionCase& attention, const char* but = "",
                   const RankOptions& ranks = {.world = 1}, int schedules = kSchedules) {
  INFO(attention.text() << " " << ranks.text());
  // Where each output lies: names in order, as flatten has them.
  const int64_t rows = 2 * attention.queries[0], keys = 2 * attention.keys[0];
  const std::map<std::string, int64_t> sizes = {
      {"dk", keys * attention.kv_heads * attention.head_dim},
      {"dq", rows * attention.heads() * attention.head_dim},
      {"dsinks", attention.sinks ? attention.heads() : 0},
      {"dv", keys * attention.kv_heads * attention.value_dim},
      {"lse", rows * attention.heads()},
      {"out", rows * attention.heads() * attention.value_dim}};
  const std::vector<double> first = run_in_child(attention, ranks, 0);
  size_t expected = 0;
  for (const auto& [name, size] : sizes) expected += static_cast<size_t>(size);
  REQUIRE(first.size() == expected);
  for (int schedule = 1; schedule < schedules; ++schedule) {
    const std::vector<double> again = run_in_child(attention, ranks, schedule);
    REQUIRE(again.size() == expected);
    const double *a = first.data(), *b = again.data();
    for (const auto& [name, size] : sizes) {
      const size_t bytes = static_cast<size_t>(size) * sizeof(double);
      const bool same =
          name == but ? within_two_roundings(a, b, size) : std::memcmp(a, b, bytes) == 0;
      CHECK_MESSAGE(same, name, " differs under schedule ", schedule);
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

TEST_CASE("attention over ranks: any interleaving of ranks gives the same bits") {
  AttentionCase c = sample();
  c.queries = {70, 70}, c.keys = {90, 90};
  c.deterministic = true;
  for (const unsigned flags : {0u, unsigned{LATHE_ALLGATHER | LATHE_REDUCE_PARAMETER_GRADS}}) {
    check_repeats(c, "", {.world = 3, .balance = LATHE_BALANCE_HEAD_TAIL, .flags = flags}, 6);
  }
}

}  // namespace
