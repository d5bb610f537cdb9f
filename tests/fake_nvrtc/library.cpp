// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This compiler library is for tests. It compiles everything to the same few bytes, unless the unit
// asks for mischief by a line "fake: WORD". Built several times, with other versions and build ids.
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "abi/nvrtc.h"

#define FAKE_API extern "C" __attribute__((visibility("default"))) nvrtcResult

namespace {

struct Program {
  std::string text;
  std::string ptx = "compiled by a fake";
  bool bad = false;
};

Program& of(nvrtcProgram program) { return *reinterpret_cast<Program*>(program); }

volatile bool deeper = true;

__attribute__((noinline)) int recurse(volatile char* above) {
  volatile char here[4096];
  here[0] = *above;
  return deeper ? recurse(here) + here[0] : 0;
}

void take_all_memory() {
  for (size_t taken = 0;; taken += 64 << 20) {
    void* const block = std::malloc(64 << 20);
    if (block == nullptr) break;
    if (taken > size_t{64} << 30) return;  // no limit holds
  }
  std::fputs("LLVM ERROR: out of memory\n", stderr);
  std::abort();
}

void* leave_soon(void*) {
  usleep(20'000);
  _exit(0);
}

// As NVRTC does in the first compile of a process: a handler of SIGINT that ends the process.
void compile_under_handler() {
  struct sigaction before, own = {};
  own.sa_handler = [](int) { _exit(4); };
  sigaction(SIGINT, &own, &before);
  usleep(400'000);
  sigaction(SIGINT, &before, nullptr);
}

// A process hands this on to those that it starts.
std::string describe_process() {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  struct sigaction user, pipe;
  sigaction(SIGUSR1, nullptr, &user);
  sigaction(SIGPIPE, nullptr, &pipe);
  int descriptors = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++descriptors;
  closedir(folder);
  const char* const preload = std::getenv("LD_PRELOAD");
  const char* const flags = std::getenv("NVRTC_APPEND_FLAGS");
  char text[300];
  std::snprintf(text, sizeof(text),
                "leads=%d blocked=%d ignored=%d descriptors=%d preload=%s flags=%s",
                getsid(0) == getpid(), sigismember(&blocked, SIGUSR2),
                user.sa_handler == SIG_IGN || pipe.sa_handler == SIG_IGN,
                descriptors - 3,  // ".", ".." and the folder itself
                preload == nullptr ? "none" : preload, flags == nullptr ? "none" : flags);
  return text;
}

void misbehave(Program* program) {
  const auto asked = [program](const char* word) {
    return program->text.find(std::string("fake: ") + word) != std::string::npos;
  };
  if (asked("loop")) {
    while (true) continue;
  }
  if (asked("sleep")) pause();
  if (asked("memory")) take_all_memory();
  if (asked("recursion")) recurse(program->ptx.data());
  if (asked("exit")) {
    std::puts("the fake is tired");
    std::exit(3);
  }
  if (asked("kill")) raise(SIGKILL);
#ifdef FAKE_CRASHES_ON
  if (program->text.find(FAKE_CRASHES_ON) != program->text.npos) raise(SIGSEGV);
#endif
  if (asked("pause")) usleep(100'000);
  if (asked("handler")) compile_under_handler();
  if (asked("describe")) program->ptx = describe_process();
  if (asked("bad")) program->bad = true;
  if (asked("leave")) {
    pthread_t thread;
    pthread_create(&thread, nullptr, leave_soon, nullptr);
  }
}

}  // namespace

FAKE_API nvrtcVersion(int* major, int* minor) {
  *major = FAKE_MAJOR;
  *minor = FAKE_MINOR;
  return NVRTC_SUCCESS;
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(nvrtcResult) {
  return "fake";
}
FAKE_API nvrtcGetNumSupportedArchs(int* count) { return *count = 0, NVRTC_SUCCESS; }
FAKE_API nvrtcGetSupportedArchs(int*) { return NVRTC_SUCCESS; }
FAKE_API nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char*, int headers,
                            const char* const* texts, const char* const*) {
  auto* const made = new Program;
  made->text = text;
  for (int i = 0; i < headers; ++i) made->text += texts[i];
  *program = reinterpret_cast<nvrtcProgram>(made);
  return NVRTC_SUCCESS;
}
FAKE_API nvrtcDestroyProgram(nvrtcProgram* program) {
  delete &of(*program);
  return NVRTC_SUCCESS;
}
FAKE_API nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  misbehave(&of(program));
  return of(program).bad ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}
FAKE_API nvrtcGetProgramLogSize(nvrtcProgram, size_t* size) { return *size = 0, NVRTC_SUCCESS; }
FAKE_API nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_SUCCESS; }
FAKE_API nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  return *size = of(program).ptx.size() + 1, NVRTC_SUCCESS;
}
FAKE_API nvrtcGetPTX(nvrtcProgram program, char* to) {
  return std::memcpy(to, of(program).ptx.c_str(), of(program).ptx.size() + 1), NVRTC_SUCCESS;
}
FAKE_API nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  return nvrtcGetPTXSize(program, size);
}
FAKE_API nvrtcGetCUBIN(nvrtcProgram program, char* to) { return nvrtcGetPTX(program, to); }
