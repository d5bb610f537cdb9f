// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks meet through two kinds of files:
//
//   lathe-RUN.rank1   rank 1's question: its nonce, drawn for this call; later also: it has the id
//   lathe-RUN.id      rank 0's answer: the id, the meeting (a nonce of this call of rank 0) and the
//                     nonces of all ranks' questions
//
// RUN is the launcher's name of the run and its restart. One meeting goes like this:
//
//   1. Each rank writes its question and waits for an answer that repeats its nonce.
//   2. Rank 0 waits until there is a question of every rank, then writes its answer. If a question
//      changes it writes the answer again.
//   3. A rank that has the id writes the meeting that the id is of into its question. Rank 0 is
//   done
//      when every question names this meeting, and removes all files.
//
// Nobody counts calls, so ranks that have failed before, each at another time and another number of
// times, meet as soon as their calls overlap. These are the cases that the nonces decide:
//
//   - A rank believes no answer of an earlier run or meeting, because such an answer does not
//   repeat
//     its nonce.
//   - Rank 0 answers the question that a dead rank left, and nobody reads that answer. The rank
//   does
//     not count before it confirms this meeting; when it comes, its new nonce makes rank 0 answer
//     again.
//   - A rank that gave up removes its question, so that rank 0 waits for its next one.
//   - Rank 0 started again removes the old answer and draws another meeting, so that what ranks had
//     confirmed to the old one does not count. A rank that took the old id fails in NCCL, as nobody
//     is behind that id, and asks again.
//   - No rank has the id before every rank has asked: where one is missing, all others fail here,
//     where they can try again, and not in NCCL, where half of them would be waiting.
//
// Two live processes that take themselves for the same rank are not told apart here.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "codegen/base/invalid.h"
#include "collective/rendezvous/meeting_folder.h"
#include "collective/rendezvous/rendezvous.h"
#include "collective/rendezvous/rendezvous_messages.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Returns a name that every file system accepts. The digest distinguishes runs whose names differ
// only in characters that were replaced.
std::string base_name(const std::string& run) {
  std::string plain;
  for (const char c : run) {
    const bool taken = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '.' || c == '_';
    if (taken) {
      plain += c;
    } else if (!plain.empty() && plain.back() != '-') {
      plain += '-';
    }
  }
  if (plain.empty()) plain = "run";
  return text("lathe-", plain.substr(0, 100), "-", hex_of(sha256(run)).substr(0, 8));
}

// Rank 0 and the other ranks share this.
class Meeting {
 protected:
  Meeting(const Launch& launch, MeetingFolder& folder, int timeout_ms)
      : launch_(launch), folder_(folder), timeout_ms_(timeout_ms) {}

  std::string question_file(int rank) const { return question_name(launch_.run, rank); }
  std::optional<MeetingQuestion> read_question(int rank);
  std::optional<Answer> read_answer();
  Status timeout(std::string said) const;
  // Returns false at the deadline.
  bool pause();

  const Launch& launch_;
  MeetingFolder& folder_;
  const int timeout_ms_;
  const Clock::time_point deadline_ = Clock::now() + milliseconds(timeout_ms_);
  const Sha256Digest run_ = sha256(launch_.run);
  const std::string answer_ = answer_name(launch_.run);

 private:
  milliseconds pause_{1};
};

bool Meeting::pause() {
  const auto now = Clock::now();
  if (now >= deadline_) return false;
  std::this_thread::sleep_until(std::min(deadline_, now + pause_));
  pause_ = std::min(pause_ * 2, milliseconds(100));
  return true;
}

// Returns the rank's question if it is of this run and of the same world.
std::optional<MeetingQuestion> Meeting::read_question(int rank) {
  const auto bytes = folder_.read(question_file(rank), kQuestionBytes);
  const auto out = bytes ? decode_question(*bytes) : std::nullopt;
  const bool ours = out && out->run == run_ && out->rank == static_cast<uint32_t>(rank) &&
                    out->world == static_cast<uint32_t>(launch_.world);
  return ours ? out : std::nullopt;
}

std::optional<Answer> Meeting::read_answer() {
  const auto bytes = folder_.read(answer_, answer_bytes(static_cast<uint32_t>(launch_.world)));
  const auto out = bytes ? decode_answer(*bytes) : std::nullopt;
  return out && out->run == run_ ? out : std::nullopt;
}

Status Meeting::timeout(std::string said) const {
  if (!folder_.refused().empty()) said += "; refused was " + folder_.refused();
  return {Code::timeout, said};
}

// Answering is rank 0's side.
class Answering : private Meeting {
 public:
  Answering(const Launch& launch, MeetingFolder& folder, const UniqueId& id, const Nonce& meeting,
            int timeout_ms)
      : Meeting(launch, folder, timeout_ms),
        own_{.run = run_, .meeting = meeting, .id = id},
        seats_(static_cast<size_t>(launch.world)) {}
  Status meet();

 private:
  struct Seat {
    std::optional<Nonce> asked;
    bool has_id = false;
    bool came = false;  // it has asked once, and may have given up since
    bool resolved() const { return asked.has_value() || has_id; }
  };
  Status exchange();
  bool look_for_questions();
  Status write_answer();
  template <typename Holds>
  bool all(Holds holds) const {
    return std::all_of(seats_.begin() + 1, seats_.end(), holds);
  }
  Status missing_ranks() const;
  void clean_up();

  Answer own_;
  std::vector<Seat> seats_;  // by rank
};

Status Answering::meet() {
  if (!folder_.remove(answer_)) {
    const std::string why = reason(errno);
    return invalid(text("LATHE_RENDEZVOUS_DIR is ", folder_.path(), ": cannot remove the old ",
                        answer_, ": ", why));
  }
  const Status status = exchange();
  clean_up();
  return status;
}

Status Answering::exchange() {
  bool written = false;
  for (;;) {
    if (look_for_questions()) written = false;
    if (all([](const Seat& seat) { return seat.has_id; })) return {};
    // It is also written again if somebody has removed it.
    if (all([](const Seat& seat) { return seat.resolved(); }) && !(written && read_answer())) {
      LATHE_TRY(write_answer());
      written = true;
    }
    if (!pause()) return missing_ranks();
  }
}

// Returns whether a rank has asked, or asked anew.
bool Answering::look_for_questions() {
  bool changed = false;
  for (int rank = 1; rank < launch_.world; ++rank) {
    Seat& seat = seats_[static_cast<size_t>(rank)];
    const auto question = read_question(rank);
    if (question && question->has_id) {
      seat.has_id =
          seat.has_id || (question->meeting == own_.meeting && seat.asked == question->nonce);
    } else if (question) {
      changed = changed || seat.asked != question->nonce;
      if (seat.asked != question->nonce) seat = {question->nonce, false, true};
    } else if (!seat.has_id) {
      seat.asked.reset();
    }
  }
  return changed;
}

Status Answering::write_answer() {
  own_.nonces.clear();
  for (const Seat& seat : seats_) own_.nonces.push_back(seat.asked.value_or(Nonce{}));
  return folder_.write(answer_, encode(own_));
}

// Names the ranks that never came; if all came, those that gave up; else those that did not read.
Status Answering::missing_ranks() const {
  const bool all_came = all([](const Seat& seat) { return seat.came; });
  const bool all_asked = all([](const Seat& seat) { return seat.resolved(); });
  std::string missing;
  for (int rank = 1; rank < launch_.world; ++rank) {
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    if (all_asked ? seat.has_id : all_came ? seat.resolved() : seat.came) continue;
    missing += text(missing.empty() ? "" : ", ", rank);
  }
  const std::string what = all_asked  ? " to read " + answer_
                           : all_came ? ", which had asked and gave up"
                                      : ": no " + base_name(launch_.run) + ".rank*";
  return timeout(text("rank 0 waited ", timeout_ms_, " ms in ", folder_.path(),
                      " (LATHE_RENDEZVOUS_DIR) for rank ", missing, " of ", launch_.world, what));
}

// Removes the answer and what ranks have confirmed to it, but no question that waits for another.
void Answering::clean_up() {
  for (int rank = 1; rank < launch_.world; ++rank) {
    const auto question = read_question(rank);
    if (question && question->has_id && question->meeting == own_.meeting) {
      (void)folder_.remove(question_file(rank));
    }
  }
  const auto answer = read_answer();
  if (answer && answer->meeting == own_.meeting) (void)folder_.remove(answer_);
}

// Asking is the side of every other rank.
class Asking : private Meeting {
 public:
  Asking(const Launch& launch, MeetingFolder& folder, const Nonce& nonce, int timeout_ms)
      : Meeting(launch, folder, timeout_ms),
        own_{.world = static_cast<uint32_t>(launch.world),
             .rank = static_cast<uint32_t>(launch.rank),
             .run = run_,
             .nonce = nonce} {}
  Status meet(UniqueId& id);

 private:
  Status write_question() const { return folder_.write(question_file(launch_.rank), encode(own_)); }

  MeetingQuestion own_;
};

Status Asking::meet(UniqueId& id) {
  LATHE_TRY(write_question());
  do {
    // It is written again if somebody has removed it.
    if (!read_question(launch_.rank)) LATHE_TRY(write_question());
    const auto answer = read_answer();
    if (answer && answer->nonces[own_.rank] == own_.nonce) {
      id = answer->id;
      own_.has_id = true;
      own_.meeting = answer->meeting;
      return write_question();
    }
  } while (pause());
  const auto question = read_question(launch_.rank);
  if (question && question->nonce == own_.nonce) (void)folder_.remove(question_file(launch_.rank));
  return timeout(text("rank ", launch_.rank, " of ", launch_.world, " waited ", timeout_ms_,
                      " ms for rank 0 to write ", folder_.path(), "/", answer_, " for ",
                      launch_.world, " ranks (LATHE_RENDEZVOUS_DIR)"));
}

}  // namespace

std::string answer_name(const std::string& run) { return base_name(run) + ".id"; }

std::string question_name(const std::string& run, int rank) {
  return text(base_name(run), ".rank", rank);
}

Status share_by_folder(const Launch& launch, UniqueId& id, int timeout_ms) {
  LATHE_ASSIGN(MeetingFolder folder, MeetingFolder::open(launch.folder));
  LATHE_ASSIGN(const Nonce nonce, draw_nonce());
  if (launch.rank == 0) return Answering(launch, folder, id, nonce, timeout_ms).meet();
  return Asking(launch, folder, nonce, timeout_ms).meet(id);
}

}  // namespace lathe
