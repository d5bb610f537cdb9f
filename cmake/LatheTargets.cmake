# The root of the source tree, also where sim/ alone is configured (cmake -S sim).
get_filename_component(LATHE_ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

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

# Optimisation: -O2, as -O3 takes a quarter more of the compiler's time and speeds up nothing that is
# measured here; the simulator's interpreter chooses its own (sim/core.cmake).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

# ccache keeps objects by their sources and headers. Depend mode reads the names of the headers from
# the compiler's own list, so that nothing is preprocessed twice; sloppiness is what ccache asks for
# before it keeps objects that use a precompiled header.
find_program(LATHE_CCACHE ccache)
if(LATHE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    ${LATHE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# cuda.h is the only vendor header (tests/layers.py): types and constants of the driver. It comes from
# the wheel that scripts/bootstrap unpacks where it did, else from a tool kit. NVRTC and NCCL are
# declared in abi/.
option(LATHE_NO_TOOLKIT "Use no tool kit of this machine: headers and NVRTC come from the wheels" OFF)
set(places ${LATHE_ROOT}/.deps/include)
if(NOT LATHE_NO_TOOLKIT)
  list(APPEND places $ENV{CUDA_HOME}/include /usr/local/cuda/include)
endif()
unset(LATHE_cuda_INCLUDE CACHE)  # what is there may have changed
find_path(LATHE_cuda_INCLUDE cuda.h PATHS ${places} NO_DEFAULT_PATH)
if(NOT LATHE_cuda_INCLUDE AND NOT LATHE_NO_TOOLKIT)
  find_path(LATHE_cuda_INCLUDE cuda.h)
endif()
if(NOT LATHE_cuda_INCLUDE)
  message(FATAL_ERROR "cuda.h not found in ${places}: run scripts/bootstrap, or set CUDA_HOME")
endif()
# What the build leaves finds the wheels' libraries by itself; what is installed brings them along.
if(EXISTS ${LATHE_ROOT}/.deps/lib)
  list(APPEND CMAKE_BUILD_RPATH ${LATHE_ROOT}/.deps/lib)
endif()
find_package(Threads REQUIRED)

add_library(lathe_plain_options INTERFACE)
target_include_directories(lathe_plain_options INTERFACE ${LATHE_ROOT} ${PROJECT_BINARY_DIR})
target_include_directories(lathe_plain_options SYSTEM INTERFACE
  ${LATHE_cuda_INCLUDE})
target_link_libraries(lathe_plain_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
# restrict, array-bounds, stringop-overread: g++ 12 sees overlaps and overruns in std::string that are
# not there (GCC bugs 105651, 105329).
target_compile_options(lathe_plain_options INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>
  $<$<BOOL:${LATHE_WERROR}>:-Werror>)
add_library(lathe_options INTERFACE)
target_link_libraries(lathe_options INTERFACE lathe_plain_options)
# enum: a C caller may pass any int where an enum stands; refusing it is the library's work and the
# tests', so looking at it must be allowed. null, alignment: to ask before every access takes two fifths of the
# compiler's time; the one ends in ASan's report anyway, the other is looked for by the fuzz targets.
if(LATHE_SANITIZE)
  target_compile_options(lathe_options INTERFACE -fsanitize=${LATHE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  if(LATHE_SANITIZE MATCHES "undefined")
    # Undefined behaviour is looked for in the library: in its tests that takes a third of the
    # compiler's time, for nothing that is shipped.
    target_compile_options(lathe_options INTERFACE -fno-sanitize=enum,null,alignment
      $<$<BOOL:$<TARGET_PROPERTY:LATHE_IS_TEST>>:-fno-sanitize=undefined>)
  endif()
  target_link_options(lathe_options INTERFACE -fsanitize=${LATHE_SANITIZE})
endif()

# lathe_precompile(TARGET OWNER HEADER [OPTION...]): the sources of TARGET read HEADER precompiled. OWNER
# names the target that holds the precompiled file, made with OPTIONs at the first call. Its users are
# compiled alike: g++ refuses some differences (-Winvalid-pch), and takes the level of optimisation from
# the precompiled file whatever the source is given.
option(LATHE_PRECOMPILE "Precompile the headers that most files use" ON)
function(lathe_precompile target owner header)
  if(NOT LATHE_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET ${owner})
    file(WRITE ${CMAKE_BINARY_DIR}/${owner}.cpp "")
    add_library(${owner} OBJECT ${CMAKE_BINARY_DIR}/${owner}.cpp)
    target_link_libraries(${owner} PRIVATE lathe_options)
    target_precompile_headers(${owner} PRIVATE ${LATHE_ROOT}/cmake/${header})
    target_compile_options(${owner} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# lathe_unity(TARGET [GROUP REGEX]...): sources of TARGET whose path matches REGEX are compiled as one
# unit, under the first group that matches; the others alone. Most of the compiler's time goes into
# templates of the standard library, CLI11 and JSON that every file would instantiate again. Two
# files of one group may not define the same name, not even in an unnamed namespace.
option(LATHE_UNITY "Compile related sources as one unit" ON)
function(lathe_unity target)
  if(NOT LATHE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  while(ARGN)
    list(POP_FRONT ARGN group pattern)
    set(members ${sources})
    list(FILTER members INCLUDE REGEX "${pattern}")
    if(NOT members)
      message(FATAL_ERROR "${target}: no source matches '${pattern}' of group ${group}")
    endif()
    list(REMOVE_ITEM sources ${members})
    set_source_files_properties(${members} PROPERTIES UNITY_GROUP ${target}_${group})
  endwhile()
endfunction()

# A launch clears and copies a dozen structs of some hundred bytes. For each g++ writes "rep stos" or
# "rep movs", whose start takes as long as 30 other instructions: plain stores are a quarter of the time.
set(LATHE_LAYER_OPTIONS)
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign LATHE_HAS_STRATEGY)
if(LATHE_HAS_STRATEGY)
  set(LATHE_LAYER_OPTIONS -mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign
    -mmemcpy-strategy=unrolled_loop:512:noalign,libcall:-1:noalign)
endif()

# lathe_layer(NAME SOURCES... LAYERS...): one folder of the library as a static archive, so that
# tests can reach inside; liblathe.so is made of all of them.
function(lathe_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LAYERS" ${ARGN})
  add_library(lathe_${name} STATIC ${arg_SOURCES})
  target_link_libraries(lathe_${name} PUBLIC lathe_options)
  target_compile_options(lathe_${name} PRIVATE ${LATHE_LAYER_OPTIONS})
  lathe_precompile(lathe_${name} lathe_layer_headers standard_headers.h ${LATHE_LAYER_OPTIONS})
  foreach(layer ${arg_LAYERS})
    target_link_libraries(lathe_${name} PUBLIC lathe_${layer})
  endforeach()
endfunction()
