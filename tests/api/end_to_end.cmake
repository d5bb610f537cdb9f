# The families' tests that are not in ops/ yet, through lathe.h on the simulator.
target_sources(lathe_harness PRIVATE
  api/conv_case.cpp
  api/conv_ranks.cpp
  api/kda_case.cpp
  api/kda_chunked_case.cpp
  api/kda_options.cpp
  api/kda_ranks.cpp)

foreach(name
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
    )
  lathe_test(${name}_test SOURCES api/${name}_test.cpp LIBRARIES lathe_api_testing)
  set_tests_properties(${name}_test PROPERTIES LABELS end_to_end)
endforeach()

# Combinations of options: the release suite has the first part of each.
lathe_parts(kda_options kda_options_test 15 FROM 1)

add_test(NAME package_test COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_SOURCE_DIR}/package_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(NOT LATHE_SANITIZE)  # Python cannot load a library with a sanitizer
  add_test(NAME docs_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_SOURCE_DIR}/docs_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endif()
