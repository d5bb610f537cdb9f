// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe_bench prints figures in markdown or CSV. Benches that use a device run on LATHE_TEST_DEVICE
// (sim, or cuda).
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "bench/verbs.h"

namespace {

struct Words {
  std::string format = "markdown", device, arch;
};

void add_options(CLI::App* app, bench::Settings* settings, Words* words) {
  app->add_option("--format", words->format, "how the table is printed")
      ->check(CLI::IsMember({"markdown", "csv"}))
      ->capture_default_str();
  app->add_option("--device", words->device, "sim or cuda; default: LATHE_TEST_DEVICE, else sim")
      ->check(CLI::IsMember({"sim", "cuda"}));
  app->add_option("--arch", words->arch,
                  "what to compile for, such as sm_80; default: LATHE_TEST_ARCH");
  app->add_option("--runs", settings->runs, "samples; default: the bench's own number")
      ->check(CLI::NonNegativeNumber);
  app->add_flag("--full", settings->full,
                "conv, attn, kda, sparse: larger shapes on the simulator");
  app->add_flag("--tiny", settings->tiny, "conv, attn, kda, sparse: a few small shapes instead");
  app->add_option(
      "--append", settings->append,
      "conv, attn, kda, sparse: add each row to this CSV when it is there, and leave out "
      "what it has");
  app->add_flag(
      "--peers", settings->peers,
      "kda, cache: beside Triton and flash-linear-attention, installed if need be (2.5 GB)");
  app->add_option("--tokens", settings->tokens, "ring: tokens of each rank; default: 8192")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--only", settings->only,
                  "sim, cache, conv, attn, kda, processes, ring, sparse, launch: what has this in "
                  "its name; launch: or is named so");
  app->add_option("--isa", settings->isa,
                  "sim: one instruction set; default: each this machine has")
      ->check(CLI::IsMember({"base", "avx2", "avx512"}));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times lathe and counts what its kernels move. Results are checked first.",
               "lathe_bench");
  bench::Settings settings;
  Words words;
  add_options(&app, &settings, &words);
  app.require_subcommand(1);
  app.fallthrough();

  bench::Table (*verb)(const bench::Settings&) = nullptr;
  const auto add = [&](const char* name, const char* sentence,
                       bench::Table (*function)(const bench::Settings&)) {
    app.add_subcommand(name, sentence)->callback([&verb, function] { verb = function; });
  };
  add("compile", "each kernel through NVRTC, nothing cached", bench::bench_compile);
  add("warm", "a start with the kernels on disk", bench::bench_warm);
  add("processes", "64 processes on a cold cache: compiles, and time", bench::bench_processes);
  add("cache", "new processes with kernels on disk, and without", bench::bench_cache);
  add("cache-sample", "one process of cache", bench::bench_cache_child);
  add("launch", "a prepared plan over a driver that does nothing", bench::bench_launch);
  add("conv", "causal_conv1d: time on a GPU, bytes on the simulator", bench::bench_conv);
  add("attn", "flash_attention: time on a GPU, counts on the simulator", bench::bench_attn);
  add("kda", "kda: time on a GPU, counts on the simulator", bench::bench_kda);
  add("sparse", "sparse_flash_attention: time on a GPU, counts on the simulator",
      bench::bench_sparse);
  add("ring", "attention over ranks on a timeline in model time", bench::bench_ring);
#ifdef LATHE_BENCH_SIM
  add("sim", "the simulator's own speed on one core", bench::bench_sim);
#endif
  CLI11_PARSE(app, argc, argv);

  try {
    if (!words.device.empty()) setenv("LATHE_TEST_DEVICE", words.device.c_str(), 1);
    if (!words.arch.empty()) setenv("LATHE_TEST_ARCH", words.arch.c_str(), 1);
    settings.folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
    const auto table = verb(settings);
    if (settings.append.empty())
      std::cout << (words.format == "csv" ? table.csv() : table.markdown());
  } catch (const std::exception& error) {
    std::cerr << "lathe_bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
