// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/line_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

namespace lathe::cli {

LineFile::LineFile(const char* name) : file_(memfd_create(name, 0)) {
  if (file_ < 0) fail(std::string("no memory file can be made: ") + std::strerror(errno));
}

LineFile::~LineFile() { close(file_); }

std::string LineFile::text() const {
  std::string out;
  char buffer[65536];
  for (ssize_t got = 0;
       (got = pread(file_, buffer, sizeof buffer, static_cast<off_t>(out.size()))) > 0;) {
    out.append(buffer, static_cast<size_t>(got));
  }
  return out;
}

Json LineFile::lines(const char* what) const {
  Json out = Json::array();
  std::istringstream lines(text());
  for (std::string line; std::getline(lines, line);) {
    Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object()) fail(std::string(what) + " a line that is not JSON");
    out.push_back(std::move(entry));
  }
  return out;
}

void LineFile::clear() { (void)!ftruncate(file_, 0); }

}  // namespace lathe::cli
