# build/sim/libcudart.so.13 and .12 (sim/runtime): the CUDA runtime on the driver's documented calls.
# One source; the two differ in their versioned symbols and in the calls that CUDA 13 changed.
set(runtime ${CMAKE_CURRENT_SOURCE_DIR}/runtime)
add_library(lathe_sim_runtime OBJECT ${runtime}/copy.cpp ${runtime}/copy_2d.cpp
  ${runtime}/device.cpp ${runtime}/direct.cpp ${runtime}/driver.cpp ${runtime}/entry_point.cpp
  ${runtime}/error.cpp ${runtime}/error_names.cpp ${runtime}/fat_binary.cpp ${runtime}/function.cpp ${runtime}/graph.cpp
  ${runtime}/launch.cpp ${runtime}/memory.cpp ${runtime}/peer.cpp ${runtime}/registry.cpp
  ${runtime}/stream.cpp ${runtime}/symbol.cpp)
target_link_libraries(lathe_sim_runtime PRIVATE lathe_options)
set_target_properties(lathe_sim_runtime PROPERTIES POSITION_INDEPENDENT_CODE ON)
lathe_precompile(lathe_sim_runtime lathe_standard_headers standard_headers.h)
lathe_unity(lathe_sim_runtime all "/runtime/")
foreach(version 12 13)
  set(map ${CMAKE_CURRENT_BINARY_DIR}/libcudart.${version}.map)
  configure_file(${runtime}/libcudart.map.in ${map} @ONLY)
  sim_shared(lathe_sim_cudart${version} cudart ${version} ${map} ${runtime}/version_${version}.cpp
    ${runtime}/unsupported.cpp $<TARGET_OBJECTS:lathe_sim_runtime>)
  target_compile_definitions(lathe_sim_cudart${version} PRIVATE SIM_CUDART=${version})
endforeach()
list(APPEND LATHE_SIM_DROP_INS lathe_sim_cudart12 lathe_sim_cudart13)
add_dependencies(simulator lathe_sim_cudart12 lathe_sim_cudart13)

if(LATHE_TESTS)
  foreach(test runtime_calls_test runtime_code_test runtime_process_test runtime_streams_test)
    lathe_test(${test} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/runtime/${test}.cpp)
    target_compile_definitions(${test} PRIVATE SIM_LIBRARY_DIR="${CMAKE_BINARY_DIR}/sim")
    add_dependencies(${test} lathe_sim_cuda lathe_sim_cudart12 lathe_sim_cudart13)
  endforeach()
  add_test(NAME runtime_exports COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/runtime/exports_test.py ${CMAKE_BINARY_DIR}/sim)
  set_tests_properties(runtime_exports PROPERTIES SKIP_RETURN_CODE 77)

  # Programs as anybody builds them, where there is nvcc.
  foreach(program algorithms errors groups_reduction linked own_streams stream_pipeline
      tma_wgmma_gemm variables)
    add_test(NAME sim_program_${program} COMMAND ${Python3_EXECUTABLE}
      ${CMAKE_CURRENT_SOURCE_DIR}/tests/runtime/programs/program_test.py ${program} ${CMAKE_BINARY_DIR}/sim
      ${CMAKE_BINARY_DIR}/sim/programs)
    set_tests_properties(sim_program_${program} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
  lathe_takes(sim_program_algorithms 15)
endif()
