// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A range of device addresses, mostly never touched: for views whose rows lie far apart. On the
// simulator it is mapped but not backed, on a GPU it is allocated.
#pragma once

#include <memory>

#include "tests/api/session.h"

namespace apitest {

class FarMemory {
 public:
  FarMemory(lathe_context* context, size_t bytes);
  ~FarMemory();
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  size_t bytes_;
  void *data_ = nullptr, *library_ = nullptr;
  std::unique_ptr<Memory> memory_;
};

}  // namespace apitest
