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

# Seconds of a processor that a test takes with nothing cached, where that is more than six. These begin
# first, so that none of them is what the others' end is waited for, and may take ten times as long: a
# busy machine is no failure. All others have a minute (scripts/test).
set(LATHE_TEST_SECONDS
  kda_options_test 83 kda_chunks_test 60 golden_kda 76 templates_test 66 kda_relations_test 61 conv_numerics_test 56 kda_ranks_test 54
  kda_adversarial_test 46 templates_attention_compile_test 120 golden_causal_conv1d 39 attention_options_test 38
  attention_dispatch_test 37 golden_flash_attention_ranks 36 golden_flash_attention_ranks_sm90 36 attention_ranks_test 35 kda_counters_test 33
  kda_numerics_test 40 golden_flash_attention 32 templates_kda_compile_test 32 kda_isolation_test 45
  attention_block_test 27 kda_recurrent_run_test 27 sparse_ranks_test 27 kda_repeat_test 25 attention_mods_test 24
  golden_sparse_flash_attention 24 attention_counters_test 21 golden_kda_ranks 21 sparse_options_test 21
  attention_backward_test 18 kda_offsets_test 25 attention_repeat_test 16
  templates_sparse_compile_test 15 attention_heads_test 14 conv_ranks_test 14 attention_decode_test 20
  attention_latent_test 40 attention_latent_warpgroups_test 40 attention_block_warpgroups_test 60
  attention_f32_test 12 attention_ranks_counters_test 10 conv_update_test 10 kda_layer_ranks_test 10
  golden_kda_recurrent 7 kda_recurrent_numerics_test 12 kda_chains_test 10 sparse_repeat_test 7 nccl_errors_test 6 attention_ring_test 20 sparse_run_test 6
  attention_tiles_test 60 attention_block_tiles_test 60 sparse_tiles_test 25 attention_warpgroups_test 65
  attention_warpgroups_mutation_test 60 attention_block_mutation_test 35 attention_wide_mutation_test 50
  attention_warpgroups_counters_test 60 attention_warpgroups_backward_test 150
  attention_warpgroups_groups_test 30 attention_warpgroups_mods_test 80 attention_warpgroups_order_test 60
  attention_warpgroups_mods_backward_test 200 attention_families_test 25
  attention_launch_test 20 attention_alignment_test 12 attention_alignment_steps_test 20
  python_golden_test 60 python_core_test 20
  collective_test 22 package_test 12 api_launch_test 10 processes_test 9
  cli_input_test 7 cli_cache_test 7 cli_ship_test 30 cli_lengths_test 20 cli_tools_test 20 sim_program_algorithms 15
  sim_clock_units_test 74 sim_clock_tensor_test 32 sim_clock_barriers_test 8 cli_clock_test 15)
function(lathe_limit name)
  list(FIND LATHE_TEST_SECONDS ${name} at)
  if(at GREATER -1)
    math(EXPR at "${at} + 1")
    list(GET LATHE_TEST_SECONDS ${at} seconds)
    math(EXPR limit "10 * ${seconds}")
    set_tests_properties(${name} PROPERTIES COST ${seconds} TIMEOUT ${limit})
  endif()
endfunction()

# The tests that scripts/test leaves to --thorough: each takes ten seconds or more with nothing cached,
# and what it looks at is also seen by shorter ones. Regular expressions for ctest. Their programs are
# built by the target thorough_tests.
set(LATHE_THOROUGH
  attention_alignment_sm80_test attention_alignment_steps_test attention_alignment_steps_sm80_test
  attention_block_test attention_counters_test attention_dispatch_test attention_heads_test attention_options_test
  attention_options_sm90_test attention_ranks_test attention_repeat_test attention_repeat_sm90_test attention_mods_test conv_numerics_test conv_ranks_test
  golden_.*_sm80 golden_causal_conv1d_ranks golden_flash_attention_ranks golden_flash_attention_ranks_sm90 golden_kda_ranks
  python_golden_test kda_adversarial_test kda_chains_test kda_chunks_test kda_counters_test kda_isolation_test
  kda_options_test kda_ranks_test kda_recurrent_run_test kda_relations_test kda_repeat_test sparse_options_test
  sparse_ranks_test templates_attention_compile_test templates_kda_compile_test
  templates_sparse_compile_test templates_test
  attention_block_tiles_test attention_block_sm90_test attention_block_warpgroups_test attention_warpgroups_backward_test
  attention_warpgroups_mods_backward_test attention_families_test)
list(JOIN LATHE_THOROUGH "$|^" LATHE_THOROUGH_PATTERN)
set(LATHE_THOROUGH_PATTERN "^${LATHE_THOROUGH_PATTERN}$")
file(WRITE ${CMAKE_BINARY_DIR}/thorough.txt "${LATHE_THOROUGH_PATTERN}\n")
add_custom_target(thorough_tests)
# The programs of all other tests. Neither is part of `all`, so that a run of chosen tests builds what it
# runs and no more (tests/selection.py).
add_custom_target(release_tests)

# lathe_test(NAME SOURCES... LIBRARIES...): a doctest program, registered with ctest as NAME.
function(lathe_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
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
    if(name MATCHES "${LATHE_THOROUGH_PATTERN}")
      add_dependencies(thorough_tests ${name})
    else()
      add_dependencies(release_tests ${name})
    endif()
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
