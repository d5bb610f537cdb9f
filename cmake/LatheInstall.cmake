# The installed package: lathe.h and its parts, lathe.hpp, liblathe.so, and what find_package(lathe) and pkg-config
# read. All paths follow the prefix. sim/install.cmake adds the simulator.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

install(TARGETS lathe EXPORT lathe-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/api/lathe.h ${PROJECT_SOURCE_DIR}/api/lathe.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/api/lathe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# What kernels of one's own include, and examples of them, to read: the library has the headers inside.
foreach(folder templates/lathe templates/common examples/own_kernels)
  get_filename_component(parent ${folder} DIRECTORY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe/${parent})
endforeach()
set(params ${PROJECT_SOURCE_DIR}/templates/params)
install(FILES ${params}/tensor_map.h ${params}/exact_sums.h
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe/templates/params)

# A compiler that came as a wheel is in no folder of the system: it is installed beside liblathe.so,
# where lathe looks for it, so that whoever runs the program finds it.
file(GLOB compiler ${PROJECT_SOURCE_DIR}/.deps/lib/libnvrtc.so.1[23]
  ${PROJECT_SOURCE_DIR}/.deps/lib/libnvrtc-builtins.so.*.*)
install(FILES ${compiler} DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lathe)
install(EXPORT lathe-targets NAMESPACE lathe:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lathe-config.cmake.in
  ${PROJECT_BINARY_DIR}/lathe-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lathe-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lathe-config.cmake
  ${PROJECT_BINARY_DIR}/lathe-config-version.cmake DESTINATION ${package})

# ${pcfiledir}: the package may be moved.
file(RELATIVE_PATH LATHE_PC_PREFIX
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/lathe.pc.in ${PROJECT_BINARY_DIR}/lathe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lathe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
