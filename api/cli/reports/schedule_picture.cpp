// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A schedule and its picture in text: a cell is one of the characters that fill quarters of a
// square, rows downwards and keys to the right.
#include "api/cli/reports/schedule_picture.h"

#include <algorithm>

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

// Explains in words those of the marks that the picture has.
std::string legend(const Schedule& schedule) {
  std::string out;
  for (const Area area : {Area::diagonal, Area::all, Area::left, Area::bottom, Area::none}) {
    const auto& cells = schedule.cells;
    if (std::ranges::find(cells, area, &ScheduleCell::area) == cells.end()) continue;
    const auto& [mark, words, work] = words_of(area);
    out += formatted("%s%s %s", out.empty() ? "  " : "   ", mark, words);
  }
  return out + "\n";
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
    step.at("rank").get_to(cell.rank), step.at("step").get_to(cell.step);
    step.at("owner").get_to(cell.owner);
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
  return formatted("%.*f %s", unit == 0 ? 0 : 1, bytes, units[unit]);
}

std::string picture_text(const Schedule& schedule, uint64_t hop_bytes) {
  std::string out(10, ' ');
  for (int step = 0; step < schedule.world; ++step) out += formatted("step %-4d", step);
  out += "work   sends\n";
  for (int rank = 0; rank < schedule.world; ++rank) {
    out += formatted("  rank %-3d", rank);
    int sends = 0;
    for (int step = 0; step < schedule.world; ++step) {
      const ScheduleCell& cell = schedule.at(rank, step);
      // The mark is one column wide, whatever its bytes.
      out += formatted("%s %-7d", words_of(cell.area).mark, cell.owner);
      sends += cell.send_to >= 0 ? 1 : 0;
    }
    out += formatted("%-7.1f%d", schedule.work(rank), sends);
    if (hop_bytes > 0) out += " x " + bytes_text(static_cast<double>(hop_bytes));
    out += "\n";
  }
  out += legend(schedule);
  if (schedule.world > 1) {
    out += formatted(
        "  a number: whose keys. They go on to the next rank, 0 > 1%s, as far as a rank sees them; "
        "the busiest rank has %.1f %% of the mean work\n",
        schedule.world > 2 ? " > .. > 0" : " > 0", 100 * schedule.imbalance());
  }
  return out;
}

}  // namespace lathe::cli
