// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kernels out of read-only tiers, with and without permission to compile. They
// are skipped, with the reason, where there is no compiler to fill them.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "cache/bundle/bundle.h"
#include "cache/registry.h"
#include "ops/conv/kernels.h"
#include "tests/cache/registry_kernels.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

// A directory with kernels of width 4 and 3, and a bundle of the same.
struct Filled {
  TemporaryDirectory place;
  Filled() {
    const auto store = Store::open(place / "theirs");
    Registry registry(store, nullptr, kArch);
    for (const int width : {4, 3}) REQUIRE(registry.build(conv_spec(width)).ok());
    REQUIRE(pack_bundle(place / "bundle", {store.get()}, nullptr, {}).ok());
  }
};

std::string where(Registry& registry, int width) {
  const auto built = registry.build(conv_spec(width));
  return built.ok() ? word((*built)->origin) : built.status().text();
}

}  // namespace

TEST_CASE("a kernel of a read-only tier is not compiled, not copied, and then is in memory") {
  if (no_compiler()) return;
  const Filled filled;
  const TemporaryDirectory& place = filled.place;
  for (const char* jit : {"on", "off"}) {
    const Environment allowed("LATHE_JIT", jit);
    for (const bool bundle : {false, true}) {
      const auto store = Store::open(place / "mine");
      const auto tier =
          bundle ? open_bundle_tier(place / "bundle") : open_read_only_directory(place / "theirs");
      Registry registry(std::make_shared<Tiers>(store, Tiers::List{tier}), nullptr, kArch);
      CHECK(where(registry, 4) == (bundle ? "bundle" : "disk"));
      CHECK(where(registry, 4) == "memory");
      CHECK(registry.stat().compiled == 0);
      CHECK(registry.stat().hits == 2);
      CHECK(store->stat().entries == 0);
    }
  }
}

TEST_CASE("strict mode names every tier that was looked at, and the nearest entry") {
  if (no_compiler()) return;
  const Filled filled;
  const TemporaryDirectory& place = filled.place;
  const Environment off("LATHE_JIT", "off");
  Log log;
  const Tiers::List list = {open_read_only_directory(place / "nowhere"),
                            open_bundle_tier(place / "bundle")};
  Registry registry(std::make_shared<Tiers>(Store::open(place / "mine"), list), nullptr, kArch);
  const auto missing = registry.build(conv_spec(2));
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().code() == Code::not_cached);
  const std::string& why = missing.status().text();
  for (const std::string& part : {place / "mine", "read-only " + place / "nowhere" + " (refused: ",
                                  "bundle " + place / "bundle", std::string("width=2"),
                                  std::string("the nearest entry differs first in ")})
    CHECK_MESSAGE(why.find(part) != std::string::npos, part << " in " << why);
}

TEST_CASE("a damaged entry of a bundle is compiled, once, into the user's directory") {
  if (no_compiler()) return;
  const Filled filled;
  const TemporaryDirectory& place = filled.place;
  std::string bytes = read_file(place / "bundle");
  const std::string key = Store::open(place / "theirs")->keys()[0].hex();
  bytes[bytes.size() - 1] ^= 1;  // in the last entry
  const auto bundle = Bundle::open(place / "bundle");
  bytes[(*bundle)->items()[0].offset + 200] ^= 1;  // in the first
  write_file(place / "bundle", bytes);
  Log log;
  for (const char* expected : {"compiler", "disk"}) {
    const Tiers::List list = {open_bundle_tier(place / "bundle")};
    Registry registry(std::make_shared<Tiers>(Store::open(place / "mine"), list), nullptr, kArch);
    CHECK(where(registry, 4) == expected);
    CHECK(where(registry, 3) == expected);
  }
  CHECK(log.mentions(key));
  CHECK(read_file(place / "bundle") == bytes);
}

TEST_CASE("with no place to write, a miss is one compile and no failure") {
  if (no_compiler()) return;
  const Filled filled;
  const TemporaryDirectory& place = filled.place;
  Log log;
  for (const std::string& root : {std::string("off"), place / "bundle"}) {
    const Tiers::List list = {open_bundle_tier(place / "bundle")};
    Registry registry(std::make_shared<Tiers>(Store::open(root), list), nullptr, kArch);
    CHECK(where(registry, 4) == "bundle");
    CHECK(where(registry, 2) == "compiler");
    CHECK(where(registry, 2) == "memory");
    CHECK(registry.stat().compiled == 1);
  }
  CHECK(log.warnings().size() == 1);  // of the directory that is a file; off is no problem
}
