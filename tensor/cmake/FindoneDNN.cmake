# Finds oneDNN by its header and library, and reads the version from its header.
# oneDNN's own package files are no help: those of Debian 12 fail without OpenCL headers, and none accepts a range over major versions.
#
# Gives oneDNN_FOUND, oneDNN_VERSION and the target oneDNN::oneDNN.

find_path(oneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(oneDNN_LIBRARY dnnl)
mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)

if(oneDNN_INCLUDE_DIR)
  set(oneDNN_VERSION)
  file(STRINGS ${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  foreach(part MAJOR MINOR PATCH)
    if(lines MATCHES "DNNL_VERSION_${part} +([0-9]+)")
      list(APPEND oneDNN_VERSION ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN oneDNN_VERSION "." oneDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(oneDNN REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR VERSION_VAR oneDNN_VERSION)

if(oneDNN_FOUND AND NOT TARGET oneDNN::oneDNN)
  add_library(oneDNN::oneDNN UNKNOWN IMPORTED)
  set_target_properties(oneDNN::oneDNN PROPERTIES IMPORTED_LOCATION "${oneDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${oneDNN_INCLUDE_DIR}")
endif()
