# What the library links. CONTRIBUTING.md gives each one's reason.

find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json REQUIRED)

set(heed_openmp)
if(HEED_WITH_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(FATAL_ERROR "heed: no OpenMP for ${CMAKE_CXX_COMPILER}. Install it (clang: libomp), or build for one thread with -DHEED_WITH_OPENMP=OFF.")
  endif()
  set(heed_openmp OpenMP::OpenMP_CXX)
endif()

# The oldest oneDNN whose matrix product and softmax heed calls.
set(heed_onednn_minimum 2.6)
set(heed_onednn)
set(heed_onednn_reason "as asked for by HEED_WITH_ONEDNN")
string(TOUPPER "${HEED_WITH_ONEDNN}" with_onednn)
if(with_onednn STREQUAL "AUTO" OR with_onednn)
  find_package(oneDNN QUIET)
  if(NOT oneDNN_FOUND)
    set(heed_onednn_reason "oneDNN was not found")
  elseif(oneDNN_VERSION VERSION_LESS heed_onednn_minimum)
    set(heed_onednn_reason "oneDNN ${oneDNN_VERSION} is older than ${heed_onednn_minimum}")
  else()
    set(heed_onednn oneDNN::oneDNN)
  endif()
  if(NOT heed_onednn AND NOT with_onednn STREQUAL "AUTO")
    message(FATAL_ERROR "heed: HEED_WITH_ONEDNN=${HEED_WITH_ONEDNN}, but ${heed_onednn_reason}. Run ./setup.sh, or build with the portable kernels: "
      "-DHEED_WITH_ONEDNN=OFF.")
  endif()
endif()
