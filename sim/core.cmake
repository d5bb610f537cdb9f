# lathe_sim_core: the PTX interpreter (sim/ptx, sim/exec, sim/check) and its tests.
#
# The files of sim/exec/isa are compiled once per instruction set, each time into a namespace of its
# own, and picked at run time (sim/exec/windows.cpp). Numbers must not depend on the choice: no
# contraction of a * b + c, no flushing of subnormals.
set(LATHE_SIM_ISA_SOURCES)
foreach(family access access_global access_shared bits bytes calls compare convert convert_float
        convert_half convert_integer float half integer math matrix memory mma mma_f64 mma_tile move
        run select strands table warp_ops wgmma)
  list(APPEND LATHE_SIM_ISA_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/exec/isa/${family}.cpp)
endforeach()
# These are rare or gain nothing from wide registers: compiled once, into the plain namespace.
set(LATHE_SIM_ONCE_SOURCES)
foreach(family isa/atomic/atomic isa/convert_fp8 isa/convert_rare isa/mma_modes isa/rare isa/stack isa/wmma async/bulk_ops
        async/cluster_ops async/copy_ops async/mbarrier_ops async/tensor_map_ops async/tensor_ops)
  list(APPEND LATHE_SIM_ONCE_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/exec/${family}.cpp)
endforeach()

# A simulator that is not optimised is of no use, so this holds in debug builds too; instrumented code
# takes too long to compile that way.
set(LATHE_SIM_OPTIMIZE -O3)
if(LATHE_SANITIZE)
  set(LATHE_SIM_OPTIMIZE -O1)
endif()

function(lathe_sim_isa name)
  add_library(lathe_sim_isa_${name} OBJECT ${LATHE_SIM_ISA_SOURCES})
  target_link_libraries(lathe_sim_isa_${name} PRIVATE lathe_options)
  target_compile_definitions(lathe_sim_isa_${name} PRIVATE SIM_ISA=${name})
  target_compile_options(lathe_sim_isa_${name} PRIVATE ${LATHE_SIM_OPTIMIZE} -ffp-contract=off -fno-math-errno
    -fno-trapping-math -fno-strict-aliasing ${ARGN})
endfunction()

# Sanitizers look at the source, which is one: they get the plain build alone.
# LATHE_SIM_WIDE=OFF builds that alone too: a third of the compile time while working on the interpreter.
option(LATHE_SIM_WIDE "Build the interpreter for AVX2 and AVX-512 as well" ON)
set(LATHE_SIM_X86_LEVELS OFF)
if(LATHE_SIM_WIDE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT LATHE_SANITIZE)
  set(LATHE_SIM_X86_LEVELS ON)
endif()
set(LATHE_SIM_ISA_OBJECTS $<TARGET_OBJECTS:lathe_sim_isa_base>)
lathe_sim_isa(base)
target_sources(lathe_sim_isa_base PRIVATE ${LATHE_SIM_ONCE_SOURCES})
if(LATHE_SIM_X86_LEVELS)
  # SIM_WIDE: without the rare forms, nor what they alone call; sim/exec/lanes.h.
  lathe_sim_isa(avx2 -march=x86-64-v3 -DSIM_WIDE -Wno-unused-function)
  lathe_sim_isa(avx512 -march=x86-64-v4 -mprefer-vector-width=512 -DSIM_WIDE -Wno-unused-function)
  list(APPEND LATHE_SIM_ISA_OBJECTS $<TARGET_OBJECTS:lathe_sim_isa_avx2>
    $<TARGET_OBJECTS:lathe_sim_isa_avx512>)
endif()

add_library(lathe_sim_core STATIC
  check/clocks.cpp
  check/definedness.cpp
  check/memory.cpp
  check/race.cpp
  check/race_access.cpp
  check/race_async.cpp
  check/race_borrow.cpp
  check/race_hidden.cpp
  check/race_launches.cpp
  check/race_mbarrier.cpp
  check/race_moves.cpp
  check/race_order.cpp
  check/race_report.cpp
  check/race_shadow.cpp
  check/race_touch.cpp
  check/race_world.cpp
  clock/engine.cpp
  clock/engine_units.cpp
  clock/kernel_time.cpp
  clock/listing.cpp
  clock/machine.cpp
  clock/markup.cpp
  clock/memory.cpp
  clock/opcodes.cpp
  clock/order.cpp
  clock/picture.cpp
  clock/placing.cpp
  clock/ptx_program.cpp
  clock/resident.cpp
  clock/roles.cpp
  clock/tools.cpp
  clock/walk/agreement.cpp
  clock/walk/sass_map.cpp
  clock/walk/sass_map_senses.cpp
  clock/walk/sass_map_uses.cpp
  clock/walk/progress.cpp
  clock/walk/search.cpp
  clock/walk/track.cpp
  clock/walk/walk.cpp
  exec/async/collisions.cpp
  exec/async/copies.cpp
  exec/async/mbarrier.cpp
  exec/async/memory.cpp
  exec/async/reduce.cpp
  exec/async/schedule.cpp
  exec/async/watch.cpp
  exec/barrier.cpp
  exec/block.cpp
  exec/cluster.cpp
  exec/calls.cpp
  exec/counters.cpp
  exec/dependents.cpp
  exec/findings.cpp
  exec/heap.cpp
  exec/host_threads.cpp
  exec/image.cpp
  exec/launch.cpp
  exec/line_counters.cpp
  exec/print.cpp
  exec/profile.cpp
  exec/region.cpp
  exec/report.cpp
  exec/sample.cpp
  exec/tensor_map.cpp
  exec/trace.cpp
  exec/undefined.cpp
  exec/wgmma.cpp
  exec/wgmma_operands.cpp
  exec/waiting.cpp
  exec/windows.cpp
  model/model.cpp
  ptx/decode/async.cpp
  ptx/decode/call.cpp
  ptx/decode/call_text.cpp
  ptx/decode/control.cpp
  ptx/decode/decode.cpp
  ptx/decode/inline.cpp
  ptx/decode/memory.cpp
  ptx/decode/move.cpp
  ptx/decode/operand.cpp
  ptx/decode/tensor.cpp
  ptx/decode/wide.cpp
  ptx/decode/wmma.cpp
  ptx/flow/flow.cpp
  ptx/flow/slots.cpp
  ptx/flow/wait_loops.cpp
  ptx/module.cpp
  ptx/opcodes/async.cpp
  ptx/opcodes/opcodes.cpp
  ptx/opcodes/table.cpp
  ptx/opcodes/tensor.cpp
  ptx/opcodes/wmma.cpp
  ptx/parse/body.cpp
  ptx/parse/lexer.cpp
  ptx/parse/parser.cpp
  ptx/parse/variable.cpp
  ${LATHE_SIM_ISA_OBJECTS})
target_link_libraries(lathe_sim_core PUBLIC lathe_options)
if(LATHE_SANITIZE)  # with headers of its own, as it alone is optimised
  lathe_precompile(lathe_sim_core lathe_sim_headers standard_headers.h ${LATHE_SIM_OPTIMIZE})
else()
  lathe_precompile(lathe_sim_core lathe_standard_headers standard_headers.h)
endif()
lathe_unity(lathe_sim_core
  decode "^ptx/decode/(async|call|control|decode|memory|move|operand|wide|wmma)[.]cpp$"
  ptx "^ptx/(decode/(call_text|inline)|flow/.*|module|opcodes/(opcodes|table)|parse/.*)[.]cpp$"
  check "^check/(clocks|race)"
  async "^exec/async/"
  exec "^exec/(barrier|block|cluster|counters|findings|heap|host_threads|image|launch|line_counters|print|profile|report|sample|tensor_map|trace|wgmma|windows)[.]cpp$")
target_compile_options(lathe_sim_core PRIVATE ${LATHE_SIM_OPTIMIZE} -ffp-contract=off -fno-strict-aliasing)
if(LATHE_SIM_X86_LEVELS)
  target_compile_definitions(lathe_sim_core PRIVATE SIM_HAVE_X86_LEVELS)
endif()

if(LATHE_TESTS)
  enable_testing()
  foreach(path async atomic bits bulk calls checks/check clock/clock_barriers clock/clock_cluster clock/clock_copies clock/clock_cut clock/clock_ends
          clock/clock_memory clock/clock_registers clock/clock_schedules clock/clock_twins
          clock/clock_search clock/clock_stuck clock/clock_tensor clock/clock_units clock/clock_walk clock/clock_waves cluster collectives control
          convert float heap integer checks/litmus checks/litmus_async checks/litmus_block math matrix mma wmma model
          sample nvrtc opcodes waits parser print checks/race checks/race_async checks/race_dependent checks/race_streams rare checks/short_address
          tensor_copy tensor_map checks/threads checks/memory traffic checks/void checks/none wgmma wgmma_check)
    get_filename_component(topic ${path} NAME)
    lathe_test(sim_${topic}_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/${path}_test.cpp
      LIBRARIES lathe_sim_core)
  endforeach()
  lathe_test(sim_defects_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/checks/defects_test.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/checks/defect_case.cpp LIBRARIES lathe_sim_core)
  target_compile_definitions(sim_defects_test PRIVATE
    SIM_DEFECTS="${CMAKE_CURRENT_SOURCE_DIR}/tests/defects")
  foreach(topic gemm gemm_mutation)
    lathe_test(sim_${topic}_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/${topic}_test.cpp
      LIBRARIES lathe_sim_core)
    target_compile_definitions(sim_${topic}_test PRIVATE SIM_CUDA_INCLUDE="${LATHE_cuda_INCLUDE}"
      SIM_GEMM_SOURCES="${CMAKE_CURRENT_SOURCE_DIR}/tests/gemm")
  endforeach()
  foreach(topic groups grids samples matrices mistakes)
    lathe_test(sim_${topic}_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/programs/${topic}_test.cpp
      LIBRARIES lathe_sim_core)
    target_compile_definitions(sim_${topic}_test PRIVATE SIM_CUDA_INCLUDE="${LATHE_cuda_INCLUDE}"
      SIM_PROGRAMS="${CMAKE_CURRENT_SOURCE_DIR}/tests/programs")
    lathe_parts(sim_${topic} sim_${topic}_test 3)
  endforeach()
  target_compile_definitions(sim_clock_cut_test PRIVATE SIM_CUDA_INCLUDE="${LATHE_cuda_INCLUDE}"
    SIM_GEMM_SOURCES="${CMAKE_CURRENT_SOURCE_DIR}/tests/gemm")
  foreach(topic schedules walk)
    target_compile_definitions(sim_clock_${topic}_test PRIVATE SIM_CUDA_INCLUDE="${LATHE_cuda_INCLUDE}"
      SIM_CLOCK_SOURCES="${CMAKE_CURRENT_SOURCE_DIR}/tests/clock")
  endforeach()
  add_test(NAME sim_coverage COMMAND ${Python3_EXECUTABLE}
    ${CMAKE_CURRENT_SOURCE_DIR}/tests/coverage.py ${CMAKE_CURRENT_SOURCE_DIR})
  add_executable(sim_fuzz tests/fuzz/main.cpp tests/fuzz/parse.cpp)
  target_link_libraries(sim_fuzz PRIVATE lathe_sim_core lathe_options)
  set_target_properties(sim_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME sim_fuzz COMMAND sim_fuzz ${CMAKE_CURRENT_SOURCE_DIR}/tests/opcodes.txt)
  if(NOT LATHE_SANITIZE STREQUAL "thread")
    set_tests_properties(sim_fuzz PROPERTIES LABELS sanitized)
    add_dependencies(sanitized_tests sim_fuzz)
  endif()
  target_compile_definitions(sim_opcodes_test PRIVATE
    SIM_OPCODES="${CMAKE_CURRENT_SOURCE_DIR}/tests/opcodes.txt")
  foreach(topic nvrtc print)
    target_compile_definitions(sim_${topic}_test PRIVATE SIM_CUDA_INCLUDE="${LATHE_cuda_INCLUDE}")
  endforeach()
  lathe_takes(sim_clock_barriers_test 8)
  lathe_takes(sim_clock_tensor_test 32)
  lathe_takes(sim_clock_units_test 74)
endif()
