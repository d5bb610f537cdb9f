# The simulator as a component of its own: cmake --install BUILD --component simulator. Any prefix will do:
# the libraries look for nothing but each other, by name. lib/lathe/sim is in no search path, and is where
# the library lathe looks (device/driver.cpp), whatever the system calls its library folder.
install(TARGETS ${LATHE_SIM_DROP_INS} LIBRARY DESTINATION lib/lathe/sim COMPONENT simulator)
install(FILES ${LATHE_ROOT}/sim/README.md ${LATHE_ROOT}/LICENSE DESTINATION share/doc/lathe-simulator
  COMPONENT simulator)
