// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the database of tuned choices: its grammar, and which record holds.
#include "cache/tuned.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "cache/tuned_choices.h"
#include "cache/tuned_file.h"
#include "tests/cache/support.h"
#include "tests/cache/tuned_records.h"

using namespace lathe;
using namespace lathe::test;

TEST_CASE("tuned: a record and its line are one") {
  TunedRecord record = sample();
  record.others = {{"later", "7"}, {"power", "700"}};
  const std::string line = text_of(record);
  CHECK(line ==
        "causal_conv1d | x=bf16 weight=bf16 width=4 | tokens=128 warps=4 | gpu=h100 arch=sm_90a "
        "sms=132 shape=causal_conv1d(x:1x4096x2048) us=12.500 default_us=14.000 by=events tried=3 "
        "lathe=0.1.0 driver=13000 sources=abc later=7 power=700");
  const auto read = parse_tuned_record(line);
  REQUIRE(read.ok());
  CHECK(text_of(*read) == line);
  CHECK(read->us == 12.5);
  CHECK(read->measured);
  CHECK(read->others.size() == 2);
}

TEST_CASE("tuned: what is no record is refused with what is wrong") {
  const std::string good = text_of(sample());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string line = good;
    line.replace(line.find(from), from.size(), to);
    return line;
  };
  const std::pair<std::string, const char*> rows[] = {
      {"", "KERNEL"},
      {"causal_conv1d", "KERNEL"},
      {with(" | gpu", " gpu"), "KERNEL"},
      {good + " | more=1", "KERNEL"},
      {with("causal_conv1d |", "causal conv1d |"), "kernel"},
      {with("width=4", "width"), "NAME=VALUE"},
      {with("width=4", "width=4 "), "NAME=VALUE"},
      {with("tokens=128 warps=4", ""), "NAME=VALUE"},
      {with("tokens=128", "tokens=\t128"), "NAME=VALUE"},
      {with("us=12.500", "us=nan"), "us is 'nan'"},
      {with("us=12.500", "us=-1"), "us is '-1'"},
      {with("us=12.500", "us=1e99"), "us is '1e99'"},
      {with("us=12.500", "us=12.5x"), "us is '12.5x'"},
      {with("us=12.500 ", ""), "us is missing"},
      {with("by=events", "by=hand"), "by is 'hand'"},
      {with("sms=132", "sms=0"), "sms is '0'"},
      {with("sms=132", "sms=99999999999"), "sms is '99999999999'"},
      {good + " us=13", "us is there twice"},
      {good + " a=1 a=2", "a is there twice"},
      {good + " long=" + std::string(5000, 'x'), "characters"},
  };
  for (const auto& [line, part] : rows) {
    CAPTURE(line);
    const auto read = parse_tuned_record(line);
    REQUIRE_FALSE(read.ok());
    CHECK_MESSAGE(read.status().text().find(part) != std::string::npos, read.status().text());
  }
}

TEST_CASE("tuned: a text is ours or refused; a bad line costs only itself") {
  const std::string good = tuned_text({sample(), sample("other")});
  CHECK(parse_tuned(good)->records.size() == 2);
  CHECK(parse_tuned(good)->skipped == 0);
  CHECK(parse_tuned("lathe-tuned 1\n")->records.empty());
  for (const std::string& text : {std::string(), std::string("lathe-tuned 1"), good.substr(1),
                                  std::string("tuned 1\n"), std::string("lathe-tuned x\n")}) {
    CHECK(parse_tuned(text).status().code() == Code::invalid_argument);
  }
  CHECK(parse_tuned("lathe-tuned 2\n").status().code() == Code::unsupported);
  const auto mixed = parse_tuned("lathe-tuned 1\nnonsense\n\n" + text_of(sample()) + "\nmore\n");
  CHECK(mixed->records.size() == 1);
  CHECK(mixed->skipped == 2);
  CHECK(mixed->problem.starts_with("line 2: "));
  // Without its end a line may have lost a digit.
  CHECK(parse_tuned(good.substr(0, good.size() - 1))->records.size() == 1);
}

TEST_CASE("tuned: merging is the same in any order, and keeps the better of each place") {
  std::vector<TunedRecord> all;
  for (const double us : {12.0, 11.0, 13.0}) {
    for (const bool measured : {true, false}) {
      for (const char* shape : {"a(x:1)", "a(x:2)"}) {
        TunedRecord record = sample("causal_conv1d", us);
        record.measured = measured, record.shape = shape;
        all.push_back(record);
      }
    }
  }
  TunedRecord quick_model = sample("causal_conv1d", 1);
  quick_model.measured = false, quick_model.shape = "a(x:1)";
  all.push_back(quick_model);
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return text_of(a) < text_of(b); });
  const auto expected = merged(all);
  REQUIRE(expected.size() == 2);
  for (const TunedRecord& record : expected) {
    CHECK(record.us == 11.0);
    CHECK(record.measured);
  }
  unsigned seed = 1;
  for (int i = 0; i < 200; ++i) {
    for (size_t j = all.size(); j > 1; --j) {
      seed = seed * 1664525u + 1013904223u;
      std::swap(all[j - 1], all[(seed >> 16) % j]);
    }
    const auto half = all.begin() + static_cast<long>(seed >> 28) % static_cast<long>(all.size());
    std::vector<TunedRecord> parts = merged({all.begin(), half});
    const auto rest = merged({half, all.end()});
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(same_records(merged(parts), expected));
    CHECK(same_records(merged(merged(parts)), expected));
  }
}

TEST_CASE("tuned: a new measurement takes the place of one by another library, if it is as good") {
  TunedRecord old = sample("causal_conv1d", 5);
  old.sources = "before";
  const TunedRecord fresh = sample("causal_conv1d", 6);
  CHECK(with_fresh({old}, {fresh}).front().us == 6);
  CHECK(with_fresh({sample("causal_conv1d", 5)}, {fresh}).front().us == 5);
  TunedRecord model = fresh;
  model.measured = false, model.us = 1;
  CHECK(with_fresh({old}, {model}).front().us == 5);
}

TEST_CASE("tuned: only what was measured on such a device answers") {
  TunedChoices choices(kDevice);
  TunedRecord other[] = {sample(), sample(), sample()};
  other[0].gpu = "h200", other[1].arch = "sm_90", other[2].multiprocessors = 114;
  choices.add_source("user", {other[0], other[1], other[2]});
  CHECK(choices.choose(tuning_key()) == 0);
  CHECK(choices.used() == 0);
  CHECK(choices.sources().front().records.size() == 3);
  CHECK(choices.holding().empty());
  choices.replace_source("user", {sample()});
  CHECK(choices.choose(tuning_key()) == 1);
  CHECK(choices.used() == 1);
  CHECK(choices.choose(tuning_key("another")) == 0);
  TuningKey narrow = tuning_key();
  narrow.problem_class += " silu=1";
  CHECK(choices.choose(narrow) == 0);
  CHECK(choices.ignored() == 0);
  TuningKey later = tuning_key();  // the templates do not offer it any more
  later.candidates.erase(later.candidates.begin() + 1);
  CHECK(choices.choose(later) == 0);
  CHECK(choices.ignored() == 1);
}

TEST_CASE("tuned: sources in order, and of shapes the one with most at stake") {
  TunedChoices choices(kDevice);
  TunedRecord small = sample(), large = sample(), shipped = sample();
  small.shape = "a(x:1)", small.default_us = 1, small.choice = kCandidates[1];
  large.shape = "a(x:9)", large.default_us = 100, large.choice = kCandidates[2];
  shipped.choice = kCandidates[0], shipped.default_us = 1000;
  choices.add_source("user", {small, large});
  choices.add_source("bundle", {shipped, sample("only_shipped")});
  CHECK(choices.choose(tuning_key()) == 2);
  CHECK(choices.choose(tuning_key("only_shipped")) == 1);
  CHECK(choices.holding().size() == 2);
  choices.replace_source("user", {});
  CHECK(choices.choose(tuning_key()) == 0);
}

TEST_CASE("tuned: a GPU is named by its data sheet, or else as the driver does") {
  const DeviceFacts h100 = *facts_of_gpu("h100");
  CHECK(tuned_device(h100, "").gpu == "h100");
  CHECK(tuned_device(h100, "NVIDIA H100 80GB HBM3").gpu == "h100");
  DeviceFacts slice = h100;
  slice.multiprocessors = 60;
  CHECK(tuned_device(slice, "NVIDIA H100 MIG 3g.40gb").gpu == "nvidia-h100-mig-3g.40gb");
  CHECK(safe_word("../../etc/passwd").find('/') == std::string::npos);
  CHECK(safe_word("..").front() != '.');
  CHECK(safe_word("") == "gpu");
}

TEST_CASE("tuned: which kernels a record is the choice of") {
  const TunedRecord record = sample();
  const std::string spec = "causal_conv1d x=bf16 weight=bf16 width=4 tokens=128 threads=128 smem=0";
  CHECK(is_choice_of(record, spec));
  for (const auto& [from, to] : {std::pair("tokens=128", "tokens=64"),
                                 {"width=4", "width=3"},
                                 {"threads=128", "threads=256"},
                                 {"conv1d", "conv1d_bwd"}}) {
    std::string other = spec;
    other.replace(other.find(from), std::string(from).size(), to);
    CHECK_FALSE(is_choice_of(record, other));
  }
  TunedRecord walks = record;  // a word that is no constant of the kernel
  walks.problem_class += " back=1";
  CHECK(is_choice_of(walks, spec));
}
