# What every target shares: the language level, warnings, sanitizers, where things are left, and
# the vendor headers (types and constants only; the libraries themselves are opened at run time).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(LATHE_CCACHE ccache)
if(LATHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${LATHE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LATHE_CCACHE})
endif()

# cuda.h, nvrtc.h and nccl.h: from a tool kit, or from the wheels that scripts/bootstrap unpacks.
# The wheels come first: they are only there when no tool kit was found, or was not wanted.
foreach(header cuda nvrtc nccl)
  find_path(LATHE_${header}_INCLUDE ${header}.h
    HINTS ${PROJECT_SOURCE_DIR}/.deps/include $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  if(NOT LATHE_${header}_INCLUDE)
    message(FATAL_ERROR "${header}.h not found: run scripts/bootstrap, or set CUDA_HOME")
  endif()
endforeach()
# What the build leaves finds the wheels' libraries by itself; what is installed looks in the system.
if(EXISTS ${PROJECT_SOURCE_DIR}/.deps/lib)
  list(APPEND CMAKE_BUILD_RPATH ${PROJECT_SOURCE_DIR}/.deps/lib)
endif()
find_package(Threads REQUIRED)

add_library(lathe_plain_options INTERFACE)
target_include_directories(lathe_plain_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_include_directories(lathe_plain_options SYSTEM INTERFACE
  ${LATHE_cuda_INCLUDE} ${LATHE_nvrtc_INCLUDE} ${LATHE_nccl_INCLUDE})
target_link_libraries(lathe_plain_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
# restrict: g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
target_compile_options(lathe_plain_options INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${LATHE_WERROR}>:-Werror>)
add_library(lathe_options INTERFACE)
target_link_libraries(lathe_options INTERFACE lathe_plain_options)
# enum: a C caller may pass any int where an enum stands; refusing it is the library's work and the
# tests', so looking at it must be allowed.
if(LATHE_SANITIZE)
  target_compile_options(lathe_options INTERFACE -fsanitize=${LATHE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  if(LATHE_SANITIZE MATCHES "undefined")
    # Undefined behaviour is looked for in the library: in its tests that takes a third of the
    # compiler's time, for nothing that is shipped.
    target_compile_options(lathe_options INTERFACE -fno-sanitize=enum
      $<$<BOOL:$<TARGET_PROPERTY:LATHE_IS_TEST>>:-fno-sanitize=undefined>)
  endif()
  target_link_options(lathe_options INTERFACE -fsanitize=${LATHE_SANITIZE})
endif()

# lathe_layer(NAME SOURCES... LAYERS...): one folder of the library as a static archive, so that
# tests can reach inside; liblathe.so is made of all of them.
function(lathe_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LAYERS" ${ARGN})
  add_library(lathe_${name} STATIC ${arg_SOURCES})
  target_link_libraries(lathe_${name} PUBLIC lathe_options)
  foreach(layer ${arg_LAYERS})
    target_link_libraries(lathe_${name} PUBLIC lathe_${layer})
  endforeach()
endfunction()

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
function(lathe_compile_fast target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1 -Wno-maybe-uninitialized>)
  target_compile_definitions(${target} PRIVATE DOCTEST_CONFIG_SUPER_FAST_ASSERTS)
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

# Begun first, so that none of them is what the others' end is waited for.
set(LATHE_LONG api_launch_test api_run_test attention_dispatch_test attention_launch_test
  attention_ranks_test conv_numerics_test kda_adversarial_test kda_options_test kda_relations_test
  sim_threads_test templates_attention_block_backward_test templates_attention_compile_test
  templates_test)

# lathe_test(NAME SOURCES... LIBRARIES...): a doctest program, registered with ctest as NAME.
function(lathe_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} $<TARGET_OBJECTS:lathe_test_main> ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lathe_options ${arg_LIBRARIES})
  lathe_compile_fast(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  if(name IN_LIST LATHE_LONG)
    set_tests_properties(${name} PROPERTIES COST 60)
  endif()
  if(name MATCHES "${LATHE_MEMOIZED}")
    lathe_memoize(${name})
    add_dependencies(${name} lathe_nvrtc_memo)
  endif()
  if(name MATCHES "${LATHE_SANITIZED}" AND NOT name MATCHES "${LATHE_UNSANITIZED}")
    set_tests_properties(${name} PROPERTIES LABELS sanitized)
    add_dependencies(sanitized_tests ${name})
  endif()
endfunction()
