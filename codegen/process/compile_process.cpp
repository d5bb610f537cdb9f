// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Does the library's side of the compile process: requests, limits, and the processes that wait.
#include "codegen/process/compile_process.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "codegen/base/env.h"
#include "codegen/base/text.h"
#include "codegen/process/spawn.h"
#include "codegen/process/wire.h"
#include "codegen/templates.h"

namespace lathe {
namespace {

constexpr int64_t kDefaultBytes = int64_t{4} << 30, kDefaultSeconds = 60;
// On the clock a compile may take so many times its processor time: machines may be very busy, but
// one that waits for something that never comes takes no processor time at all.
constexpr int64_t kClockFactor = 10;
constexpr int64_t kOpenMs = 300'000;  // a library on a slow disk
constexpr const char* kWayOut = "LATHE_COMPILE_PROCESS=off compiles in this process instead";

// A process that waits for a request.
struct Idle {
  SpawnedProcess process;
  std::string asked, opened;  // keys of the candidates that it was given and of the one it took
  CompilerFacts facts;
  std::string file;  // the compiler's own, behind all links
};

// Those of one process. A child of fork() leaves its parent's alone, lock and all: what it inherits
// is its parent's conversation.
struct Pool {
  const pid_t owner = getpid();
  std::mutex mutex;
  std::vector<Idle> idle;  // guarded by mutex
  std::atomic<int64_t> started{0};
};

Pool& pool() {
  static std::atomic<Pool*> current{nullptr};
  Pool* found = current.load();
  while (found == nullptr || found->owner != getpid()) {
    auto* const made = new Pool;
    if (current.compare_exchange_strong(found, made)) return *made;
    delete made;
  }
  return *found;
}

std::string key_of(const std::vector<CompilerCandidate>& candidates, int driver_version,
                   int64_t bytes) {
  std::string key = text(driver_version, ' ', bytes);
  for (const CompilerCandidate& each : candidates) key += '\n' + each.asked + '\n' + each.file;
  return key;
}

std::optional<Idle> take_idle(const std::string& key) {
  Pool& all = pool();
  const std::lock_guard<std::mutex> guard(all.mutex);
  for (size_t i = all.idle.size(); i-- > 0;) {
    if (all.idle[i].asked != key && all.idle[i].opened != key) continue;
    Idle taken = std::move(all.idle[i]);
    all.idle.erase(all.idle.begin() + static_cast<std::ptrdiff_t>(i));
    return taken;
  }
  return std::nullopt;
}

void give_back(Idle process) {
  Pool& all = pool();
  const std::lock_guard<std::mutex> guard(all.mutex);
  all.idle.push_back(std::move(process));
}

// Says why a process said no more.
struct End {
  Received how = Received::ended;
  bool spoke = false;  // it sent its last words:
  int64_t signal = 0;
  std::string words;
};

// The last words, if that is what came in place of the answer.
bool read_end(const std::string& message, End* end) {
  MessageReader reader(message);
  if (reader.kind() != MessageKind::last_words) return false;
  end->spoke = true;
  reader.take(end->signal, end->words);
  while (!end->words.empty() && end->words.back() == '\n') end->words.pop_back();
  return true;
}

bool is_about_memory(const std::string& words) {
  for (const char* part : {"memory", "bad_alloc", "bad alloc", "MEMORY"}) {
    if (words.find(part) != words.npos) return true;
  }
  return false;
}

std::string out_of_memory(int64_t bytes) {
  return text("wanted more memory than the ", bytes,
              " bytes of address space that LATHE_COMPILE_MAX_BYTES allows");
}

std::string describe(const End& end, int64_t bytes, int64_t seconds) {
  if (end.how == Received::late) {
    return text("was not done after ", kClockFactor * seconds, " s, ", kClockFactor,
                " times the processor time that LATHE_COMPILE_SECONDS allows");
  }
  if (end.signal == SIGXCPU) {
    return text("took more than the ", seconds,
                " s of processor time that LATHE_COMPILE_SECONDS allows");
  }
  if (bytes > 0 && is_about_memory(end.words)) return out_of_memory(bytes);
  const std::string said = end.words.empty() ? "" : text(" after printing \"", end.words, "\"");
  if (!end.spoke) {
    return text("ended without a word, as a process does that is killed; it may take ", bytes,
                " bytes of address space (LATHE_COMPILE_MAX_BYTES)");
  }
  if (end.signal == 0) return text("called exit()", said);
  return text("ended by signal ", end.signal, " (", strsignal(static_cast<int>(end.signal)), ")",
              said);
}

Result<Idle> start(const std::vector<CompilerCandidate>& candidates, int driver_version,
                   int64_t bytes, const std::string& append_flags) {
  const auto spawned = spawn_compile_process(append_flags);
  if (!spawned.ok()) {
    return Status(Code::compile_failed, text("the compile process could not be started (",
                                             spawned.status().text(), "); ", kWayOut));
  }
  ++pool().started;
  Idle process;
  process.process = *spawned;
  std::string message;
  send_bytes(process.process.socket,
             message_of(MessageKind::open, bytes, driver_version, candidates, template_headers()));
  End end;
  end.how = receive_message(process.process.socket, milliseconds_now() + kOpenMs, &message);
  MessageReader reader(message);
  const MessageKind kind = end.how == Received::message ? reader.kind() : MessageKind::last_words;
  if (kind == MessageKind::facts) {
    reader.take(process.facts, process.file);
    process.asked = key_of(candidates, driver_version, bytes);
    process.opened = key_of({{process.facts.asked, process.file}}, 0, bytes);
    return process;
  }
  end_process(process.process);
  if (kind == MessageKind::failure) {
    return Status(Code::compile_failed, std::string(reader.text()));
  }
  read_end(message, &end);
  const std::string why = end.how == Received::late
                              ? text("was not done after ", kOpenMs / 1000, " s")
                              : describe(end, bytes, 0);
  return Status(Code::compile_failed,
                text("the compile process opened no compiler: it ", why, "; ", kWayOut));
}

// The answer to a request; what ended the process if there is none. `begun`: it read the request.
std::optional<CompileOutcome> ask(int socket, const std::string& request, int64_t deadline_ms,
                                  bool* begun, End* end) {
  std::string message;
  // The last words of a process that ends are read even if it takes no request any more.
  send_bytes(socket, request);
  while ((end->how = receive_message(socket, deadline_ms, &message)) == Received::message) {
    MessageReader reader(message);
    const MessageKind kind = reader.kind();
    if (kind == MessageKind::begun) *begun = true;
    if (kind == MessageKind::outcome) {
      CompileOutcome outcome;
      if (reader.take(outcome)) return outcome;
      break;
    }
    if (read_end(message, end)) break;
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const CompileProcesses>> CompileProcesses::open(
    const std::vector<CompilerCandidate>& candidates, int driver_version,
    const std::string& append_flags) {
  std::shared_ptr<CompileProcesses> opened(new CompileProcesses());
  opened->append_flags_ = append_flags;
  opened->memory_bytes_ = environment_number("LATHE_COMPILE_MAX_BYTES", kDefaultBytes);
  opened->seconds_ = environment_number("LATHE_COMPILE_SECONDS", kDefaultSeconds);
  std::optional<Idle> process =
      take_idle(key_of(candidates, driver_version, opened->memory_bytes_));
  if (!process) {
    LATHE_ASSIGN(process, start(candidates, driver_version, opened->memory_bytes_, append_flags));
  }
  opened->facts_ = process->facts;
  opened->file_ = process->file;
  give_back(std::move(*process));
  return std::shared_ptr<const CompileProcesses>(std::move(opened));
}

Result<CompileOutcome> CompileProcesses::compile(const CompileJob& job, bool limited) const {
  const int64_t seconds = limited ? seconds_ : 0;
  const std::vector<CompilerCandidate> same = {{facts_.asked, file_}};
  const std::string key = key_of(same, 0, memory_bytes_);
  const std::string request =
      message_of(MessageKind::compile, seconds, job.unit, job.options, job.headers);
  while (true) {
    std::optional<Idle> process = take_idle(key);
    const bool waited = process.has_value();
    if (!waited) {
      LATHE_ASSIGN(process, start(same, 0, memory_bytes_, append_flags_));
    }
    if (process->facts.identity != facts_.identity) {
      end_process(process->process);
      return Status(Code::compile_failed,
                    text("the compiler ", file_, " is now ", process->facts.identity,
                         ", and this process began with ", facts_.identity, ": start it again"));
    }
    bool begun = false;
    End end;
    const int64_t deadline =
        seconds > 0 ? milliseconds_now() + 1000 * kClockFactor * seconds : int64_t{-1};
    auto outcome = ask(process->process.socket, request, deadline, &begun, &end);
    if (outcome) {
      give_back(std::move(*process));
      if (memory_bytes_ > 0 && is_about_memory(outcome->error)) {
        return Status(Code::compile_failed, text("the compiler ", out_of_memory(memory_bytes_)));
      }
      return std::move(*outcome);
    }
    end_process(process->process);
    if (waited && !begun) continue;  // it had waited long enough, and ended
    return Status(Code::compile_failed,
                  text("the compiler ", describe(end, memory_bytes_, seconds)));
  }
}

std::vector<CompileHeader> template_headers() {
  std::vector<CompileHeader> headers;
  for (const TemplateFile& file : template_files()) {
    headers.push_back({file.name, std::string(file.text)});
  }
  return headers;
}

int64_t compile_processes_started() { return pool().started; }

}  // namespace lathe
