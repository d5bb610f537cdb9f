# build/sim/libcuda.so.1 and build/sim/libnccl.so.2 (sim/driver, sim/nccl) and their tests.

# The targets that a program loads in place of NVIDIA's libraries: what the target `simulator` builds
# and its component installs.
set(LATHE_SIM_DROP_INS lathe_sim_cuda lathe_sim_nccl)

# sim_shared(TARGET NAME VERSION MAP SOURCES...): build/sim/lib<NAME>.so.<VERSION>, exporting what MAP
# says. Threads of the library may outlive dlclose, so it is never unmapped.
function(sim_shared target name version map)
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE lathe_options)
  lathe_precompile(${target} lathe_standard_headers standard_headers.h)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map}
    -Wl,-soname,lib${name}.so.${version} -Wl,-z,nodelete)
  set_target_properties(${target} PROPERTIES PREFIX lib OUTPUT_NAME ${name} SUFFIX .so.${version}
    LINK_DEPENDS ${map} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim)
endfunction()

set(driver ${CMAKE_CURRENT_SOURCE_DIR}/driver)
sim_shared(lathe_sim_cuda cuda 1 ${driver}/libcuda.map
  ${driver}/graph/capture.cpp ${driver}/compat.cpp ${driver}/context.cpp ${driver}/memory/copy.cpp
  ${driver}/device.cpp ${driver}/errors.cpp ${driver}/event.cpp ${driver}/code/fat_binary.cpp ${driver}/code/ptxas.cpp ${driver}/code/unpack.cpp ${driver}/code/function.cpp
  ${driver}/graph/graph.cpp ${driver}/graph/graph_branches.cpp ${driver}/graph/graph_params.cpp ${driver}/graph/graph_upload.cpp ${driver}/memory/host_memory.cpp ${driver}/code/image.cpp ${driver}/code/launch.cpp
  ${driver}/code/library.cpp ${driver}/memory/memory.cpp ${driver}/code/module.cpp ${driver}/code/occupancy.cpp ${driver}/code/request.cpp
  ${driver}/options.cpp ${driver}/order.cpp ${driver}/per_thread.cpp ${driver}/memory/pointer.cpp ${driver}/memory/pool.cpp
  ${driver}/primary.cpp ${driver}/proc_address.cpp ${driver}/report/report.cpp ${driver}/report/report_clock.cpp ${driver}/report/report_launch.cpp ${driver}/report/launch_event.cpp ${driver}/report/model_time.cpp ${driver}/report/json_line.cpp ${driver}/code/sampled.cpp ${driver}/state.cpp ${driver}/submit.cpp
  ${driver}/stream.cpp ${driver}/symbols.cpp ${driver}/code/tensor_map.cpp ${driver}/report/timeline.cpp ${driver}/report/timeline_export.cpp ${driver}/report/timeline_picture.cpp ${driver}/memory/transfer.cpp ${driver}/unsupported.cpp ${driver}/graph/user_object.cpp ${driver}/worker.cpp
  ${driver}/context_config.cpp ${driver}/memory/copy_3d.cpp ${driver}/device_info.cpp
  ${driver}/graph/graph_nodes.cpp ${driver}/code/link.cpp ${driver}/memory/managed.cpp ${driver}/memory/peer.cpp
  ${driver}/stream_attribute.cpp ${driver}/memory/stream_memory.cpp ${driver}/memory/virtual_memory.cpp)
target_link_libraries(lathe_sim_cuda PRIVATE lathe_sim_core ${CMAKE_DL_LIBS})
lathe_unity(lathe_sim_cuda
  graphs "/(graph|graph_branches|capture|event|order|submit|worker)[.]cpp$"
  memory "/(memory|host_memory|managed|pool|copy|transfer|virtual_memory|peer|pointer)[.]cpp$"
  modules "/(module|library|link|image|fat_binary|unpack|ptxas|function|launch|sampled|tensor_map)[.]cpp$"
  contexts "/driver/(report/)?(context|context_config|device|device_info|json_line|options|primary|report|report_launch|state|timeline|user_object)[.]cpp$")

set(nccl ${CMAKE_CURRENT_SOURCE_DIR}/nccl)
sim_shared(lathe_sim_nccl nccl 2 ${nccl}/libnccl.map
  ${nccl}/arrival.cpp ${nccl}/call.cpp ${nccl}/collectives.cpp ${nccl}/comm.cpp ${nccl}/group.cpp ${nccl}/init.cpp
  ${nccl}/match.cpp ${nccl}/progress.cpp ${nccl}/reduce.cpp ${nccl}/state.cpp ${nccl}/table.cpp
  ${nccl}/timeline.cpp ${nccl}/traffic.cpp ${nccl}/transfer.cpp)
lathe_unity(lathe_sim_nccl all "/nccl/")

add_custom_target(simulator DEPENDS ${LATHE_SIM_DROP_INS})

# The wheel of the simulator. Once a driver is loaded as libcuda.so.1, a later search for that name in
# the same process finds it, and takes it for a GPU's: in a wheel the libraries have names of their own.
if(SKBUILD)
  foreach(target ${LATHE_SIM_DROP_INS})
    target_link_options(${target} PRIVATE -Wl,-soname,${target}.so -static-libstdc++ -static-libgcc)
    install(TARGETS ${target} LIBRARY DESTINATION lib/sim COMPONENT python_sim)
  endforeach()
endif()

# Tests are ordinary clients: they open the built libraries by path.
function(sim_client_test name)
  lathe_test(${name} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/driver/${name}.cpp ${ARGN})
  target_compile_definitions(${name} PRIVATE SIM_LIBRARY_DIR="${CMAKE_BINARY_DIR}/sim")
  add_dependencies(${name} ${LATHE_SIM_DROP_INS})
endfunction()
if(LATHE_TESTS)
  foreach(test driver_clock_test driver_context_test driver_dependent_test driver_fat_binaries_test driver_fork_test driver_graph_test driver_graph_nodes_test driver_launch_test driver_link_test driver_memory_test
      driver_module_test driver_options_test driver_overlap_test driver_report_test driver_sampled_test driver_stream_test driver_tensor_map_test driver_peer_test driver_races_test driver_registers_test driver_resources_test driver_sharing_test driver_timeline_launches_test driver_timeline_test driver_user_object_test driver_virtual_memory_test nccl_collectives_test nccl_errors_test nccl_graph_test nccl_join_test nccl_pairs_test)
    sim_client_test(${test})
  endforeach()
  lathe_test(driver_model_time_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/driver/model_time_test.cpp
    ${driver}/report/model_time.cpp)
  lathe_test(driver_timeline_picture_test SOURCES
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/driver/timeline_picture_test.cpp ${driver}/report/timeline_picture.cpp
    ${driver}/report/json_line.cpp ${CMAKE_CURRENT_SOURCE_DIR}/clock/markup.cpp)
  if(PROJECT_IS_TOP_LEVEL)
    add_test(NAME sim_install COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/install_test.py
      ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${LATHE_cuda_INCLUDE} ${CMAKE_C_COMPILER})
  endif()
endif()
