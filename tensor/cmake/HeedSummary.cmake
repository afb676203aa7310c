# What was found and what will be built, in one look.

if(heed_onednn)
  set(onednn "oneDNN ${oneDNN_VERSION}")
else()
  set(onednn "none: f32 uses the portable kernels (${heed_onednn_reason})")
endif()
if(heed_openmp)
  set(threads "OpenMP ${OpenMP_CXX_VERSION}")
else()
  set(threads "one (HEED_WITH_OPENMP is off)")
endif()
set(library static)
if(BUILD_SHARED_LIBS)
  set(library shared)
endif()
set(parts library)
foreach(part TESTS EXAMPLES BENCH FUZZ)
  if(HEED_BUILD_${part})
    string(TOLOWER ${part} name)
    list(APPEND parts ${name})
  endif()
endforeach()
list(JOIN parts ", " parts)
set(build_type ${CMAKE_BUILD_TYPE})
if(HEED_SANITIZE)
  string(APPEND build_type ", -fsanitize=${HEED_SANITIZE}")
endif()

message(STATUS "heed ${PROJECT_VERSION}, ${library}
     compiler   ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${build_type}
     f32        ${onednn}
     threads    ${threads}
     libraries  fmt ${fmt_VERSION}, Highway ${hwy_VERSION}, nlohmann-json ${nlohmann_json_VERSION}
     builds     ${parts}")
