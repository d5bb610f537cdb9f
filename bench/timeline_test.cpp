// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks sums and pictures of timelines written by hand.
#include "bench/timeline.h"

#include <doctest/doctest.h>

namespace {

const char* const kText =
    R"({"rank":0,"context":1,"stream":5,"kind":"launch","name":"before","begin":0,"end":99,"bytes":1}
{"kind":"restart","name":"ring"}
{"rank":0,"context":1,"stream":5,"kind":"launch","name":"a","begin":0,"end":40,"bytes":1,"bound":"tensor"}
{"rank":0,"context":1,"stream":6,"kind":"transfer","name":"Send","begin":10,"end":30,"bytes":7,"sent":7,"received":6,"peer":1}
{"rank":0,"context":1,"stream":6,"kind":"transfer","name":"Send","begin":30,"end":60,"bytes":9,"sent":8,"received":9,"peer":1}
{"rank":0,"context":1,"stream":5,"kind":"wait","name":"event","begin":40,"end":60}
{"rank":0,"context":1,"stream":5,"kind":"copy","name":"copy","begin":60,"end":100,"bytes":1}
{"rank":1,"context":1,"stream":8,"kind":"launch","name":"a","begin":0,"end":50,"bytes":1}
{"rank":1,"context":1,"stream":9,"kind":"wait","name":"event","begin":0,"end":50,"bytes":1}
)";

const char* const kOnlyWaits =
    R"({"rank":0,"context":1,"stream":5,"kind":"wait","name":"event","begin":40,"end":60}
)";

}  // namespace

TEST_CASE("what runs, what travels, what of that is seen") {
  const auto spans = bench::read_timeline(kText);
  REQUIRE(spans.size() == 7);
  const bench::Usage usage = bench::usage_of(spans, 0);
  CHECK(usage.end == 100);
  CHECK(usage.compute == 80);
  CHECK(usage.transfer == 50);
  CHECK(usage.exposed == 20);  // 40 .. 60
  CHECK(usage.hidden() == doctest::Approx(0.6));
  CHECK(usage.groups == 2);
  CHECK(usage.bytes == 15);
  const bench::Usage alone = bench::usage_of(spans, 1);
  CHECK(alone.end == 50);
  CHECK(alone.hidden() == 1);
  CHECK(bench::usage_of(spans, 2).compute == 0);
}

TEST_CASE("a row for each rank and stream that works; one that only waits has none") {
  CHECK(bench::draw_timeline(bench::read_timeline(kText), 10) ==
        "0 .. 100.0 us; # kernels, = messages, . waits\n"
        "rank 0 compute   |####..####|\n"
        "rank 0 exchange  | =====    |\n"
        "rank 1 compute   |#####     |\n");
  CHECK(bench::draw_timeline({}, 10) == "");
  CHECK(bench::draw_timeline(bench::read_timeline(kOnlyWaits), 10) == "");
}
