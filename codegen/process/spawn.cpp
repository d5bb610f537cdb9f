// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Two steps. A first process, made by clone() without a signal for its end, makes the second one
// and ends at once; the second one executes the program and belongs to init. One step is not
// enough: execve() gives any process back the SIGCHLD for its end. Both share this process's memory
// until then (CLONE_VM), so nothing is copied however large it is, and this thread waits meanwhile
// (CLONE_VFORK), so its stack of variables is theirs.
#include "codegen/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "codegen/base/text.h"

// Sanitizers keep notes about a thread's stack and would take these processes for forked ones.
#if defined(__SANITIZE_THREAD__)
#include <dlfcn.h>
#define LATHE_UNINSTRUMENTED __attribute__((no_sanitize("thread")))
#elif defined(__SANITIZE_ADDRESS__)
#define LATHE_UNINSTRUMENTED __attribute__((no_sanitize("address", "undefined")))
#else
#define LATHE_UNINSTRUMENTED
#endif

extern char** environ;

// The compile process's program (worker.cpp), embedded by worker_image.S.
extern "C" const char lathe_worker_image[];
extern "C" const char lathe_worker_image_end[];

namespace lathe {
namespace {

constexpr size_t kStackBytes = 64 << 10;  // of each of the two processes
constexpr int kFirstFree = 3;             // descriptors below are the program's own
// Numbers of the kernel that older headers lack:
constexpr unsigned kExecutable = 0x10;               // MFD_EXEC
constexpr int kPidfd = 0x1000;                       // CLONE_PIDFD
constexpr auto kByPidfd = static_cast<idtype_t>(3);  // P_PIDFD

using Clone = int (*)(int (*)(void*), void*, int, void*, ...);

// These are the requests and the answers of the processes. They allocate nothing.
struct Order {
  Clone clone;
  int image, socket, open_max;
  char* stacks = nullptr;
  char* const* arguments;
  char* const* variables;
  const char* failed_step = nullptr;
  int error = 0;
  int pidfd = -1;
};

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// By number: a tool's own close() or sigaction() would note for the program what happens here.
template <typename... Arguments>
LATHE_UNINSTRUMENTED long call(long number, Arguments... arguments) {
  return syscall(number, arguments...);
}

LATHE_UNINSTRUMENTED int give_up(Order* order, const char* step) {
  order->failed_step = step;
  order->error = errno;
  call(SYS_exit_group, 127);
  return 127;
}

// Closes everything but 0 to 2 and `kept`, which execve() closes.
LATHE_UNINSTRUMENTED void close_others(long kept, int open_max) {
#ifdef SYS_close_range
  const bool below = kept == kFirstFree || call(SYS_close_range, kFirstFree, kept - 1, 0) == 0;
  if (below && call(SYS_close_range, kept + 1, ~0u, 0) == 0) return;
#endif
  for (int each = kFirstFree; each < open_max; ++each) {
    if (each != kept) call(SYS_close, each);
  }
}

// A handler of the program's must not run here, and what it ignores or blocks is neither here. The
// kernel's own struct is shorter than these zeros, which mean SIG_DFL, and an empty mask.
LATHE_UNINSTRUMENTED void forget_signals() {
  const long zeros[8] = {};
  constexpr long kMaskBytes = 8;
  for (int signal = 1; signal < NSIG; ++signal) {
    call(SYS_rt_sigaction, signal, zeros, nullptr, kMaskBytes);
  }
  call(SYS_rt_sigprocmask, SIG_SETMASK, zeros, nullptr, kMaskBytes);
}

LATHE_UNINSTRUMENTED int second_process(void* data) {
  auto* const order = static_cast<Order*>(data);
  forget_signals();
  call(
      SYS_setsid);  // Control-C at a terminal goes to a whole group, and this process is none of it
  const long image = call(SYS_fcntl, order->image, F_DUPFD_CLOEXEC, kFirstFree);
  const long socket = call(SYS_fcntl, order->socket, F_DUPFD_CLOEXEC, kFirstFree);
  if (image < 0 || socket < 0) return give_up(order, "fcntl");
  for (int each = 0; each < kFirstFree; ++each) call(SYS_close, each);
  if (call(SYS_dup3, socket, 0, 0) < 0) return give_up(order, "dup3");
  if (call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0) != 1 || call(SYS_dup3, 1, 2, 0) < 0) {
    return give_up(order, "open /dev/null");
  }
  close_others(image, order->open_max);
  call(SYS_execveat, image, "", order->arguments, order->variables, AT_EMPTY_PATH);
  return give_up(order, "execveat");
}

LATHE_UNINSTRUMENTED int first_process(void* data) {
  auto* const order = static_cast<Order*>(data);
  const int made = order->clone(second_process, order->stacks + 2 * kStackBytes,
                                CLONE_VM | CLONE_VFORK | kPidfd | SIGCHLD, order, &order->pidfd);
  if (made < 0) return give_up(order, "clone");
  call(SYS_exit_group, 0);
  return 0;
}

// The program as an open file that is in no folder.
Result<int> open_image() {
  const size_t size = static_cast<size_t>(lathe_worker_image_end - lathe_worker_image);
  int file = memfd_create("lathe-compile", MFD_CLOEXEC | kExecutable);
  if (file < 0 && errno == EINVAL) file = memfd_create("lathe-compile", MFD_CLOEXEC);
  Descriptor image(file);
  for (size_t done = 0; image.get() >= 0 && done < size;) {
    const ssize_t wrote = write(image.get(), lathe_worker_image + done, size - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
    if (done == size) return image.release();
  }
  return Status(Code::compile_failed, text("memfd_create: ", std::strerror(errno)));
}

// The program's environment, but for what is loaded into every program and would count there.
std::vector<std::string> variables_with(const std::string& append_flags) {
  std::vector<std::string> variables;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view variable(*each);
    if (variable.starts_with("LD_PRELOAD=") || variable.starts_with("LD_AUDIT=") ||
        variable.starts_with("NVRTC_APPEND_FLAGS=")) {
      continue;
    }
    variables.emplace_back(variable);
  }
  if (!append_flags.empty()) variables.push_back("NVRTC_APPEND_FLAGS=" + append_flags);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>* strings) {
  std::vector<char*> all;
  for (std::string& each : *strings) all.push_back(each.data());
  all.push_back(nullptr);
  return all;
}

Clone real_clone() {
#if defined(__SANITIZE_THREAD__)
  return reinterpret_cast<Clone>(dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "clone"));
#else
  return &::clone;
#endif
}

// Signals wait until both processes are out of this one's memory.
Status carry_out(Order* order) {
  void* const stacks = mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks == MAP_FAILED) {
    return Status(Code::compile_failed, text("mmap: ", std::strerror(errno)));
  }
  order->stacks = static_cast<char*>(stacks);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int first = order->clone(first_process, order->stacks + kStackBytes,
                                 CLONE_VM | CLONE_VFORK | CLONE_FILES, order);
  const int error = errno;
  if (first > 0) {
    while (waitpid(first, nullptr, __WALL) < 0 && errno == EINTR) continue;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  munmap(stacks, 2 * kStackBytes);
  if (first < 0) return Status(Code::compile_failed, text("clone: ", std::strerror(error)));
  if (order->failed_step == nullptr) return {};
  return Status(Code::compile_failed, text(order->failed_step, ": ", std::strerror(order->error)));
}

}  // namespace

Result<SpawnedProcess> spawn_compile_process(const std::string& append_flags) {
  LATHE_ASSIGN(const int file, open_image());
  const Descriptor image(file);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Status(Code::compile_failed, text("socketpair: ", std::strerror(errno)));
  }
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  std::vector<std::string> words = {"lathe-compile"}, strings = variables_with(append_flags);
  const std::vector<char*> arguments = pointers(&words), variables = pointers(&strings);
  struct rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  Order order = {.clone = real_clone(),
                 .image = image.get(),
                 .socket = theirs.get(),
                 .open_max = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 20)),
                 .arguments = arguments.data(),
                 .variables = variables.data()};
  const Status done = carry_out(&order);
  if (!done.ok()) {
    if (order.pidfd >= 0) close(order.pidfd);
    return done;
  }
  return SpawnedProcess{ours.release(), order.pidfd};
}

void end_process(const SpawnedProcess& process) {
  close(process.socket);
  if (process.pidfd < 0) return;
  siginfo_t ended;
  while (waitid(kByPidfd, static_cast<id_t>(process.pidfd), &ended, WEXITED | __WALL) < 0 &&
         errno == EINTR) {
    continue;
  }
  close(process.pidfd);
}

}  // namespace lathe
