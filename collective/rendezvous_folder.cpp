// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Two kinds of files, each written under another name, flushed and renamed, so that whoever sees
// one sees all of it:
//
//   lathe-RUN-N.rank1   rank 1 asks: kMagic, world, rank (32 bits), a number that it has just drawn
//   lathe-RUN-N.id      rank 0 answers: kMagic, world (32 bits), the id, the number of each rank
//
// RUN holds the launcher's name of the run and its restart, N counts the meetings of a process. A
// rank takes an answer only if it repeats its own number, so a file that a dead run left is never
// believed, whatever it is called. It then removes its question, by which rank 0 knows that it has
// the id; after the last rank 0 removes the answer.
#include "collective/rendezvous_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "codegen/base/text.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[8] = {'l', 'a', 't', 'h', 'e', '-', 'f', '1'};

// Ranks run on machines of one kind; a file of the other byte order has another world.
struct Question {
  char magic[8];
  uint32_t world, rank;
  uint64_t number;
};
struct AnswerHead {
  char magic[8];
  uint32_t world, unused;
  char id[NCCL_UNIQUE_ID_BYTES];
};

// A name that every file system takes.
std::string safe(const std::string& run) {
  std::string out;
  for (const char c : run) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '.' || c == '_';
    if (plain) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  return out.empty() ? "run" : out.substr(0, 100);
}

// How often this rank, which is a thread in tests, has met the others of its run before.
int next_meeting(const std::string& who) {
  static std::mutex mutex;
  static auto* const meetings = new std::map<std::string, int>;
  const std::lock_guard lock(mutex);
  return (*meetings)[who]++;
}

class Meeting {
 public:
  Meeting(const Launch& launch, int timeout_ms)
      : launch_(launch),
        timeout_ms_(timeout_ms),
        deadline_(Clock::now() + std::chrono::milliseconds(timeout_ms)) {
    const std::string run = text(launch.folder, "/lathe-", safe(launch.run), "-");
    base_ = text(run, next_meeting(text(run, launch.rank)));
  }

  Status answer(const UniqueId& id);
  Status ask(UniqueId& id);

 private:
  std::string question_of(int rank) const { return text(base_, ".rank", rank); }
  std::string answer_name() const { return base_ + ".id"; }
  Status write(const std::string& name, const std::string& bytes) const;
  std::optional<std::string> read(const std::string& name, size_t bytes) const;
  // False at the deadline.
  bool pause() {
    if (Clock::now() >= deadline_) return false;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, std::chrono::milliseconds(100));
    return true;
  }
  bool look_for_questions();
  bool all_gone() const;
  Status write_answer(const UniqueId& id) const;
  Status missing_ranks() const;

  const Launch& launch_;
  int timeout_ms_;
  Clock::time_point deadline_;
  std::chrono::milliseconds pause_{1};
  std::string base_;
  // Rank 0's: what each rank has asked with, and whether it has the answer.
  std::vector<std::optional<uint64_t>> numbers_;
  std::vector<bool> gone_;
};

Status Meeting::write(const std::string& name, const std::string& bytes) const {
  const std::string temporary = text(name, ".", getpid(), ".new");
  const auto failed = [&](const char* what) -> Status {
    const std::string why = std::strerror(errno);
    (void)unlink(temporary.c_str());
    return {Code::invalid_argument, text("LATHE_RENDEZVOUS_DIR is ", launch_.folder, ": cannot ",
                                         what, " ", temporary, ": ", why)};
  };
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return failed("create");
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  const bool flushed = written == static_cast<ssize_t>(bytes.size()) && fsync(fd) == 0;
  if (close(fd) != 0 || !flushed) return failed("write");
  if (rename(temporary.c_str(), name.c_str()) != 0) return failed("rename");
  return {};
}

std::optional<std::string> Meeting::read(const std::string& name, size_t bytes) const {
  const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string out(bytes, '\0');
  const ssize_t found = ::read(fd, out.data(), bytes);
  (void)close(fd);
  if (found != static_cast<ssize_t>(bytes) || std::memcmp(out.data(), kMagic, sizeof kMagic) != 0) {
    return std::nullopt;
  }
  return out;
}

// Whether a rank has asked, or asked anew.
bool Meeting::look_for_questions() {
  bool changed = false;
  for (int rank = 1; rank < launch_.world; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (gone_[r]) continue;
    const auto bytes = read(question_of(rank), sizeof(Question));
    if (!bytes) {
      gone_[r] = numbers_[r].has_value() && access(question_of(rank).c_str(), F_OK) != 0;
      continue;
    }
    Question question;
    std::memcpy(&question, bytes->data(), sizeof question);
    if (question.world != static_cast<uint32_t>(launch_.world)) continue;
    changed = changed || numbers_[r] != question.number;
    numbers_[r] = question.number;
  }
  return changed;
}

bool Meeting::all_gone() const {
  for (size_t rank = 1; rank < gone_.size(); ++rank) {
    if (!gone_[rank]) return false;
  }
  return true;
}

Status Meeting::write_answer(const UniqueId& id) const {
  AnswerHead head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.world = static_cast<uint32_t>(launch_.world);
  std::memcpy(head.id, id.bytes, sizeof head.id);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  for (const auto& number : numbers_) {
    const uint64_t value = number.value_or(0);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return write(answer_name(), bytes);
}

Status Meeting::missing_ranks() const {
  std::string missing;
  for (int rank = 1; rank < launch_.world; ++rank) {
    if (!gone_[static_cast<size_t>(rank)]) missing += text(missing.empty() ? "" : ", ", rank);
  }
  return {Code::timeout, text("rank 0 waited ", timeout_ms_, " ms in ", launch_.folder,
                              " (LATHE_RENDEZVOUS_DIR) for rank ", missing, " of ", launch_.world,
                              ": no ", base_, ".rank*")};
}

Status Meeting::answer(const UniqueId& id) {
  numbers_.resize(static_cast<size_t>(launch_.world));
  gone_.resize(static_cast<size_t>(launch_.world));
  Status status;
  for (;;) {
    if (look_for_questions()) {
      status = write_answer(id);
      if (!status.ok()) break;
    }
    if (all_gone()) break;
    if (!pause()) {
      status = missing_ranks();
      break;
    }
  }
  (void)unlink(answer_name().c_str());
  return status;
}

Status Meeting::ask(UniqueId& id) {
  Question question{};
  std::memcpy(question.magic, kMagic, sizeof kMagic);
  question.world = static_cast<uint32_t>(launch_.world);
  question.rank = static_cast<uint32_t>(launch_.rank);
  std::random_device random;
  // Never 0, which stands for a rank that has not asked.
  question.number = (static_cast<uint64_t>(random()) << 32 | random()) | 1;
  LATHE_TRY(write(question_of(launch_.rank),
                  std::string(reinterpret_cast<const char*>(&question), sizeof question)));
  const size_t numbers = static_cast<size_t>(launch_.world) * sizeof(uint64_t);
  const size_t mine = sizeof(AnswerHead) + static_cast<size_t>(launch_.rank) * sizeof(uint64_t);
  Status status;
  for (;;) {
    if (const auto bytes = read(answer_name(), sizeof(AnswerHead) + numbers)) {
      uint64_t repeated = 0;
      std::memcpy(&repeated, bytes->data() + mine, sizeof repeated);
      if (repeated == question.number) {
        std::memcpy(id.bytes, bytes->data() + offsetof(AnswerHead, id), sizeof id.bytes);
        break;
      }
    }
    if (!pause()) {
      status = {Code::timeout, text("rank ", launch_.rank, " of ", launch_.world, " waited ",
                                    timeout_ms_, " ms for rank 0 to write ", answer_name(), " for ",
                                    launch_.world, " ranks (LATHE_RENDEZVOUS_DIR)")};
      break;
    }
  }
  (void)unlink(question_of(launch_.rank).c_str());
  return status;
}

}  // namespace

Status share_by_folder(const Launch& launch, UniqueId& id, int timeout_ms) {
  Meeting meeting(launch, timeout_ms);
  return launch.rank == 0 ? meeting.answer(id) : meeting.ask(id);
}

}  // namespace lathe
