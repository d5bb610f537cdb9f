// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes databases of tuned choices. Whatever the text, it is refused with a reason, or
// gives records that are written and read as they are, merge to the same in any order, and choose
// among what is offered.
#include "cache/tuned.h"
#include "cache/tuned_choices.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

void check_record(const TunedRecord& record) {
  const std::string line = text_of(record);
  const Result<TunedRecord> back = parse_tuned_record(line);
  FUZZ_CHECK(back.ok());
  FUZZ_CHECK(text_of(*back) == line);
  FUZZ_CHECK(line.find('\n') == line.npos && line.find('\t') == line.npos);
  TunedChoices choices({record.gpu, record.arch, record.multiprocessors});
  choices.add_source("", {record});
  const std::vector<std::string> offered = {"tokens=1 warps=1", record.choice};
  FUZZ_CHECK(choices.choose({record.kernel, record.problem_class, offered}) <= 1);
  FUZZ_CHECK(choices.choose({record.kernel, record.problem_class, {"tokens=1 warps=1"}}) == 0);
}

void check_text(std::string_view input) {
  const Result<TunedText> read = parse_tuned(input);
  if (!read.ok()) {
    FUZZ_CHECK(!read.status().text().empty());
    return;
  }
  FUZZ_CHECK((read->skipped > 0) == !read->problem.empty());
  for (const TunedRecord& record : read->records) check_record(record);
  const std::string once = tuned_text(merged(read->records));
  const Result<TunedText> again = parse_tuned(once);
  FUZZ_CHECK(again.ok() && again->skipped == 0);
  const std::vector<TunedRecord> reversed(read->records.rbegin(), read->records.rend());
  FUZZ_CHECK(tuned_text(merged(reversed)) == once);
  FUZZ_CHECK(tuned_text(merged(again->records)) == once);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  check_text(input);
  check_text(std::string(kTunedHeader) + '\n' + std::string(input));
  for (const std::string& word : {safe_word(input)}) {
    FUZZ_CHECK(!word.empty() && word.front() != '.' && word.find('/') == word.npos);
  }
  return 0;
}
