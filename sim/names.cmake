# build/sim/names/*.h: names that NVIDIA's headers declare, as lists of macros. CMake reads the headers when it configures,
# and again when one of them has changed, so a newer header brings its own names.

set(LATHE_SIM_NAMES ${CMAKE_BINARY_DIR}/sim/names)

# sim_read(OUT HEADERS...): the texts of the headers that are there.
function(sim_read out)
  set(all "")
  foreach(header IN LISTS ARGN)
    if(EXISTS ${header})
      file(READ ${header} text)
      string(APPEND all "${text}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    else()
      message(STATUS "sim: no ${header}: the simulator exports none of its names beyond those that it has")
    endif()
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# sim_find(OUT TEXT PATTERN NAME): appends NAME, with groups of PATTERN, for each match in the text.
function(sim_find out text pattern name)
  string(REGEX MATCHALL "${pattern}" found "${text}")
  list(TRANSFORM found REPLACE "${pattern}" "${name}")
  set(${out} ${${out}} ${found} PARENT_SCOPE)
endfunction()

# sim_functions(OUT TEXT CALL PREFIX TWIN): all functions that a header has: those that it declares with the word CALL, older
# forms that it gives a macro's name, and the twins whose default stream is the thread's own (the macros TWIN_PTDS, TWIN_PTSZ).
# Sorted, so that _v3 comes behind _v2.
function(sim_functions out text call prefix twin)
  set(name "${prefix}[A-Z][A-Za-z0-9_]*")
  set(names)
  sim_find(names "${text}" "${call}[ \n]+(${name})[ \n]*\\(" "\\1")
  sim_find(names "${text}" "#[ ]*define[ ]+${name}[ ]+(${name}_v[0-9][a-z_]*)" "\\1")
  sim_find(names "${text}" "${twin}_PTDS\\((${name})\\)" "\\1_ptds")
  sim_find(names "${text}" "${twin}_PTSZ\\((${name})\\)" "\\1_ptsz")
  list(REMOVE_DUPLICATES names)
  list(SORT names)
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# sim_names(FILE MACRO NAMES...): a header with MACRO(X), which hands each name to X.
function(sim_names file macro)
  list(REMOVE_DUPLICATES ARGN)
  list(TRANSFORM ARGN REPLACE "(.+)" " \\\\\n  X(\\1)" OUTPUT_VARIABLE rows)
  list(JOIN rows "" rows)
  file(CONFIGURE OUTPUT ${LATHE_SIM_NAMES}/${file} CONTENT "#pragma once\n#define ${macro}(X)${rows}\n" @ONLY)
endfunction()

sim_read(driver ${LATHE_cuda_INCLUDE}/cuda.h)
sim_functions(functions "${driver}" CUDAAPI cu __CUDA_API)
sim_names(driver_functions.h SIM_DRIVER_FUNCTIONS ${functions})
set(errors)
sim_find(errors "${driver}" "(CUDA_SUCCESS|CUDA_ERROR_[A-Z0-9_]+)[ ]+=" "\\1")
sim_names(driver_errors.h SIM_DRIVER_ERRORS ${errors})

sim_read(runtime ${LATHE_cuda_INCLUDE}/cuda_runtime_api.h ${LATHE_cuda_INCLUDE}/cuda_gl_interop.h
  ${LATHE_cuda_INCLUDE}/cuda_egl_interop.h ${LATHE_cuda_INCLUDE}/cuda_vdpau_interop.h)
sim_functions(functions "${runtime}" CUDARTAPI cuda __CUDART_API)
list(REMOVE_ITEM functions cudaWGLGetDevice)  # of Windows
# No header declares these, which code that nvcc makes may call.
list(APPEND functions __cudaRegisterHostVar __cudaRegisterUnifiedTable)
sim_names(runtime_functions_13.h SIM_RUNTIME_FUNCTIONS ${functions} __cudaGetProcAddress)
# The headers of CUDA 13 have these no more.
sim_names(runtime_functions_12.h SIM_RUNTIME_FUNCTIONS ${functions} cudaGraphAddNode_v2 cudaGraphGetEdges_v2
  cudaGraphNodeGetDependencies_v2 cudaGraphNodeGetDependentNodes_v2 cudaGraphRemoveDependencies_v2
  cudaLaunchCooperativeKernelMultiDevice cudaSetDoubleForDevice cudaSetDoubleForHost
  cudaSignalExternalSemaphoresAsync_v2 cudaSignalExternalSemaphoresAsync_v2_ptsz
  cudaStreamUpdateCaptureDependencies_v2 cudaStreamUpdateCaptureDependencies_v2_ptsz
  cudaWaitExternalSemaphoresAsync_v2 cudaWaitExternalSemaphoresAsync_v2_ptsz)
sim_read(types ${LATHE_ROOT}/abi/driver_types.h)
set(errors)
sim_find(errors "${types}" "(cudaSuccess|cudaError[A-Za-z0-9]+) =" "\\1")
sim_names(runtime_errors.h SIM_RUNTIME_ERRORS ${errors})
