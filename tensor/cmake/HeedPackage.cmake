# `cpack -G DEB` in the build folder. A static heed gives one package, libheed-dev; a shared one two, as Debian splits them: libheedVERSION, which
# programs need to run, and libheed-dev.

set(CPACK_PACKAGE_VENDOR "The heed authors")
set(CPACK_PACKAGE_CONTACT "The heed authors")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "tensors, autograd and attention layers on a CPU")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libheed-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, library, CMake package and .pc file of heed, a C++20 framework for attention layers.")

# <heed/fmt.h> and <heed/gtest.h> are for those who have these already.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libfmt-dev, libgtest-dev")

if(BUILD_SHARED_LIBS)
  get_target_property(soversion heed SOVERSION)
  list(PREPEND CPACK_COMPONENTS_ALL runtime)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libheed${soversion})
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
  set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The shared library of heed, a C++20 framework for attention layers.")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libheed${soversion} (= ${PROJECT_VERSION})")
else()
  # An archive names no libraries, so these are named here: the ones that it was compiled against, up to the version that may break it. Debian's
  # compilers bring OpenMP.
  function(depend package version)
    string(REGEX MATCH "^[0-9]+" major ${version})
    math(EXPR next "${major} + 1")
    list(APPEND depends "${package} (>= ${version})" "${package} (<< ${next}~)")
    set(depends ${depends} PARENT_SCOPE)
  endfunction()
  set(depends)
  depend(libfmt-dev ${fmt_VERSION})
  depend(libhwy-dev ${hwy_VERSION})
  if(heed_onednn)
    depend(libdnnl-dev ${oneDNN_VERSION})
  endif()
  list(JOIN depends ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
endif()

include(CPack)
