# How tests are built and registered: lathe_test() for doctest programs, what the sanitizers run again,
# where compiled kernels are kept, time limits.
find_package(Python3 3.9 COMPONENTS Interpreter REQUIRED)

# The tests that scripts/test runs again under the sanitizers: host code, without the long numerics on
# the simulator and without what only compiles kernels. `sanitized_tests` builds them, `ctest -L
# sanitized` runs them.
set(LATHE_UNSANITIZED "^(attention_|conv_|kda_|sparse_|templates_|ref_|bench_)")
if(LATHE_SANITIZE STREQUAL "thread")  # what uses threads
  string(JOIN "|" LATHE_SANITIZED registry store lock tiers bundle mix compiler_memo tune compile_process collective nccl
    driver api "sim_(atomic|control|print|threads)")
else()
  set(LATHE_SANITIZED ".")
endif()
add_custom_target(sanitized_tests)

# lathe_compile_fast(TARGET): code that is compiled more often than it runs. Against -O3 this saves a
# third of the compiler's time; doctest's short form of the assertions, a tenth. What may be used
# without a value is only told apart by the passes of -O2.
set(LATHE_FAST_OPTIONS $<$<CONFIG:Release>:-O1> $<$<CONFIG:Release>:-Wno-maybe-uninitialized>
  $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-stringop-overflow>
  -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS)
function(lathe_compile_fast target)
  target_compile_options(${target} PRIVATE ${LATHE_FAST_OPTIONS})
  set_target_properties(${target} PROPERTIES LATHE_IS_TEST ON)
endfunction()

# doctest's main function, compiled once for all test programs.
if(LATHE_TESTS)
  add_library(lathe_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  target_link_libraries(lathe_test_main PRIVATE lathe_options)
  lathe_compile_fast(lathe_test_main)
endif()

# Where the tests' compiles by NVRTC are kept, for every build tree and preset; nowhere if empty.
# What is there is what the compiler gave for the same text and options: tests/nvrtc_memo/memo.h.
set(LATHE_TEST_NVRTC_MEMO_DEFAULT "${CMAKE_BINARY_DIR}/nvrtc-memo")
if(DEFINED ENV{XDG_CACHE_HOME})
  set(LATHE_TEST_NVRTC_MEMO_DEFAULT "$ENV{XDG_CACHE_HOME}/lathe-tests/nvrtc")
elseif(DEFINED ENV{HOME})
  set(LATHE_TEST_NVRTC_MEMO_DEFAULT "$ENV{HOME}/.cache/lathe-tests/nvrtc")
endif()
set(LATHE_TEST_NVRTC_MEMO "${LATHE_TEST_NVRTC_MEMO_DEFAULT}" CACHE STRING
  "Folder that keeps the tests' compiles by NVRTC; empty: none")

# lathe_memoize(TEST...): these tests of this folder compile through the memo. Not those of the
# cache, the registry and the compiler itself, whose subject is the compile.
function(lathe_memoize)
  if(LATHE_TEST_NVRTC_MEMO STREQUAL "")
    return()
  endif()
  set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT
    "LATHE_NVRTC=${CMAKE_BINARY_DIR}/tests/liblathe_nvrtc_memo.so"
    "LATHE_TEST_NVRTC_MEMO=${LATHE_TEST_NVRTC_MEMO}")
endfunction()
set(LATHE_MEMOIZED "^(api_|attention_|bench_|conv_|kda_|ranks_|shard_|sparse_|templates_)")

# Seconds of a processor that a test takes with nothing cached, where that is more than six. These begin
# first, so that none of them is what the others' end is waited for, and may take ten times as long: a
# busy machine is no failure. All others have a minute (scripts/test).
set(LATHE_TEST_SECONDS
  templates_test 60)
function(lathe_limit name)
  list(FIND LATHE_TEST_SECONDS ${name} at)
  if(at GREATER -1)
    math(EXPR at "${at} + 1")
    list(GET LATHE_TEST_SECONDS ${at} seconds)
    math(EXPR limit "10 * ${seconds}")
    set_tests_properties(${name} PROPERTIES COST ${seconds} TIMEOUT ${limit})
  endif()
endfunction()

# lathe_test(NAME SOURCES... LIBRARIES...): a doctest program, registered with ctest as NAME.
function(lathe_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} $<TARGET_OBJECTS:lathe_test_main> ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lathe_options ${arg_LIBRARIES})
  lathe_compile_fast(${name})
  lathe_precompile(${name} lathe_test_headers test_headers.h ${LATHE_FAST_OPTIONS} -fPIE)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(name MATCHES "^bench_")  # built and run by scripts/test --bench alone
    add_test(NAME ${name} CONFIGURATIONS Bench COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS bench)
    add_dependencies(benchmarks ${name})
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  lathe_limit(${name})
  if(name MATCHES "${LATHE_MEMOIZED}")
    lathe_memoize(${name})
    add_dependencies(${name} lathe_nvrtc_memo)
  endif()
  if(name MATCHES "${LATHE_SANITIZED}" AND NOT name MATCHES "${LATHE_UNSANITIZED}")
    set_tests_properties(${name} PROPERTIES LABELS sanitized)
    add_dependencies(sanitized_tests ${name})
  endif()
endfunction()

# The tests that scripts/test leaves to --thorough: each takes ten seconds or more with nothing cached,
# and what it looks at is also seen by shorter ones, named behind it. A regular expression for ctest.
set(LATHE_THOROUGH
@@THOROUGH@@)
list(JOIN LATHE_THOROUGH "$|^" names)
file(WRITE ${CMAKE_BINARY_DIR}/thorough.txt "^${names}$\n")
