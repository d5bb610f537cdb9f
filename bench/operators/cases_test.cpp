// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/cases.h"

#include <doctest/doctest.h>

#include <sstream>
#include <stdexcept>

#include "bench/folder.h"

namespace {

using bench::Cases;
using bench::Settings;
using bench::Table;

std::string text_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// A process of a bench over the cases a, b and c: which it measured, and where it was stopped.
struct Attempt {
  std::string measured, stopped;
};
Attempt attempt(const Settings& settings, const std::string& fails = "") {
  Attempt out;
  Table table({"case", "us"});
  try {
    Cases cases(settings, &table);
    for (const char* name : {"a", "b", "c"}) {
      cases.run(name, [&]() -> std::vector<std::string> {
        out.measured += name;
        if (fails == name) throw std::runtime_error("wrong");
        return {name, "1"};
      });
    }
  } catch (const std::exception& error) {
    out.stopped = error.what();
  }
  return out;
}

}  // namespace

TEST_CASE("cases: without a file every case is measured each time") {
  const Settings settings;
  CHECK(attempt(settings).measured == "abc");
  CHECK(attempt(settings).measured == "abc");
  Settings only;
  only.only = "b";
  CHECK(attempt(only).measured == "b");
}

TEST_CASE("cases: what a file has is not measured again") {
  const bench::Folder folder;
  Settings settings;
  settings.append = folder.path() + "/rows.csv";
  const Attempt first = attempt(settings, "b");
  CHECK(first.measured == "ab");
  CHECK(first.stopped == "b: wrong");
  CHECK(text_of(settings.append) == "case,us\na,1\n");
  // The failed case is known as such, and the next process goes on behind it.
  CHECK(attempt(settings).measured == "c");
  CHECK(text_of(settings.append) == "case,us\na,1\nc,1\n");
  CHECK(attempt(settings).measured == "");
}

TEST_CASE("cases: two processes may end in the middle of a case, a third leaves it out") {
  const bench::Folder folder;
  Settings settings;
  settings.append = folder.path() + "/rows.csv";
  const auto killed_in = [&](const std::string& name) {
    std::ofstream(settings.append + ".cases", std::ios::app) << "begin " << name << "\n";
  };
  killed_in("a");
  CHECK(attempt(settings).measured == "abc");
  std::ofstream(settings.append + ".cases") << "begin a\nbegin a\n";
  CHECK(attempt(settings).measured == "bc");
}

TEST_CASE("cases: a row that was cut short keeps its own line") {
  const bench::Folder folder;
  Settings settings;
  settings.append = folder.path() + "/rows.csv";
  std::ofstream(settings.append) << "case,us\na,";
  std::ofstream(settings.append + ".cases") << "begin a\ndone b\nbeg";
  CHECK(attempt(settings).measured == "ac");
  CHECK(text_of(settings.append) == "case,us\na,\na,1\nc,1\n");
}

TEST_CASE("cases: a file that cannot be written is an error") {
  Settings settings;
  settings.append = "/proc/none/rows.csv";
  CHECK(attempt(settings).stopped == "cannot write /proc/none/rows.csv");
}
