// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/timeline.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/table.h"

namespace bench {
namespace {

using Times = std::vector<std::pair<double, double>>;

bool computes(const Span& span) { return span.kind == "launch" || span.kind == "copy"; }

// Joins times that overlap, and returns them in order.
Times united(Times times) {
  std::sort(times.begin(), times.end());
  Times out;
  for (const auto& [begin, end] : times) {
    if (!out.empty() && begin <= out.back().second) {
      out.back().second = std::max(out.back().second, end);
    } else {
      out.emplace_back(begin, end);
    }
  }
  return out;
}

double length(const Times& times) {
  double sum = 0;
  for (const auto& [begin, end] : times) sum += end - begin;
  return sum;
}

// Returns the time that two lists share, which have no overlaps of their own.
double shared(const Times& a, const Times& b) {
  double sum = 0;
  for (const auto& [begin, end] : a) {
    for (const auto& [from, to] : b)
      sum += std::max(0.0, std::min(end, to) - std::max(begin, from));
  }
  return sum;
}

char mark_of(const Span& span) {
  if (computes(span)) return '#';
  return span.kind == "transfer" ? '=' : '.';
}

}  // namespace

std::vector<Span> read_timeline(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Span> spans;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    Span span;
    span.kind = json.at("kind").get<std::string>();
    if (span.kind == "restart") {
      spans.clear();
      continue;
    }
    span.rank = json.at("rank").get<int>();
    span.stream = json.at("stream").get<uint64_t>();
    span.name = json.at("name").get<std::string>();
    span.begin = json.at("begin").get<double>();
    span.end = json.at("end").get<double>();
    span.bytes = json.value("bytes", uint64_t{0});
    span.sent = json.value("sent", uint64_t{0});
    span.received = json.value("received", uint64_t{0});
    spans.push_back(std::move(span));
  }
  return spans;
}

Usage usage_of(const std::vector<Span>& spans, int rank) {
  Usage out;
  Times compute, transfer;
  uint64_t sent = 0, received = 0;
  for (const Span& span : spans) {
    if (span.rank != rank) continue;
    if (span.kind != "wait") out.end = std::max(out.end, span.end);
    if (computes(span)) compute.emplace_back(span.begin, span.end);
    if (span.kind != "transfer") continue;
    transfer.emplace_back(span.begin, span.end);
    sent += span.sent, received += span.received;
    ++out.groups;
  }
  compute = united(std::move(compute)), transfer = united(std::move(transfer));
  out.compute = length(compute), out.transfer = length(transfer);
  out.exposed = out.transfer - shared(compute, transfer);
  out.bytes = std::max(sent, received);
  return out;
}

std::string draw_timeline(const std::vector<Span>& spans, int columns) {
  double last = 0;
  std::map<std::pair<int, uint64_t>, std::string> rows;
  for (const Span& span : spans) {
    if (span.kind == "wait") continue;
    last = std::max(last, span.end);
    rows[{span.rank, span.stream}].assign(static_cast<size_t>(columns), ' ');
  }
  if (last == 0) return "";
  // Waits first, so that work near them is not hidden.
  for (const bool waits : {true, false}) {
    for (const Span& span : spans) {
      const auto found = rows.find({span.rank, span.stream});
      if ((span.kind == "wait") != waits || found == rows.end()) continue;
      std::string& row = found->second;
      const auto place = [&](double time) {
        return std::clamp(static_cast<int>(time / last * columns), 0, columns - 1);
      };
      const int from = place(span.begin), to = std::max(from, place(span.end - 1e-9 * last));
      std::fill(row.begin() + from, row.begin() + to + 1, mark_of(span));
    }
  }
  std::string out = "0 .. " + number(last, 1) + " us; # kernels, = messages, . waits\n";
  for (const auto& [key, row] : rows) {
    const bool messages = row.find('=') != std::string::npos;
    std::string name = "rank " + std::to_string(key.first) + (messages ? " exchange" : " compute");
    name.resize(17, ' ');
    out += name + "|" + row + "|\n";
  }
  return out;
}

}  // namespace bench
