// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the JSON lines. Each is one write, so several threads and processes may share a file.
#include "sim/driver/report.h"

#include <cstdio>
#include <mutex>

namespace sim::driver {
namespace {

std::mutex mutex;
std::FILE* file = nullptr;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (code < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", code);
      out += buffer;
    } else {
      out += letter;
    }
  }
  return out + '"';
}

// Builds {"a":1,"b":"x"} member by member.
class Line {
 public:
  explicit Line(const char* kind) { add("kind", kind); }
  void add(const char* name, const std::string& text) { raw(name, quoted(text)); }
  void add(const char* name, const char* text) { raw(name, quoted(text)); }
  void add(const char* name, uint64_t value) { raw(name, std::to_string(value)); }
  void add(const char* name, const uint32_t (&value)[3]) {
    char buffer[48];
    std::snprintf(buffer, sizeof buffer, "[%u,%u,%u]", value[0], value[1], value[2]);
    raw(name, buffer);
  }
  void add_seconds(const char* name, double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.9f", value);
    raw(name, buffer);
  }
  void add_address(const char* name, uint64_t value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "\"0x%llx\"", static_cast<unsigned long long>(value));
    raw(name, buffer);
  }
  void raw(const std::string& name, const std::string& value) {
    text_ += text_.empty() ? '{' : ',';
    text_ += quoted(name);
    text_ += ':';
    text_ += value;
  }
  void write() {
    const std::string line = text_ + "}\n";
    std::lock_guard lock(mutex);
    if (file == nullptr) return;
    std::fwrite(line.data(), 1, line.size(), file);
    std::fflush(file);
  }

 private:
  std::string text_;
};

void add_traffic(Line& line, const std::string& name, const Counters::Traffic& traffic) {
  line.raw(name + "_requests", std::to_string(traffic.requests));
  line.raw(name + "_bytes", std::to_string(traffic.bytes));
  line.raw(name + "_sectors", std::to_string(traffic.sectors));
  line.raw(name + "_minimum_sectors", std::to_string(traffic.minimum_sectors));
  line.raw(name + "_conflicts", std::to_string(traffic.conflicts));
}

void report_finding(const Finding& finding) {
  Line line("finding");
  line.add("check", finding.kind);
  line.add("text", finding.text);
  line.add("kernel", finding.kernel);
  line.add("block", finding.block);
  line.add("thread", finding.thread);
  line.add_address("address", finding.address);
  line.add("bytes", uint64_t{finding.bytes});
  line.raw("ptx_line", std::to_string(finding.ptx_line));
  line.add("source", finding.source);
  line.write();
}

bool is_open() {
  std::lock_guard lock(mutex);
  return file != nullptr;
}

}  // namespace

void open_report(const std::string& where) {
  std::lock_guard lock(mutex);
  if (where.empty() || file != nullptr) return;
  file = where == "-" ? stderr : std::fopen(where.c_str(), "ae");
}

void report_launch(const Grid& grid, const Outcome& outcome) {
  if (!is_open()) return;
  for (const Finding& finding : outcome.findings) report_finding(finding);
  const Counters& counters = outcome.counters;
  Line line("launch");
  line.add("kernel", grid.kernel->name);
  line.add("grid", grid.grid);
  line.add("block", grid.block);
  line.add("cluster", grid.cluster);
  line.add("dynamic_shared_bytes", uint64_t{grid.dynamic_shared_bytes});
  line.raw("error", std::to_string(outcome.error));
  line.add_seconds("seconds", counters.seconds);
  line.add("warp_instructions", counters.warp_instructions);
  line.add("thread_instructions", counters.thread_instructions);
  line.add("tensor_ops", counters.tensor_ops);
  add_traffic(line, "global_load", counters.global_load);
  add_traffic(line, "global_store", counters.global_store);
  add_traffic(line, "global_atomic", counters.global_atomic);
  add_traffic(line, "shared_load", counters.shared_load);
  add_traffic(line, "shared_store", counters.shared_store);
  add_traffic(line, "local_load", counters.local_load);
  add_traffic(line, "local_store", counters.local_store);
  add_traffic(line, "const_load", counters.const_load);
  line.add("unique_load_sectors", counters.unique_load_sectors);
  line.add("unique_store_sectors", counters.unique_store_sectors);
  std::string classes = "{";
  for (const auto& [name, count] : counters.by_class) {
    if (classes.size() > 1) classes += ',';
    classes += quoted(name) + ":" + std::to_string(count);
  }
  classes += '}';
  line.raw("by_class", classes);
  line.write();
}

void report_leak(uint64_t address, uint64_t bytes, int device) {
  if (!is_open()) return;
  Line line("leak");
  line.add("check", "leak");
  line.add("text", std::to_string(bytes) + " bytes of device memory were never freed");
  line.raw("device", std::to_string(device));
  line.add_address("address", address);
  line.add("bytes", bytes);
  line.write();
}

void report_note(const std::string& text) {
  Line line("note");
  line.add("text", text);
  line.write();
}

}  // namespace sim::driver
