// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/driver/report/timeline_picture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/clock/markup.h"
#include "sim/driver/report/json_line.h"

namespace sim::driver {
namespace {

using clock::escaped;
using clock::formatted;

constexpr int kWidth = 1200, kLeft = 170, kRow = 22, kTop = 64, kLetter = 7;
constexpr double kNothing = 1e-6;  // microseconds by which two pieces of work may overlap

struct Kind {
  const char* name;
  const char* color;
};
constexpr Kind kKinds[] = {{"launch", "#1b6ca8"}, {"copy", "#66a182"}, {"transfer", "#d1495b"}};
constexpr const char* kWaitColor = "#c9b458";

bool waits(const Span& span) { return span.kind == "wait"; }

const char* color_of(const std::string& kind) {
  for (const Kind& each : kKinds) {
    if (kind == each.name) return each.color;
  }
  return kWaitColor;
}

struct Row {
  int rank = -1;
  std::string name;
  std::vector<const Span*> spans;
};

// Spreads the work of one stream over as many rows as it takes for no two pieces to overlap.
std::vector<Row> rows_of_stream(std::vector<const Span*> spans) {
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span* a, const Span* b) { return a->begin < b->begin; });
  std::vector<Row> rows;
  std::vector<double> ends;
  for (const Span* span : spans) {
    size_t row = 0;
    while (row < rows.size() && ends[row] > span->begin + kNothing) ++row;
    if (row == rows.size()) {
      rows.push_back({span->rank, "stream " + std::to_string(span->stream), {}});
      if (row > 0) rows[row].name += " (" + std::to_string(row + 1) + ")";
      ends.push_back(0);
    }
    rows[row].spans.push_back(span);
    ends[row] = span->end;
  }
  return rows;
}

// Rows in the order of ranks, then streams.
std::vector<Row> rows_of(const Spans& spans) {
  std::map<std::tuple<int, uint64_t, uint64_t>, std::vector<const Span*>> streams;
  for (const Span& span : spans.kept) {
    streams[{span.rank, span.context, span.stream}].push_back(&span);
  }
  std::vector<Row> out;
  for (auto& [key, list] : streams) {
    for (Row& row : rows_of_stream(std::move(list))) out.push_back(std::move(row));
  }
  return out;
}

std::string name_of_rank(int rank) { return rank < 0 ? "no rank" : "rank " + std::to_string(rank); }

// Returns a round number of microseconds such that the axis has five to twelve marks.
double step_of(double microseconds) {
  const double least = microseconds / 12;
  const double ten = std::pow(10, std::floor(std::log10(std::max(least, 1e-9))));
  for (const double times : {1, 2, 5}) {
    if (times * ten >= least) return times * ten;
  }
  return 10 * ten;
}

std::string axis(double end, double scale, int bottom) {
  std::string out;
  const double step = step_of(end);
  for (int mark = 0; mark * step <= end; ++mark) {
    const double x = kLeft + mark * step * scale;
    out += formatted("<path d=\"M%.1f %dV%d\" stroke=\"#eeeeee\"/>", x, kTop - 4, bottom);
    out += formatted("<text x=\"%.1f\" y=\"%d\" fill=\"#666666\">%g</text>\n", x, kTop - 8,
                     mark * step);
  }
  return out;
}

std::string legend() {
  std::string out;
  int x = kLeft;
  const auto add = [&](const std::string& name, const char* color) {
    out += formatted("<rect x=\"%d\" y=\"26\" width=\"10\" height=\"10\" fill=\"%s\"/>", x, color);
    out += formatted("<text x=\"%d\" y=\"35\">%s</text>\n", x + 14, name.c_str());
    x += 30 + kLetter * static_cast<int>(name.size());
  };
  for (const Kind& each : kKinds) add(each.name, each.color);
  add("wait", kWaitColor);
  return out;
}

// A wait is a thin strip, so that what it holds up stands out.
std::string drawn(const Span& span, int top, double scale) {
  const double x = kLeft + span.begin * scale, width = (span.end - span.begin) * scale;
  std::string out = formatted("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\">",
                              x, top + (waits(span) ? 8 : 2), std::max(0.3, width),
                              waits(span) ? 5 : 17, color_of(span.kind));
  out += "<title>" + escaped(span.kind + " " + span.name) +
         formatted(", %.2f to %.2f us", span.begin, span.end) + "</title></rect>\n";
  const auto letters = static_cast<size_t>(std::max(0.0, width - 4) / kLetter);
  if (waits(span) || letters < 3) return out;
  return out + formatted("<text x=\"%.1f\" y=\"%d\" fill=\"white\">", x + 2, top + 14) +
         escaped(span.name.substr(0, letters)) + "</text>\n";
}

std::string left_out(const Spans& spans) {
  if (spans.left_out == 0) return "";
  return ", without the last " + std::to_string(spans.left_out) + " lines of the timeline";
}

}  // namespace

void Spans::add(Span span) {
  if (kept.size() < kMost) {
    kept.push_back(std::move(span));
  } else {
    ++left_out;
  }
}

std::string timeline_svg(const Spans& spans) {
  const std::vector<Row> rows = rows_of(spans);
  double end = 0;
  for (const Span& span : spans.kept) end = std::max(end, span.end);
  const double scale = (kWidth - kLeft - 10) / std::max(end, 1e-9);
  const int bottom = kTop + static_cast<int>(rows.size()) * kRow;
  std::string out = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      kWidth, bottom + 10);
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += formatted("<text x=\"4\" y=\"16\">streams in model time, %.2f microseconds%s</text>\n",
                   end, left_out(spans).c_str());
  out += legend() + axis(end, scale, bottom);
  int top = kTop;
  for (const Row& row : rows) {
    out += formatted("<text x=\"4\" y=\"%d\">%s, %s</text>\n", top + 14,
                     name_of_rank(row.rank).c_str(), row.name.c_str());
    for (const Span* span : row.spans) out += drawn(*span, top, scale);
    top += kRow;
  }
  return out + "</svg>\n";
}

std::string timeline_trace(const Spans& spans) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* before = "\n";
  const auto add = [&](const JsonLine& event) {
    out += before + event.text();
    before = ",\n";
  };
  const auto name = [&](const char* what, int rank, int row, const std::string& text) {
    JsonLine event, arguments;
    arguments.add("name", text);
    event.add("ph", "M", "name", what, "pid", rank + 1, "tid", row, "args", arguments);
    add(event);
  };
  int number = 0, rank = -2;
  for (const Row& row : rows_of(spans)) {
    ++number;
    if (row.rank != rank) name("process_name", row.rank, number, name_of_rank(row.rank));
    rank = row.rank;
    name("thread_name", rank, number, row.name);
    for (const Span* span : row.spans) {
      JsonLine event;
      event.add("ph", "X", "cat", span->kind, "name", span->name, "pid", rank + 1, "tid", number,
                "ts", span->begin, "dur", span->end - span->begin);
      event.raw("args", span->line);
      add(event);
    }
  }
  out += "\n]";
  if (spans.left_out > 0)
    out += ",\"otherData\":{\"left_out\":" + std::to_string(spans.left_out) + "}";
  return out + "}\n";
}

}  // namespace sim::driver
