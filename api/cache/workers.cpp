// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A crew grows by one thread whenever one of it gets busy and work is left, up to what there is
// memory for: what the machine has left, and what control groups (a container's limit) leave of it.
#include "api/cache/workers.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <sstream>
#include <string_view>
#include <thread>

namespace lathe {
namespace {

// Threads beyond the callers' own, of all crews of this process.
std::atomic<int> helpers_of_process{0};

// Takes one of the process's helpers if there are fewer than `most`.
bool take_helper(int most) {
  int now = helpers_of_process.load();
  while (now < most) {
    if (helpers_of_process.compare_exchange_weak(now, now + 1)) return true;
  }
  return false;
}

class Crew {
 public:
  Crew(size_t count, int most, const std::function<bool(size_t, const Busy&)>& work)
      : count_(count), most_(most), work_(work), busy_([this] { grow(); }) {}

  void run() {
    take_items();
    // A helper may still add others; none is added once the items are gone.
    for (size_t joined = 0;; ++joined) {
      pthread_t thread;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (joined == helpers_.size()) return;
        thread = helpers_[joined];
      }
      pthread_join(thread, nullptr);
      --helpers_of_process;
    }
  }

 private:
  void take_items() {
    for (;;) {
      size_t item;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (stopped_ || next_ == count_) return;
        item = next_++;
      }
      if (work_(item, busy_)) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
  }

  void grow() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_ || next_ == count_) return;
    if (most_ == 0) most_ = workers_allowed(machine_texts());
    const int helpers = static_cast<int>(helpers_.size());
    helpers_.reserve(helpers_.size() + 1);
    if (helpers + 1 >= most_ || !take_helper(most_ - 1)) return;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kWorkerStackBytes);
    pthread_t thread;
    const auto body = [](void* crew) -> void* {
      static_cast<Crew*>(crew)->take_items();
      return nullptr;
    };
    if (pthread_create(&thread, &attributes, body, this) == 0) {
      helpers_.push_back(thread);
    } else {
      --helpers_of_process;  // then those that there are do it
    }
    pthread_attr_destroy(&attributes);
  }

  const size_t count_;
  int most_;
  const std::function<bool(size_t, const Busy&)>& work_;
  const Busy busy_;
  std::mutex mutex_;
  size_t next_ = 0;
  bool stopped_ = false;
  std::vector<pthread_t> helpers_;
};

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The number a text begins with; `otherwise` for "max", for nothing and for what is too large.
int64_t number_of(std::string_view text, int64_t otherwise) {
  const size_t from = std::min(text.find_first_not_of(" \t"), text.size());
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data() + from, text.data() + text.size(), value);
  return error == std::errc() && value >= 0 ? value : otherwise;
}

// Returns the text behind `name` where that begins a line.
std::string_view after(std::string_view text, const std::string& name) {
  if (text.starts_with(name)) return text.substr(name.size());
  const size_t at = text.find('\n' + name);
  return at == text.npos ? "" : text.substr(at + 1 + name.size());
}

int64_t left_in(const MachineTexts::Group& group) {
  const int64_t limit = number_of(group.limit, kUnbounded);
  if (limit == kUnbounded) return kUnbounded;
  // Pages of files that were read count as used until somebody needs the memory.
  int64_t pages = number_of(after(group.stat, "inactive_file "), 0);
  pages = std::max(pages, number_of(after(group.stat, "total_inactive_file "), 0));
  const int64_t used = number_of(group.used, 0);
  return limit - std::max<int64_t>(used - pages, 0);
}

// Adds `path` and all above it, below `place`, each with its three files.
void add_groups(const std::string& place, std::string path, const char* limit, const char* used,
                std::vector<MachineTexts::Group>* out) {
  for (;;) {
    const std::string folder = place + path + "/";
    const std::string bound = read_text(folder + limit);
    if (!bound.empty()) {
      out->push_back({bound, read_text(folder + used), read_text(folder + "memory.stat")});
    }
    if (path.empty()) return;
    path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

void work_through(size_t count, int most, const std::function<bool(size_t, const Busy&)>& work) {
  Crew(count, most, work).run();
}

MachineTexts machine_texts(const std::string& root) {
  MachineTexts out;
  out.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  out.meminfo = read_text(root + "/proc/meminfo");
  const std::string place = root + "/sys/fs/cgroup";
  std::istringstream lines(read_text(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t path = line.find(":/");
    if (path == line.npos) continue;
    std::string name = line.substr(path + 1);
    if (name == "/") name.clear();
    if (line.starts_with("0::")) {
      add_groups(place, name, "memory.max", "memory.current", &out.groups);
    } else if (line.find(":memory:") != line.npos) {
      add_groups(place + "/memory", name, "memory.limit_in_bytes", "memory.usage_in_bytes",
                 &out.groups);
    }
  }
  return out;
}

int workers_allowed(const MachineTexts& machine) {
  int64_t bytes = kUnbounded;
  const int64_t kilobytes = number_of(after(machine.meminfo, "MemAvailable:"), kUnbounded);
  if (kilobytes < kUnbounded / 1024) bytes = kilobytes * 1024;
  for (const MachineTexts::Group& group : machine.groups) bytes = std::min(bytes, left_in(group));
  return static_cast<int>(std::clamp<int64_t>(bytes / kWorkerBytes, 1, std::max(1, machine.cores)));
}

}  // namespace lathe
