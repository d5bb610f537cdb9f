// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs the cases of a bench, one after the other. With --append FILE each row is written as soon as
// it is there, and FILE.cases keeps what became of every case: the next process goes on behind the
// last.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/verbs.h"

namespace bench {

class Cases {
 public:
  // Throws if settings.append names a file that cannot be written. Both must outlive this object.
  Cases(const Settings& settings, Table* table);

  // Calls `measure` and adds the row that it returns. Throws if `measure` does: a fault of a kernel
  // ends all use of the device by this process, so the cases behind it are for the next process.
  //
  // A case is left out if its name lacks settings.only, if it is done or has failed already, or if
  // two processes ended in the middle of it: one that hangs must not keep others from their turn.
  void run(const std::string& name, const std::function<std::vector<std::string>()>& measure);

 private:
  struct Past {
    int begun = 0;
    bool ended = false;
  };
  void read();
  void note(const char* word, const std::string& name);

  const Settings& settings_;
  Table* table_;
  std::map<std::string, Past> past_;
  std::ofstream rows_, notes_;
};

}  // namespace bench
