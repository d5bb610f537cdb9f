// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Pictures of the timeline: what is drawn where, read back from the SVG and from the trace.
#include "sim/driver/report/timeline_picture.h"

#include <doctest/doctest.h>

#include <map>
#include <sstream>

using namespace sim::driver;

namespace {

Span span(int rank, uint64_t stream, const char* kind, const char* name, double begin, double end) {
  return {rank, 1, stream, kind, name, begin, end, "{\"bytes\":7}"};
}

Spans all(std::vector<Span> list) {
  Spans out;
  for (Span& each : list) out.add(std::move(each));
  return out;
}

size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++out;
  return out;
}

std::string after(const std::string& line, const std::string& before) {
  const size_t at = line.find(before);
  REQUIRE(at != std::string::npos);
  const size_t from = at + before.size();
  return line.substr(from, line.find_first_of(",}\"", from) - from);
}

struct Event {
  std::string name;
  int process, thread;
  double begin, lasts;
};

std::vector<Event> events_of(const std::string& trace) {
  std::vector<Event> out;
  std::istringstream text(trace);
  for (std::string line; std::getline(text, line);) {
    if (line.find("\"ph\":\"X\"") == std::string::npos) continue;
    CHECK(line.find("\"args\":{\"bytes\":7}") != std::string::npos);
    out.push_back({after(line, "\"name\":\""), std::stoi(after(line, "\"pid\":")),
                   std::stoi(after(line, "\"tid\":")), std::stod(after(line, "\"ts\":")),
                   std::stod(after(line, "\"dur\":"))});
  }
  return out;
}

}  // namespace

TEST_CASE("each stream of each rank has a row") {
  const Spans spans =
      all({span(1, 8, "launch", "second", 0, 4), span(0, 8, "launch", "first", 0, 5),
           span(0, 9, "wait", "event", 0, 5), span(0, 9, "transfer", "Send to rank 1", 5, 10)});
  const std::vector<Event> events = events_of(timeline_trace(spans));
  REQUIRE(events.size() == 4);
  std::map<std::string, Event> by_name;
  for (const Event& each : events) by_name[each.name] = each;
  CHECK(by_name["first"].process == by_name["event"].process);
  CHECK(by_name["first"].thread != by_name["event"].thread);
  CHECK(by_name["event"].thread == by_name["Send to rank 1"].thread);
  CHECK(by_name["second"].process != by_name["first"].process);
  CHECK(by_name["second"].thread != by_name["first"].thread);
  CHECK(by_name["Send to rank 1"].begin == doctest::Approx(5));
  CHECK(by_name["Send to rank 1"].lasts == doctest::Approx(5));
  const std::string svg = timeline_svg(spans);
  for (const char* row : {"rank 0, stream 8<", "rank 0, stream 9<", "rank 1, stream 8<"}) {
    CAPTURE(row);
    CHECK(count(svg, row) == 1);
  }
  // 1020 units of width for 10 microseconds.
  CHECK(count(svg, "x=\"680.0\" y=\"88\" width=\"510.0\"") == 1);
  CHECK(count(svg, "<title>") == 4);
}

TEST_CASE("work that overlaps inside a stream has rows of its own") {
  // A dependent launch begins early, and what comes after it fits into the first row again.
  const Spans spans =
      all({span(-1, 8, "launch", "front", 0, 6), span(-1, 8, "launch", "dependent", 4, 9),
           span(-1, 8, "launch", "last", 9, 12)});
  const std::vector<Event> events = events_of(timeline_trace(spans));
  REQUIRE(events.size() == 3);
  for (const Event& a : events) {
    for (const Event& b : events) {
      if (&a == &b || a.thread != b.thread) continue;
      CHECK((a.begin + a.lasts <= b.begin || b.begin + b.lasts <= a.begin));
    }
  }
  const std::string svg = timeline_svg(spans);
  CHECK(count(svg, "no rank, stream 8<") == 1);
  CHECK(count(svg, "no rank, stream 8 (2)<") == 1);
  CHECK(count(svg, "(3)<") == 0);
}

TEST_CASE("names of kernels may hold any letter") {
  const Spans spans = all({span(0, 8, "launch", "k<\"a\" & b>", 0, 6)});
  CHECK(count(timeline_svg(spans), "k&lt;&quot;a&quot; &amp; b>") == 2);  // and in its title
  CHECK(count(timeline_trace(spans), "k<\\\"a\\\" & b>") == 1);
}

TEST_CASE("a picture is bounded, and says what it leaves out") {
  Spans spans;
  for (size_t k = 0; k < Spans::kMost + 3; ++k) {
    const auto begin = static_cast<double>(k);
    spans.add(span(0, 8, "copy", "c", begin, begin + 1));
  }
  CHECK(events_of(timeline_trace(spans)).size() == Spans::kMost);
  CHECK(count(timeline_trace(spans), "\"left_out\":3") == 1);
  CHECK(count(timeline_svg(spans), "without the last 3 lines") == 1);
  CHECK(count(timeline_svg(all({span(0, 8, "copy", "c", 0, 1)})), "without") == 0);
}
