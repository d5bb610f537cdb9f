# What is the API's own, through lathe.h on the simulator.
foreach(name
    ranks_faults
    shard_prepare
    shard_rows
    )
  lathe_test(${name}_test SOURCES api/${name}_test.cpp LIBRARIES lathe_api_testing)
  set_tests_properties(${name}_test PROPERTIES LABELS end_to_end)
endforeach()

add_test(NAME package_test COMMAND ${Python3_EXECUTABLE}
  ${CMAKE_CURRENT_SOURCE_DIR}/package_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(NOT LATHE_SANITIZE)  # Python cannot load a library with a sanitizer
  add_test(NAME docs_test COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_SOURCE_DIR}/docs_test.py ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endif()
