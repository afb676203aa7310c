# Installs the library, its public headers and a CMake package.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Kernels and what formats error texts are private: nothing that is installed includes them, which a test checks.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/tensor/*.h ${PROJECT_SOURCE_DIR}/autograd/*.h ${PROJECT_SOURCE_DIR}/nn/*.h)
list(FILTER headers EXCLUDE REGEX "^tensor/kernels/|^tensor/raise\\.h$|/ops/|-inl\\.h$")
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  if(header IN_LIST headers_at_top)
    set(folder)
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/${folder})
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
install(TARGETS heed EXPORT heed INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT heed NAMESPACE heed:: FILE heedTargets.cmake DESTINATION ${package_dir})

# What a user's program has to link beside a static heed; a shared one brings it along.
set(heed_config_dependencies)
if(NOT BUILD_SHARED_LIBS)
  string(APPEND heed_config_dependencies "find_dependency(fmt)\nfind_dependency(hwy)\n")
  if(heed_openmp)
    string(APPEND heed_config_dependencies "find_dependency(OpenMP COMPONENTS CXX)\n")
  endif()
  if(heed_onednn)
    string(APPEND heed_config_dependencies "list(PREPEND CMAKE_MODULE_PATH \${CMAKE_CURRENT_LIST_DIR})\nfind_dependency(oneDNN)\nlist(POP_FRONT CMAKE_MODULE_PATH)\n")
    install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindoneDNN.cmake DESTINATION ${package_dir})
  endif()
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/heedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake DESTINATION ${package_dir})
