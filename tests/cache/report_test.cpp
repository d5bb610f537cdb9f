// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check that what the compiler said survives in an entry, and that an older entry
// reads.
#include "cache/report.h"

#include <doctest/doctest.h>

#include "cache/store/entry.h"
#include "codegen/nvrtc.h"
#include "tests/codegen/slow_wgmma.h"

using namespace lathe;

namespace {

// As a file of the cache keeps it.
CompileReport kept(const CompileReport& report) {
  Entry entry;
  entry.key = {digest("key"), "key"};
  add_report(report, &entry.metadata);
  const auto back = decode_entry(encode_entry(entry));
  REQUIRE_MESSAGE(back.ok(), back.status().text());
  return report_of(back->metadata);
}

}  // namespace

TEST_CASE("a report survives in an entry, known or not") {
  CompileReport report;
  report.registers = 168, report.barriers = 0, report.smem_static = 16;
  report.stack_bytes = 8, report.spill_stores = 4, report.spill_loads = 12;
  report.ptx_banner = "release 13.0";
  report.milliseconds = 42;
  report.remarks =
      std::vector{Remark{"C7511", "Potential Performance Loss: a=b\\x09c", 3}, Remark{"", "x"}};
  const CompileReport back = kept(report);
  CHECK(back.registers == 168);
  CHECK(back.barriers == 0);
  CHECK(back.smem_static == 16);
  CHECK(back.stack_bytes == 8);
  CHECK(back.spill_stores == 4);
  CHECK(back.spill_loads == 12);
  CHECK(back.ptx_banner == "release 13.0");
  CHECK(back.milliseconds == 42);
  CHECK(back.remarks == report.remarks);
  CHECK(losses(back) == losses(report));
  report.remarks = std::vector<Remark>();
  CHECK(kept(report).remarks == report.remarks);

  const CompileReport none = kept({});
  CHECK(none.registers == -1);
  CHECK(none.spill_loads == -1);
  CHECK(none.remarks == std::nullopt);
}

TEST_CASE("an entry of a lathe that kept no remarks says that they are not known") {
  const auto old =
      Metadata::parse("registers=168\nspill_loads=12\nspill_stores=4\nstack_bytes=?\n");
  REQUIRE(old.ok());
  const CompileReport report = report_of(*old);
  CHECK(report.registers == 168);
  CHECK(report.stack_bytes == -1);
  CHECK(report.remarks == std::nullopt);
  CHECK(losses(report) == std::vector<std::string>{"16 bytes of spills"});
}

TEST_CASE("a kernel whose wgmma is serialised is known as such from the cache") {
  const auto nvrtc = Compiler::open();
  if (!nvrtc.ok()) {
    MESSAGE("skipped, no compiler: ", nvrtc.status().text());
    return;
  }
  const auto compiled = (*nvrtc)->compile(test::wgmma_unit({.touched = true}), "sm_90a");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  const CompileReport back = kept(compiled->report);
  CHECK(back.remarks == compiled->report.remarks);
  REQUIRE_FALSE(losses(back).empty());
  CHECK(losses(back).front().find("serialized") != std::string::npos);
}
