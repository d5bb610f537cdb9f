# How tests are built and registered: lathe_test() for doctest programs, what the sanitizers run again,
# where compiled kernels are kept, time limits.
find_package(Python3 3.9 COMPONENTS Interpreter REQUIRED)

# The families that have tests of their own: the folders of tests/ops. Programs of a family are named
# FAMILY_NAME_test.
file(GLOB LATHE_TEST_FAMILIES CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/ops
  ${PROJECT_SOURCE_DIR}/tests/ops/*/CMakeLists.txt)
list(TRANSFORM LATHE_TEST_FAMILIES REPLACE "/CMakeLists.txt$" "")
list(JOIN LATHE_TEST_FAMILIES "_|" LATHE_FAMILY_TESTS)
string(APPEND LATHE_FAMILY_TESTS "_")

# The tests that scripts/test runs again under the sanitizers: host code, without the long numerics on
# the simulator and without what only compiles kernels. `sanitized_tests` builds them, `ctest -L
# sanitized` runs them.
# Nor those whose forked children end in an orderly way: the leak detector takes what the parent's
# threads hold, which a child does not have, for lost.
set(LATHE_UNSANITIZED
  "^(${LATHE_FAMILY_TESTS}|templates_|ref_|bench_|driver_fork_test$|fork_test$)")
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
set(LATHE_MEMOIZED "^(${LATHE_FAMILY_TESTS}|api_|bench_|ranks_|shard_|templates_)")

# lathe_takes(TEST SECONDS [THOROUGH]): what SECONDS and THOROUGH beside a test mean. A test that takes more than
# six seconds of a processor with nothing cached says how many: it begins first, so that it is not what the
# others' end is waited for. A limit is there for a test that hangs and for nothing else: it is thirty times as
# long, as a sanitizer takes ten times as long and a busy machine three, and never below five minutes (which
# scripts/test gives to all others). THOROUGH: the release suite leaves it out, because shorter tests see the
# same code. Its program is built by the target thorough_tests.
function(lathe_takes name seconds)
  if(NOT seconds STREQUAL "")
    math(EXPR limit "30 * ${seconds}")
    if(limit LESS 300)
      set(limit 300)
    endif()
    set_tests_properties(${name} PROPERTIES COST ${seconds} TIMEOUT ${limit})
  endif()
  if("${ARGN}" MATCHES "THOROUGH|TRUE")
    set_property(TEST ${name} APPEND PROPERTY LABELS thorough)
    if(TARGET ${name})
      set_target_properties(${name} PROPERTIES LATHE_THOROUGH ON)
    endif()
  endif()
endfunction()

add_custom_target(thorough_tests)
# The programs of all other tests. Neither is part of `all`, so that a run of chosen tests builds what it
# runs and no more (tests/selection.py).
add_custom_target(release_tests)

# lathe_test(NAME SOURCES... LIBRARIES... [SECONDS N] [THOROUGH]): a doctest program, registered with ctest as
# NAME.
function(lathe_test name)
  cmake_parse_arguments(arg "THOROUGH" "SECONDS" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} $<TARGET_OBJECTS:lathe_test_main> ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lathe_options ${arg_LIBRARIES})
  lathe_compile_fast(${name})
  lathe_precompile(${name} lathe_test_headers test_headers.h ${LATHE_FAST_OPTIONS} -fPIE)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    EXCLUDE_FROM_ALL ON)
  if(name MATCHES "^bench_")  # built and run by scripts/test --bench alone
    add_test(NAME ${name} CONFIGURATIONS Bench COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS bench)
    add_dependencies(benchmarks ${name})
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_property(GLOBAL APPEND PROPERTY LATHE_TEST_PROGRAMS ${name})
    lathe_takes(${name} "${arg_SECONDS}" "${arg_THOROUGH}")
  endif()
  if(name MATCHES "${LATHE_MEMOIZED}")
    lathe_memoize(${name})
    add_dependencies(${name} lathe_nvrtc_memo)
  endif()
  if(name MATCHES "${LATHE_SANITIZED}" AND NOT name MATCHES "${LATHE_UNSANITIZED}")
    set_property(TEST ${name} APPEND PROPERTY LABELS sanitized)
    add_dependencies(sanitized_tests ${name})
  endif()
endfunction()

# lathe_collect_tests(): fills release_tests and thorough_tests, when all folders have said what takes long.
function(lathe_collect_tests)
  get_property(programs GLOBAL PROPERTY LATHE_TEST_PROGRAMS)
  foreach(name ${programs})
    get_target_property(thorough ${name} LATHE_THOROUGH)
    if(thorough)
      add_dependencies(thorough_tests ${name})
    else()
      add_dependencies(release_tests ${name})
    endif()
  endforeach()
endfunction()

# lathe_parts(NAME TEST COUNT [FROM K]): tests NAME_K to NAME_<COUNT-1>, each a part of the cases that
# the program TEST has a sample of otherwise (tests/shard.h): scripts/test --exhaustive.
function(lathe_parts name test count)
  cmake_parse_arguments(arg "" "FROM" "" ${ARGN})
  if(NOT arg_FROM)
    set(arg_FROM 0)
  endif()
  math(EXPR last "${count} - 1")
  foreach(part RANGE ${arg_FROM} ${last})
    add_test(NAME ${name}_${part} CONFIGURATIONS Exhaustive COMMAND ${test})
    set_tests_properties(${name}_${part} PROPERTIES LABELS exhaustive
      TIMEOUT 1200 ENVIRONMENT "LATHE_TEST_SHARD=${part}/${count}")
    lathe_memoize(${name}_${part})
  endforeach()
endfunction()
