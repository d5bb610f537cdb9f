# What is the API's own, through lathe.h on the simulator.
foreach(name
    ranks_faults
    shard_prepare
    shard_rows
    )
  lathe_test(${name}_test SOURCES api/${name}_test.cpp LIBRARIES lathe_api_testing)
  set_tests_properties(${name}_test PROPERTIES LABELS end_to_end)
endforeach()
