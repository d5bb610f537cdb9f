// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests lead from a spec to an entry and a loaded kernel, with the real compiler. They are
// skipped, with the reason, where there is none.
#include "cache/registry.h"

#include <doctest/doctest.h>

#include <thread>

#include "ops/conv/kernels.h"
#include "tests/cache/registry_kernels.h"
#include "tests/cache/support.h"
#include "tests/device/fake_table.h"

using namespace lathe;
using namespace lathe::test;

namespace {

// A registry as a new process would have it.
struct Fresh {
  std::shared_ptr<Store> store;
  Registry registry;
  explicit Fresh(const std::string& root, std::shared_ptr<const Device> device = nullptr)
      : store(Store::open(root)), registry(store, std::move(device), kArch) {}
};

std::string text_of(const Result<std::shared_ptr<const BuiltKernel>>& built) {
  return built.ok() ? std::string() : built.status().text();
}

}  // namespace

TEST_CASE("a kernel comes from the compiler, then from memory, then from disk") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  Fresh first(place.path());
  const auto built = first.registry.build(conv_spec());
  REQUIRE_MESSAGE(built.ok(), text_of(built));
  CHECK((*built)->origin == Origin::compiler);
  CHECK((*first.registry.build(conv_spec()))->origin == Origin::memory);
  CHECK(first.registry.stat().compiled == 1);
  CHECK(first.registry.stat().hits == 1);

  Fresh second(place.path());
  const auto found = second.registry.build(conv_spec());
  REQUIRE(found.ok());
  CHECK((*found)->origin == Origin::disk);
  // Without a device the code stays on disk until somebody wants it.
  CHECK((*found)->entry->ptx.empty());
  CHECK((*found)->entry->cubin.empty());
  const auto whole = second.registry.whole(**found);
  REQUIRE(whole.ok());
  CHECK(same(**whole, *(*built)->entry));
  CHECK((*first.registry.whole(**built)).get() == (*built)->entry.get());
  CHECK((*found)->unit() == (*built)->unit());
  CHECK(second.registry.stat().compiled == 0);
  CHECK((*second.registry.build(conv_spec(3)))->origin == Origin::compiler);
  CHECK(second.store->stat().entries == 2);
  CHECK(std::string(word(Origin::disk)) == "disk");
}

TEST_CASE("code that has gone from the disk is compiled again") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  REQUIRE(Fresh(place.path()).registry.build(conv_spec()).ok());
  Fresh fresh(place.path());
  const auto found = fresh.registry.build(conv_spec());
  REQUIRE(found.ok());
  std::filesystem::remove(path_of(place.path(), (*found)->entry->key));
  const auto whole = fresh.registry.whole(**found);
  REQUIRE(whole.ok());
  CHECK((*whole)->ptx.find(".entry entry") != std::string::npos);
  CHECK((*whole)->cubin.substr(1, 3) == "ELF");
  CHECK(fresh.registry.stat().compiled == 1);

  const Environment off("LATHE_JIT", "off");
  Fresh strict(place.path());
  const auto kept = strict.registry.build(conv_spec());
  REQUIRE(kept.ok());
  std::filesystem::remove(path_of(place.path(), (*kept)->entry->key));
  CHECK(strict.registry.whole(**kept).status().code() == Code::not_cached);
}

TEST_CASE("the metadata tells what the compiler said and what was asked") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  Fresh fresh(place.path());
  const KernelSpec spec = conv_spec();
  const auto built = fresh.registry.build(spec);
  REQUIRE_MESSAGE(built.ok(), text_of(built));
  const auto& metadata = (*built)->entry->metadata;
  const auto compiler = Compiler::open();
  CHECK(metadata.size() == 15);
  CHECK(metadata.find("spec") == spec.text());
  CHECK(metadata.find("kernel") == spec.kernel);
  CHECK(metadata.find("threads") == std::to_string(spec.threads));
  CHECK(metadata.find("smem_dynamic") == std::to_string(spec.smem_bytes));
  CHECK(metadata.find("nvrtc") == (*compiler)->identity());
  CHECK(metadata.find("spill_stores") == "0");
  CHECK(metadata.find("remarks") == "");
  CHECK(std::stoi(std::string(*metadata.find("registers"))) > 8);
  CHECK((*built)->entry->key.text.find("arch=sm_90a\n") != std::string::npos);
  CHECK((*built)->entry->cubin.substr(1, 3) == "ELF");
  CHECK((*built)->entry->ptx.find(".entry entry") != std::string::npos);
}

TEST_CASE("threads that ask for one kernel share one compile") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  Fresh fresh(place.path());
  std::vector<std::thread> threads;
  std::atomic<int> compiled{0}, failed{0};
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&] {
      const auto built = fresh.registry.build(conv_spec());
      if (!built.ok())
        ++failed;
      else if ((*built)->origin == Origin::compiler)
        ++compiled;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(compiled == 1);
  CHECK(fresh.registry.stat().compiled == 1);
  CHECK(fresh.registry.stat().hits == 15);
}

TEST_CASE("processes that ask for one kernel share one compile") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  std::vector<pid_t> children;
  for (int i = 0; i < 64; ++i)
    children.push_back(in_child([&] {
      Fresh fresh(place.path());
      const auto built = fresh.registry.build(conv_spec(2));
      if (!built.ok()) return 2;
      return (*built)->origin == Origin::compiler ? 1 : 0;
    }));
  int compiled = 0;
  for (const pid_t child : children) {
    const int status = wait_for(child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) < 2);
    compiled += WEXITSTATUS(status);
  }
  CHECK(compiled == 1);
}

TEST_CASE("a failed compile goes to every waiter and is not kept") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  Fresh fresh(place.path());
  KernelSpec broken = conv_spec();
  broken.params_bytes += 8;
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto built = fresh.registry.build(broken);
      failed += !built.ok() && built.status().code() == Code::compile_failed;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 4);
  CHECK(fresh.registry.stat().compiled == 0);
  CHECK(fresh.store->stat().entries == 0);
  // The next one tries again, and the compiler is none the worse.
  CHECK_FALSE(fresh.registry.build(broken).ok());
  CHECK(fresh.registry.build(conv_spec()).ok());
}

TEST_CASE("without a usable directory a kernel is compiled and kept in memory") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  write_file(place / "file", "x");
  Log log;
  Fresh fresh(place / "file");
  const auto built = fresh.registry.build(conv_spec());
  REQUIRE_MESSAGE(built.ok(), text_of(built));
  CHECK((*built)->origin == Origin::compiler);
  CHECK((*fresh.registry.build(conv_spec()))->origin == Origin::memory);
  CHECK(log.warnings().size() == 1);
}

TEST_CASE("strict mode and a missing compiler take hits and refuse misses") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  REQUIRE(Fresh(place.path()).registry.build(conv_spec()).ok());
  {
    const Environment off("LATHE_JIT", "off");
    Fresh strict(place.path());
    const auto hit = strict.registry.build(conv_spec());
    REQUIRE_MESSAGE(hit.ok(), text_of(hit));
    CHECK((*hit)->origin == Origin::disk);
    const auto miss = strict.registry.build(conv_spec(3));
    REQUIRE_FALSE(miss.ok());
    CHECK(miss.status().code() == Code::not_cached);
    CHECK(miss.status().text().find("lathe-key 1\narch=sm_90a\n") != std::string::npos);
    CHECK(miss.status().text().find("(there: spec=" + conv_spec().text()) != std::string::npos);
    CHECK(strict.registry.stat().compiled == 0);

    const TemporaryDirectory empty;
    const auto cold = Fresh(empty.path()).registry.build(conv_spec());
    REQUIRE_FALSE(cold.ok());
    CHECK(cold.status().code() == Code::not_cached);
    CHECK(cold.status().text().find(empty.path()) != std::string::npos);
  }
  const Environment missing("LATHE_NVRTC", place / "libnvrtc.so");
  Fresh without(place.path());
  CHECK(without.registry.build(conv_spec()).ok());
  const auto miss = without.registry.build(conv_spec(3));
  REQUIRE_FALSE(miss.ok());
  CHECK(miss.status().text().find(place / "libnvrtc.so") != std::string::npos);
}

TEST_CASE("loading happens once per kernel and needs a device") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  const auto load = [](Fresh& fresh, int width) -> Result<LoadedKernel> {
    LATHE_ASSIGN(const auto built, fresh.registry.build(conv_spec(width)));
    return fresh.registry.load(*built);
  };
  Fresh no_device(place.path());
  CHECK(load(no_device, 4).status().code() == Code::no_device);
  const auto driver = fake_table();
  {
    Fresh fresh(place.path(), *Device::open(driver, 0, ""));
    const auto one = load(fresh, 4);
    REQUIRE(one.ok());
    CHECK(load(fresh, 4)->kernel == one->kernel);
    CHECK(fake().libraries == 1);
    fake().cubin_answer = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK(load(fresh, 3).status().code() == Code::cuda);
    fake().cubin_answer = CUDA_SUCCESS;
    CHECK(load(fresh, 3).ok());
    CHECK(fresh.registry.stat().compiled == 1);
  }
  CHECK(fake().libraries == 0);
}

TEST_CASE("of a loaded kernel the registry keeps the code that no tier has") {
  if (no_compiler()) return;
  const TemporaryDirectory place;
  const auto driver = fake_table();
  const auto device = *Device::open(driver, 0, "");
  Fresh first(place.path(), device);
  const auto compiled = first.registry.build(conv_spec());
  REQUIRE_MESSAGE(compiled.ok(), text_of(compiled));
  const auto kept = first.registry.load(**compiled);
  REQUIRE(kept.ok());
  CHECK(same(*kept->built->entry, *(*compiled)->entry));
  CHECK(kept->built->origin == Origin::compiler);

  Fresh second(place.path(), device);
  const auto found = second.registry.build(conv_spec());
  REQUIRE(found.ok());
  CHECK((*found)->entry->cubin == (*compiled)->entry->cubin);
  CHECK((*found)->entry->ptx.empty());
  const auto loaded = second.registry.load(**found);
  REQUIRE(loaded.ok());
  CHECK(loaded->built->origin == Origin::disk);
  const auto later = second.registry.build(conv_spec());
  REQUIRE(later.ok());
  CHECK((*later)->origin == Origin::memory);
  for (const auto& each : {loaded->built, *later, second.registry.load(**later)->built}) {
    CHECK(each->entry->cubin.empty());
    CHECK(each->entry->key.text == (*compiled)->entry->key.text);
    CHECK(each->entry->metadata == (*compiled)->entry->metadata);
    CHECK(each->unit() == (*compiled)->unit());
    const auto whole = second.registry.whole(*each);
    REQUIRE(whole.ok());
    CHECK(same(**whole, *(*compiled)->entry));
  }
  CHECK(second.registry.stat().compiled == 0);
}
