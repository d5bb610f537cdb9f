# The whole library through lathe.h, on the simulator (LATHE_TEST_DEVICE=cuda: on a GPU).
find_package(nlohmann_json REQUIRED)

add_library(lathe_api_testing STATIC
  api/attention_case.cpp
  api/attention_check.cpp
  api/attention_options.cpp
  api/attention_ranks.cpp
  api/conv_case.cpp
  api/conv_ranks.cpp
  api/covering.cpp
  api/far_memory.cpp
  api/kda_case.cpp
  api/kda_chunked_case.cpp
  api/kda_options.cpp
  api/kda_ranks.cpp
  api/large_attention.cpp
  api/rank_calls.cpp
  api/session.cpp
  api/sparse_case.cpp
  api/sparse_options.cpp
  )
lathe_compile_fast(lathe_api_testing)
lathe_precompile(lathe_api_testing lathe_quick_headers standard_headers.h)
target_link_libraries(lathe_api_testing PUBLIC lathe lathe_options nlohmann_json::nlohmann_json)
# Compiled kernels are shared by the tests and kept between runs; keys are content.
target_compile_definitions(lathe_api_testing PRIVATE
  LATHE_TEST_CACHE_DIR="${CMAKE_BINARY_DIR}/test-cache")

foreach(name
    attention_backward
    attention_block
    attention_counters
    attention_decode
    attention_dispatch
    attention_f32
    attention_heads
    attention_mods
    attention_options
    attention_ranks
    attention_ranks_counters
    attention_repeat
    attention_ring
    attention_snippets
    conv_counters
    conv_graph
    conv_numerics
    conv_offsets
    conv_ranks
    conv_update
    kda_adversarial
    kda_counters
    kda_isolation
    kda_layer_ranks
    kda_offsets
    kda_options
    kda_ranks
    kda_recurrent_run
    kda_relations
    kda_repeat
    ranks_faults
    shard_prepare
    shard_rows
    sparse_options
    sparse_ranks
    sparse_repeat
    sparse_run
    sparse_shards
    sparse_traffic
    )
  lathe_test(${name}_test SOURCES api/${name}_test.cpp LIBRARIES lathe_api_testing)
  set_tests_properties(${name}_test PROPERTIES LABELS end_to_end)
endforeach()

target_link_libraries(attention_dispatch_test PRIVATE lathe_collective)  # the plan's own bytes
target_link_libraries(attention_counters_test PRIVATE lathe_ops)  # what the choice counts on
target_compile_definitions(attention_counters_test PRIVATE
  LATHE_TEST_CACHE_DIR="${CMAKE_BINARY_DIR}/test-cache")

# Combinations of options: the release suite has the first part of each.
lathe_parts(attention_options attention_options_test 8 FROM 1)
lathe_parts(kda_options kda_options_test 15 FROM 1)
lathe_parts(sparse_options sparse_options_test 16 FROM 1)

add_test(NAME package_test COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_SOURCE_DIR}/package_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(NOT LATHE_SANITIZE)  # Python cannot load a library with a sanitizer
  add_test(NAME docs_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_SOURCE_DIR}/docs_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endif()
