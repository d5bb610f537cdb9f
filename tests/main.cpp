// This file holds the main function of every test program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
// The compiler's own locks are not seen by ThreadSanitizer, which then reports what two compiles at
// once do inside it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:libnvrtc.so\nrace:libnvrtc-builtins\n";
}
#endif
