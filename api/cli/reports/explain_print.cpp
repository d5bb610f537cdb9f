// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <string>

#include "api/cli/reports/explained.h"
#include "api/cli/reports/remarks.h"

namespace lathe::cli {
namespace {

// These are always shown; what else bounds a kernel joins them.
constexpr const char* kResources[] = {"issue slots", "shared memory", "tensor cores", "L2",
                                      "memory"};

// Writes 1234567 as 1,234,567.
std::string grouped(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string count_of(const Json& object, const char* name) {
  return grouped(object.at(name).get<uint64_t>());
}

std::string text_of(const Json& object, const char* name) {
  return object.at(name).get<std::string>();
}

std::string number_or_unknown(const Json& object, const char* name) {
  const int value = object.at(name).get<int>();
  return value < 0 ? "?" : std::to_string(value);
}

std::string microseconds(double value) { return formatted("%.2f", value); }

void print_kernel(const Json& kernel) {
  const std::string reason = text_of(kernel, "family_reason");
  std::printf("%s\n  made of    %s\n  family     %s%s%s\n  key        %s\n  from       %s",
              text_of(kernel, "name").c_str(), text_of(kernel, "spec").c_str(),
              text_of(kernel, "family").c_str(), reason.empty() ? "" : ", ", reason.c_str(),
              text_of(kernel, "key").c_str(), text_of(kernel, "from").c_str());
  if (kernel.at("from") == "compiler") {
    std::printf(", %.0f ms", kernel.at("compile_ms").get<double>());
  }
  std::printf(
      "\n  threads %s, registers %s, shared memory %s bytes, spills %s bytes, stack %s bytes\n",
      number_or_unknown(kernel, "threads").c_str(), number_or_unknown(kernel, "registers").c_str(),
      number_or_unknown(kernel, "smem_bytes").c_str(),
      number_or_unknown(kernel, "spill_bytes").c_str(),
      number_or_unknown(kernel, "stack_bytes").c_str());
  std::printf("%s", remarks_lines(kernel.at("remarks")).c_str());
}

double ratio(const Json& object, const char* above, const char* below) {
  const double least = object.at(below).get<double>();
  return least == 0 ? 1.0 : object.at(above).get<double>() / least;
}

void print_formulas(const Json& cost) {
  std::printf("launches   %s\n", count_of(cost, "launches").c_str());
  std::printf("bytes      %s, %.3f times the minimum of %s\n", count_of(cost, "bytes").c_str(),
              ratio(cost, "bytes", "minimum_bytes"), count_of(cost, "minimum_bytes").c_str());
  std::printf("flops      %s\n", count_of(cost, "flops").c_str());
  if (cost.at("tensor_ops").get<uint64_t>() > 0) {
    std::printf("tensor ops %s, %.3f times the flops\n", count_of(cost, "tensor_ops").c_str(),
                ratio(cost, "tensor_ops", "flops"));
  }
}

// Returns whether the report has a time by the clock; without one it has the data sheet's bound.
bool clocked(const Json& report) { return report.at("prediction").at("from") == "clock"; }

// Returns the time that a resource takes by itself, by the data sheet; formulas give it where
// nothing was counted. A report that has a time by the clock has no use for it.
std::string alone_text(const Json& report, const std::string& resource) {
  const Json &estimate = report.at("estimate"), &counted = report.at("counted");
  Json time;
  if (clocked(report)) return "-";
  if (!counted.is_null()) {
    time = counted.at("total").at("alone").value(resource, Json());
  } else if (resource == "memory" || resource == "tensor cores") {
    time = estimate.at(resource == "memory" ? "memory_microseconds" : "tensor_microseconds");
  }
  return time.is_null() ? "-" : microseconds(time.get<double>());
}

// Returns the resources of the list, and those that bound something in one of the reports.
Row resources_of(const std::vector<Json>& reports) {
  Row out(std::begin(kResources), std::end(kResources));
  for (const Json& report : reports) {
    if (report.at("counted").is_null() || clocked(report)) continue;
    for (const Json& kernel : report.at("counted").at("kernels")) {
      const std::string bound = text_of(kernel, "bound");
      const bool listed = std::ranges::find(out, bound) != out.end();
      if (!listed && kernel.at("alone").contains(bound)) out.push_back(bound);
    }
  }
  return out;
}

void print_work(const Json& total) {
  std::printf("counted on the simulator, %s of %s thread blocks\n",
              count_of(total, "sampled_blocks").c_str(), count_of(total, "blocks").c_str());
  std::printf("  issue slots    %s instructions of warps, copies of registers left out\n",
              count_of(total, "issue_slots").c_str());
  std::printf("  shared memory  %s bytes in %s passes, %s of them for conflicts\n",
              count_of(total, "shared_bytes").c_str(), count_of(total, "shared_passes").c_str(),
              count_of(total, "shared_conflicts").c_str());
  std::printf("  tensor cores   %s operations\n", count_of(total, "tensor_ops").c_str());
  std::printf("  L2             %s bytes\n", count_of(total, "l2_bytes").c_str());
  std::printf("  memory         %s bytes\n", count_of(total, "memory_bytes").c_str());
}

// Each kernel, and all of them: what each resource takes by itself, by the data sheet.
void print_bounds(const Json& report) {
  const Row resources = resources_of({report});
  std::vector<Row> rows(1, Row{"us by the data sheet"});
  rows[0].insert(rows[0].end(), resources.begin(), resources.end());
  rows[0].insert(rows[0].end(), {"at least", "bound"});
  const Json& counted = report.at("counted");
  const auto add = [&](const std::string& name, const Json& one) {
    Row row = {name};
    for (const std::string& resource : resources) {
      row.push_back(microseconds(one.at("alone").value(resource, 0.0)));
    }
    row.push_back(microseconds(one.at("microseconds").get<double>()));
    row.push_back(text_of(one, "bound"));
    rows.push_back(std::move(row));
  };
  for (const Json& kernel : counted.at("kernels")) {
    add(text_of(kernel, "name") + " x" + kernel.at("launches").dump(), kernel);
  }
  if (counted.at("kernels").size() > 1) add("all", counted.at("total"));
  print_table(rows);
}

void print_prediction(const Json& report) {
  const Json& prediction = report.at("prediction");
  const double time = prediction.at("microseconds").get<double>();
  if (time <= 0) {
    std::printf("time       unknown; bound by %s\n", text_of(prediction, "bound").c_str());
    return;
  }
  std::printf("time       %s%s us on %s, bound by %s\n           %s\n",
              clocked(report) ? "" : "at least ", microseconds(time).c_str(),
              text_of(prediction, "gpu").c_str(), text_of(prediction, "bound").c_str(),
              text_of(prediction, "sentence").c_str());
}

void print_cost(const Json& report) {
  if (report.at("estimate").is_null()) {
    std::printf("bytes and time: give every extent (no -1) to see them\n");
    return;
  }
  print_formulas(report.at("estimate"));
  if (report.at("counted").is_null()) {
    std::printf("not counted: %s\n", text_of(report, "not_counted").c_str());
    std::printf("           by the data sheet memory alone %s us, tensor cores alone %s us\n",
                alone_text(report, "memory").c_str(), alone_text(report, "tensor cores").c_str());
  } else {
    std::printf("\n");
    print_work(report.at("counted").at("total"));
    std::printf("\n");
    if (clocked(report)) {
      print_clock_times(report.at("clock").front());
    } else {
      print_bounds(report);
    }
    std::printf("\n");
  }
  print_prediction(report);
}

std::string list_of(const Json& object, const char* name) {
  return comma_list(object.at(name).get<Row>());
}

void print_head(const Json& report) {
  std::printf("  in         %s\n  out        %s\n\n", list_of(report, "inputs").c_str(),
              list_of(report, "outputs").c_str());
}

}  // namespace

void print_table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::printf("%-*s", static_cast<int>(widths[0]), row[0].c_str());
    for (size_t i = 1; i < row.size(); ++i) {
      std::printf("  %*s", static_cast<int>(widths[i]), row[i].c_str());
    }
    std::printf("\n");
  }
}

void print_explained(const Json& report) {
  std::printf("%s for %s, device %s\n", text_of(report, "op").c_str(),
              text_of(report, "arch").c_str(), text_of(report, "device").c_str());
  print_head(report);
  for (const Json& kernel : report.at("kernels")) print_kernel(kernel);
  std::printf(
      "\nnot in any key: %s, strides, pointers; they are parameters of the launch, so a new length "
      "compiles nothing\n\n",
      list_of(report, "varies").c_str());
  print_cost(report);
}

void print_side_by_side(const std::vector<Json>& reports) {
  std::printf("%s\n", text_of(reports.front(), "op").c_str());
  print_head(reports.front());
  std::vector<Row> rows;
  const auto add = [&](const std::string& title, const auto& cell) {
    Row row = {title};
    for (const Json& report : reports) row.push_back(cell(report));
    rows.push_back(std::move(row));
  };
  add("", [](const Json& report) { return text_of(report.at("prediction"), "gpu"); });
  add("compiled for", [](const Json& report) { return text_of(report, "arch"); });
  add("kernels launched",
      [](const Json& report) { return count_of(report.at("estimate"), "launches"); });
  // A data sheet's bound is shown for those alone of which the clock tells no time.
  const bool all_clocked = std::ranges::all_of(reports, clocked);
  for (const std::string& resource : all_clocked ? Row{} : resources_of(reports)) {
    add(resource + " alone, us by the data sheet",
        [&](const Json& report) { return alone_text(report, resource); });
  }
  const auto time = [](const Json& report) {
    return microseconds(report.at("prediction").at("microseconds").get<double>());
  };
  add("time, us by the clock",
      [&](const Json& report) { return clocked(report) ? time(report) : "-"; });
  if (!all_clocked) {
    add("time, us at least by the data sheet",
        [&](const Json& report) { return clocked(report) ? "-" : time(report); });
  }
  add("bound", [](const Json& report) { return text_of(report.at("prediction"), "bound"); });
  print_table(rows);
  auto notes = Json::object();  // a sentence, and the GPUs that it is about
  for (const Json& report : reports) {
    const Json& prediction = report.at("prediction");
    std::string sentence = text_of(prediction, "sentence");
    if (report.at("counted").is_null()) sentence += " (" + text_of(report, "not_counted") + ")";
    notes[sentence].push_back(prediction.at("gpu"));
  }
  std::printf("\n");
  for (const auto& [sentence, gpus] : notes.items()) {
    std::printf("%s: %s\n", comma_list(gpus.get<Row>()).c_str(), sentence.c_str());
  }
}

}  // namespace lathe::cli
