// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover tiers and bundles through the C API: what each function gives, and what it
// refuses by name.
#include <doctest/doctest.h>

#include <cstring>

#include "cache/store/store.h"
#include "tests/cache/support.h"
#include "tests/harness/support.h"

using lathe::test::Environment;
using lathe::test::sample_entry;
using lathe::test::sample_key;
using lathe::test::TemporaryDirectory;

namespace {

lathe_bundle_report new_report() {
  lathe_bundle_report report = {};
  report.size = sizeof(report);
  return report;
}

// A context of a directory with two kernels.
struct Filled {
  TemporaryDirectory place;
  test::Context context;
  Filled() {
    const auto store = lathe::Store::open(place / "cache");
    for (const char* name : {"a", "b"}) REQUIRE(store->put(sample_entry(name)));
    context = test::make_context(LATHE_DEVICE_NONE, place / "cache");
    REQUIRE(context);
  }
};

bool refused(lathe_status status, lathe_status expected, const std::string& part) {
  const std::string why = lathe_last_error();
  CAPTURE(why);
  CHECK(status == expected);
  CHECK(why.find(part) != std::string::npos);
  return status == expected;
}

}  // namespace

TEST_CASE("pack, list, verify, merge and unpack report what they did") {
  const Filled filled;
  const std::string one = filled.place / "one", two = filled.place / "two";
  const std::string key = sample_key("a").digest.hex();
  const char* keys[] = {key.c_str()};
  lathe_bundle_report report = new_report();
  REQUIRE(lathe_cache_pack(filled.context.get(), one.c_str(), keys, 1, &report) == LATHE_OK);
  CHECK(report.size == sizeof(report));
  CHECK(report.entries == 1);
  CHECK(report.bytes == std::filesystem::file_size(one));
  CHECK(std::strstr(report.information, "arch=sm_90a\ncompiler=nvrtc 13.0 abc\n") != nullptr);
  REQUIRE(lathe_cache_pack(filled.context.get(), two.c_str(), nullptr, 0, nullptr) == LATHE_OK);
  const char* from[] = {one.c_str(), two.c_str()};
  REQUIRE(lathe_bundle_merge(one.c_str(), from, 2, &report) == LATHE_OK);
  CHECK(report.entries == 2);
  const char* lines = nullptr;
  REQUIRE(lathe_bundle_list(one.c_str(), &lines, nullptr) == LATHE_OK);
  CHECK(std::string(lines).find(key + "\ta\tsm_90a\t") != std::string::npos);
  REQUIRE(lathe_bundle_verify(one.c_str(), &report) == LATHE_OK);
  CHECK(report.bad == 0);

  const auto fresh = test::make_context(LATHE_DEVICE_NONE, filled.place / "fresh");
  REQUIRE(lathe_cache_unpack(fresh.get(), one.c_str(), &report) == LATHE_OK);
  CHECK(report.added == 2);
  REQUIRE(lathe_cache_unpack(fresh.get(), one.c_str(), &report) == LATHE_OK);
  CHECK(report.present == 2);
  REQUIRE(lathe_cache_list(fresh.get(), &lines) == LATHE_OK);
  CHECK(std::string(lines).find(filled.place / "fresh") != std::string::npos);
}

TEST_CASE("the tiers of a context are told in their order") {
  const Filled filled;
  const std::string bundle = filled.place / "bundle", nowhere = filled.place / "nowhere";
  REQUIRE(lathe_cache_pack(filled.context.get(), bundle.c_str(), nullptr, 0, nullptr) == LATHE_OK);
  const Environment read_only("LATHE_CACHE_READONLY", nowhere);
  const Environment bundles("LATHE_BUNDLES", bundle);
  const auto context = test::make_context(LATHE_DEVICE_NONE, "off");
  REQUIRE(lathe_cache_tier_count(context.get()) == 3);
  CHECK(lathe_cache_tier_count(nullptr) == 0);
  CHECK(lathe_cache_tier_count(filled.context.get()) == 1);
  lathe_tier_info tiers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    tiers[i].size = sizeof(tiers[i]);
    REQUIRE(lathe_cache_tier(context.get(), i, &tiers[i]) == LATHE_OK);
  }
  CHECK(tiers[0].kind == std::string("directory"));
  CHECK(tiers[0].path == std::string());
  CHECK(std::strstr(tiers[0].problem, "off") != nullptr);
  CHECK(tiers[1].kind == std::string("read-only"));
  CHECK(tiers[1].path == nowhere);
  CHECK(tiers[1].problem != std::string());
  CHECK(tiers[2].kind == std::string("bundle"));
  CHECK(tiers[2].path == bundle);
  CHECK(tiers[2].problem == std::string());
  CHECK(tiers[2].entries == 2);
  CHECK(tiers[2].bytes == std::filesystem::file_size(bundle));
  refused(lathe_cache_tier(context.get(), 3, &tiers[0]), LATHE_INVALID_ARGUMENT, "has 3 tiers");
}

TEST_CASE("wrong arguments are refused by name, and nothing is written") {
  const Filled filled;
  lathe_context* context = filled.context.get();
  const std::string out = filled.place / "out";
  const char* wrong[] = {"xyz"};
  const char* null[] = {nullptr};
  lathe_bundle_report small = new_report();
  small.size = 8;
  const auto bad = LATHE_INVALID_ARGUMENT;
  refused(lathe_cache_pack(nullptr, out.c_str(), nullptr, 0, nullptr), bad, "context is NULL");
  refused(lathe_cache_pack(context, nullptr, nullptr, 0, nullptr), bad, "path is NULL");
  refused(lathe_cache_pack(context, out.c_str(), wrong, 1, nullptr), bad, "keys[0] is 'xyz'");
  refused(lathe_cache_pack(context, out.c_str(), null, 1, nullptr), bad, "keys[0] is NULL");
  refused(lathe_cache_pack(context, out.c_str(), nullptr, 0, &small), bad, "out->size is 8");
  refused(lathe_bundle_merge(out.c_str(), null, 0, nullptr), bad, "count is 0");
  refused(lathe_bundle_merge(out.c_str(), null, 1, nullptr), bad, "is NULL");
  refused(lathe_bundle_merge(out.c_str(), nullptr, 1, nullptr), bad, "from is NULL");
  refused(lathe_bundle_verify(out.c_str(), nullptr), bad, "out is NULL");
  refused(lathe_bundle_verify(nullptr, &small), bad, "path is NULL");
  refused(lathe_bundle_list(out.c_str(), nullptr, nullptr), bad, "lines is NULL");
  refused(lathe_cache_list(context, nullptr), bad, "lines is NULL");
  refused(lathe_cache_unpack(context, out.c_str(), nullptr), bad, "No such file");
  const std::string missing(32, '0');
  const char* keys[] = {missing.c_str()};
  refused(lathe_cache_pack(context, out.c_str(), keys, 1, nullptr), LATHE_NOT_CACHED, missing);
  CHECK_FALSE(std::filesystem::exists(out));
  const auto off = test::make_context(LATHE_DEVICE_NONE, "off");
  refused(lathe_cache_pack(off.get(), out.c_str(), nullptr, 0, nullptr), LATHE_CACHE_IO, "off");
  CHECK_FALSE(std::filesystem::exists(out));
}
