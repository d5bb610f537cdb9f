// This file holds the main function of every test program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
// The compiler's own locks are not seen by ThreadSanitizer, which then reports what two compiles at
// once do inside it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:libnvrtc.so\nrace:libnvrtc-builtins\n";
}
// ThreadSanitizer lets a process with threads sleep for a second before it ends, in case one of
// them still races. Tests that start a thousand processes would take half an hour of it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "atexit_sleep_ms=10";
}
#endif
