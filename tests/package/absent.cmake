# A folder of headers that a user of heed need not have: it comes first in the include path, and whoever includes one of them all the same stops.
# For the users' projects in this folder; those that have such a library name it before, with `set(present fmt)`.
foreach(header IN ITEMS fmt/core.h fmt/format.h hwy/highway.h nlohmann/json.hpp oneapi/dnnl/dnnl.hpp oneapi/dnnl/dnnl.h omp.h gtest/gtest.h)
  string(REGEX MATCH "^[a-z]+" library ${header})
  if(NOT library IN_LIST present)
    file(WRITE ${CMAKE_BINARY_DIR}/absent/${header} "#error ${header} is not there\n")
  endif()
endforeach()
include_directories(BEFORE ${CMAKE_BINARY_DIR}/absent)
