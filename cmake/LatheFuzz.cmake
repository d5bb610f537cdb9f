# Fuzz targets: parsers of what comes from outside, under clang's libFuzzer with ASan and UBSan, beside
# whatever compiler builds the rest. tests/fuzz/README.md says how to add one and how to run one for hours.

# Whether a clang++ with its fuzzer runtime is there; if not, the reason.
function(lathe_find_fuzzer)
  if(DEFINED LATHE_FUZZ_MISSING)
    return()
  endif()
  find_program(LATHE_CLANGXX NAMES clang++ clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19)
  set(missing "")
  if(NOT LATHE_CLANGXX)
    set(missing "there is no clang++ (remedy: apt-get install clang libclang-rt-dev)")
  else()
    set(probe ${CMAKE_BINARY_DIR}/fuzz/probe)
    file(WRITE ${probe}.cpp "#include <cstddef>\n#include <cstdint>\n"
      "extern \"C\" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n")
    execute_process(COMMAND ${LATHE_CLANGXX} -fsanitize=fuzzer,address,undefined ${probe}.cpp -o ${probe}
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
      set(missing "${LATHE_CLANGXX} does not link a fuzzer (remedy: apt-get install libclang-rt-dev)")
    endif()
  endif()
  if(missing)
    message(STATUS "Fuzz targets are left out: ${missing}")
    set(LATHE_FUZZ_MISSING "${missing}" PARENT_SCOPE)  # asked again when configured again
  else()
    message(STATUS "Fuzz targets are built with ${LATHE_CLANGXX}")
    set(LATHE_FUZZ_MISSING "" CACHE INTERNAL "Why there are no fuzz targets")
  endif()
endfunction()

# All of them: what scripts/test --sanitizers builds. The demo and the release tests need no clang.
add_custom_target(fuzzers)
if(NOT LATHE_SANITIZE)
  lathe_find_fuzzer()
endif()

# One instrumented object for each source, whichever targets need it.
function(lathe_fuzz_object source output)
  file(RELATIVE_PATH stem ${PROJECT_SOURCE_DIR} ${source})
  set(object ${CMAKE_BINARY_DIR}/fuzz/objects/${stem}.o)
  set(${output} ${object} PARENT_SCOPE)
  get_property(known GLOBAL PROPERTY LATHE_FUZZ_OBJECTS)
  if(object IN_LIST known)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY LATHE_FUZZ_OBJECTS ${object})
  set(werror $<$<BOOL:${LATHE_WERROR}>:-Werror>)
  get_filename_component(folder ${object} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${LATHE_CLANGXX} -std=c++20 -O1 -g1 -fno-omit-frame-pointer
      -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-sanitize=enum
      -Wall -Wextra ${werror} -I${PROJECT_SOURCE_DIR} -isystem ${LATHE_cuda_INCLUDE}
      -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "Instrumenting ${stem}" VERBATIM
    COMMAND_EXPAND_LISTS)
endfunction()

# lathe_fuzz(NAME SOURCES source... [LIBRARIES target...] [RUNS n] [LENGTH bytes]): builds
# tests/fuzz/<NAME>_fuzz.cpp and the named sources (from the root) with a fuzzer's instruments, links
# them with libraries of this build as they are, and adds the test fuzz_<NAME>: n inputs, always the
# same, grown from the files of tests/fuzz/corpus/<NAME>.
function(lathe_fuzz name)
  cmake_parse_arguments(arg "" "RUNS;LENGTH" "SOURCES;LIBRARIES" ${ARGN})
  if(LATHE_SANITIZE)  # the targets bring sanitizers of their own, once is enough
    return()
  endif()
  if(LATHE_FUZZ_MISSING)
    add_test(NAME fuzz_${name} CONFIGURATIONS Fuzz COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${LATHE_FUZZ_MISSING}")
    set_tests_properties(fuzz_${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped" LABELS fuzz)
    return()
  endif()
  if(NOT arg_RUNS)
    set(arg_RUNS 20000)
  endif()
  if(NOT arg_LENGTH)
    set(arg_LENGTH 4096)
  endif()
  set(objects "")
  foreach(source tests/fuzz/${name}_fuzz.cpp ${arg_SOURCES})
    lathe_fuzz_object(${PROJECT_SOURCE_DIR}/${source} object)
    list(APPEND objects ${object})
  endforeach()
  set(libraries "")
  foreach(library ${arg_LIBRARIES})
    list(APPEND libraries $<TARGET_FILE:${library}>)
  endforeach()
  set(program ${CMAKE_BINARY_DIR}/fuzz/${name}_fuzz)
  # A unit of the libraries (lathe_unity) may hold a named source beside others that are needed. The
  # instrumented object comes first on the line, and the first definition is the one that is used.
  add_custom_command(OUTPUT ${program}
    COMMAND ${LATHE_CLANGXX} -fsanitize=fuzzer,address,undefined ${objects} -Wl,--allow-multiple-definition
      -Wl,--start-group ${libraries}
      -Wl,--end-group -Wl,-rpath,${CMAKE_LIBRARY_OUTPUT_DIRECTORY} -lpthread -ldl -o ${program}
    DEPENDS ${objects} ${arg_LIBRARIES} COMMENT "Linking fuzz target ${name}" VERBATIM)
  add_custom_target(fuzz_${name} DEPENDS ${program})
  add_dependencies(fuzzers fuzz_${name})

  # The seeds by name and not as a folder: a fuzzer writes what it finds into the first folder it gets.
  file(GLOB seeds CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}/*)
  list(JOIN seeds "," seeds)
  set(dictionary ${PROJECT_SOURCE_DIR}/tests/fuzz/${name}.dict)
  set(options -runs=${arg_RUNS} -seed=1 -max_len=${arg_LENGTH} -timeout=10 -rss_limit_mb=1024
    -artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/${name}-)
  if(seeds)
    list(APPEND options -seed_inputs=${seeds})
  endif()
  if(EXISTS ${dictionary})
    list(APPEND options -dict=${dictionary})
  endif()
  add_test(NAME fuzz_${name} CONFIGURATIONS Fuzz COMMAND ${program} ${options})
  set_tests_properties(fuzz_${name} PROPERTIES TIMEOUT 300 LABELS fuzz)
endfunction()
