// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The compile process: a program of its own, whose bytes are in the library (worker_image.S). It
// answers requests on descriptor 0 until the other end is gone or nothing was asked for a while.
// Whatever a text does to the compiler happens here and not in the user's program.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/nvrtc_library.h"
#include "codegen/process/wire.h"

namespace lathe {
namespace {

constexpr int kSocket = 0;
constexpr int kPrinted = 2;          // a file in memory: what the compiler prints
constexpr int64_t kIdleMs = 10'000;  // a process that asks again later starts another one
constexpr size_t kMostWords = 1000;  // bytes of the last words

volatile sig_atomic_t told = 0;

// Async-signal-safe. The message is put together by hand: kind, signal, text.
void tell_last_words(int signal) {
  if (told != 0) return;
  told = 1;
  struct {
    uint64_t size;
    int64_t kind, signal, length;
    char text[kMostWords];
  } message = {};
  const off_t end = lseek(kPrinted, 0, SEEK_END);
  const off_t from =
      end > static_cast<off_t>(kMostWords) ? end - static_cast<off_t>(kMostWords) : 0;
  const ssize_t length = end > 0 ? pread(kPrinted, message.text, kMostWords, from) : 0;
  message.kind = static_cast<int64_t>(MessageKind::last_words);
  message.signal = signal;
  message.length = length > 0 ? length : 0;
  message.size = 3 * sizeof(int64_t) + static_cast<uint64_t>(message.length);
  send_bytes(kSocket, {reinterpret_cast<const char*>(&message), sizeof(uint64_t) + message.size});
}

void on_signal(int signal) {
  tell_last_words(signal);
  _exit(1);
}

void on_exit_called() { tell_last_words(0); }

void take_signals() {
  static char stack[64 << 10];  // a compiler that recurses too deep has none left of its own
  stack_t other = {};
  other.ss_sp = stack;
  other.ss_size = sizeof(stack);
  sigaltstack(&other, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU, SIGTRAP}) {
    sigaction(signal, &action, nullptr);
  }
  std::atexit(on_exit_called);
}

// The compiler is in the middle of a compile, perhaps for ever, when the other end goes.
void* watch_other_end(void*) {
  struct pollfd other = {kSocket, POLLRDHUP, 0};
  while (poll(&other, 1, -1) <= 0) continue;
  _exit(0);
}

void limit_to(int resource, rlim_t soft) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(soft, limit.rlim_max);
  setrlimit(resource, &limit);
}

// This request may use so many more seconds of the processor; 0: any.
void limit_processor_time(int64_t seconds) {
  struct rusage used;
  if (seconds <= 0 || getrusage(RUSAGE_SELF, &used) != 0)
    return limit_to(RLIMIT_CPU, RLIM_INFINITY);
  limit_to(RLIMIT_CPU,
           static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1 + seconds));
}

class Worker {
 public:
  // False: there is no more to do.
  bool answer(std::string_view message) {
    MessageReader reader(message);
    const MessageKind kind = reader.kind();
    if (kind == MessageKind::open) return open(&reader);
    if (kind == MessageKind::compile && library_) return compile(&reader);
    return false;
  }

 private:
  bool open(MessageReader* reader) {
    const int64_t bytes = reader->number();
    if (bytes > 0) limit_to(RLIMIT_AS, static_cast<rlim_t>(bytes));
    int driver_version = 0;
    std::vector<CompilerCandidate> candidates;
    reader->take(driver_version, candidates, headers_);
    const auto opened = NvrtcLibrary::open(candidates, driver_version);
    if (!opened.ok()) {
      return send_bytes(kSocket, message_of(MessageKind::failure, opened.status().text()));
    }
    library_ = *opened;
    const CompilerFacts& facts = library_->facts();
    char* const whole = realpath(facts.path.c_str(), nullptr);
    const std::string file = whole == nullptr ? facts.path : whole;
    free(whole);
    // Names are resolved; nobody's folder is held busy for as long as this process waits.
    if (chdir("/") != 0) return false;
    return send_bytes(kSocket, message_of(MessageKind::facts, facts, file));
  }

  bool compile(MessageReader* reader) {
    if (!send_bytes(kSocket, message_of(MessageKind::begun))) return false;
    limit_processor_time(reader->number());
    CompileJob job;
    if (!reader->take(job.unit, job.options, job.headers)) return false;
    job.headers.insert(job.headers.end(), headers_.begin(), headers_.end());
    return send_bytes(kSocket, message_of(MessageKind::outcome, library_->compile(job)));
  }

  std::shared_ptr<const NvrtcLibrary> library_;
  std::vector<CompileHeader> headers_;  // the embedded files
};

int run() {
  const int printed = memfd_create("lathe-compile-output", MFD_CLOEXEC);
  if (printed >= 0) {
    fcntl(printed, F_SETFL, O_APPEND);
    dup2(printed, 1);
    dup2(printed, kPrinted);
    close(printed);
  }
  setvbuf(stdout, nullptr, _IONBF, 0);  // the last words are read before exit() writes any
  limit_to(RLIMIT_CORE, 0);
  take_signals();
  pthread_t watcher;
  if (pthread_create(&watcher, nullptr, watch_other_end, nullptr) != 0) return 1;
  Worker worker;
  std::string message;
  while (true) {
    struct pollfd request = {kSocket, POLLIN, 0};
    if (poll(&request, 1, kIdleMs) <= 0) break;
    if (receive_message(kSocket, -1, &message) != Received::message) break;
    if (!worker.answer(message)) break;
  }
  return 0;
}

}  // namespace
}  // namespace lathe

// Not by return: the compiler's threads and destructors have nothing left to do.
int main() { _exit(lathe::run()); }
