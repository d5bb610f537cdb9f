// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A schedule and its picture in text: a cell is one of the characters that fill quarters of a
// square, rows downwards and keys to the right.
#include "api/cli/reports/schedule_picture.h"

#include <algorithm>
#include <cstdio>

namespace lathe::cli {
namespace {

// The areas in the order of their enum: mark, words, blocks.
struct AreaWords {
  const char* mark;
  const char* words;
  double work;
};
constexpr AreaWords kAreas[] = {{"·", "nothing to compute", 0},
                                {"█", "all of the keys", 1},
                                {"▙", "its own keys, causal", 0.5},
                                {"▌", "the first half of the keys", 0.5},
                                {"▄", "keys for the second half of its rows", 0.5}};
const AreaWords& words_of(Area area) { return kAreas[static_cast<int>(area)]; }

Area area_of(const Json& step) {
  if (step.at("q").is_null()) return Area::none;
  if (step.at("mask") == "causal") return Area::diagonal;
  if (step.at("kv") == "lo") return Area::left;
  return step.at("q") == "hi" ? Area::bottom : Area::all;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Explains in words those of the marks that the picture has.
std::string legend(const Schedule& schedule) {
  std::string text;
  for (const Area area : {Area::diagonal, Area::all, Area::left, Area::bottom, Area::none}) {
    const bool there = std::any_of(schedule.cells.begin(), schedule.cells.end(),
                                   [&](const ScheduleCell& cell) { return cell.area == area; });
    if (!there) continue;
    text +=
        std::string(text.empty() ? "  " : "   ") + words_of(area).mark + " " + words_of(area).words;
  }
  return text + "\n";
}

}  // namespace

double ScheduleCell::work() const { return words_of(area).work; }

double Schedule::work(int rank) const {
  double sum = 0;
  for (int step = 0; step < world; ++step) sum += at(rank, step).work();
  return sum;
}

double Schedule::imbalance() const {
  double most = 0, sum = 0;
  for (int rank = 0; rank < world; ++rank) most = std::max(most, work(rank)), sum += work(rank);
  return sum == 0 ? 1 : most * world / sum;
}

Schedule read_schedule(const Json& asked, const Json& answer) {
  Schedule out;
  out.world = asked.at("world_size").get<int>();
  const Json& causal = asked.at("causal");
  out.causal = causal.is_boolean() ? causal.get<bool>() : causal.get<int>() != 0;
  out.balance = asked.at("balance").get<std::string>();
  for (const Json& step : answer.at("steps")) {
    ScheduleCell cell;
    cell.rank = step.at("rank").get<int>(), cell.step = step.at("step").get<int>();
    cell.owner = step.at("owner").get<int>();
    const Json& send_to = step.at("keys_sent_to");
    if (!send_to.is_null()) cell.send_to = send_to.get<int>();
    cell.area = area_of(step);
    out.cells.push_back(cell);
  }
  return out;
}

Schedule ring_picture(int world, bool causal, const std::string& balance) {
  const Json asked = {{"world_size", world}, {"causal", causal ? 1 : 0}, {"balance", balance}};
  const char* answers = nullptr;
  check(lathe_shard_plan("ring_schedule", Json{{"cases", {asked}}}.dump().c_str(), &answers));
  return read_schedule(asked, Json::parse(answers).at("cases").at(0));
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 3; ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

std::string picture_text(const Schedule& schedule, uint64_t hop_bytes) {
  constexpr size_t kColumn = 9;
  std::string out = padded("", 10);
  for (int step = 0; step < schedule.world; ++step) {
    out += padded("step " + std::to_string(step), kColumn);
  }
  out += "work   sends\n";
  for (int rank = 0; rank < schedule.world; ++rank) {
    out += padded("  rank " + std::to_string(rank), 10);
    int sends = 0;
    for (int step = 0; step < schedule.world; ++step) {
      const ScheduleCell& cell = schedule.at(rank, step);
      // The mark is one column wide, whatever its bytes.
      out += std::string(words_of(cell.area).mark) + " " +
             padded(std::to_string(cell.owner), kColumn - 2);
      sends += cell.send_to >= 0 ? 1 : 0;
    }
    out += padded(number(schedule.work(rank)), 7) + std::to_string(sends);
    if (hop_bytes > 0) out += " x " + bytes_text(static_cast<double>(hop_bytes));
    out += "\n";
  }
  out += legend(schedule);
  if (schedule.world > 1) {
    out += "  a number: whose keys. They go on to the next rank, 0 > 1";
    out += schedule.world > 2 ? " > .. > 0" : " > 0";
    out += ", as far as a rank sees them; the busiest rank has " +
           number(100 * schedule.imbalance()) + " % of the mean work\n";
  }
  return out;
}

}  // namespace lathe::cli
