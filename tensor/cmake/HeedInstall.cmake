# Installs the library, its public headers, a CMake package and a .pc file.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  if(header IN_LIST headers_at_top)
    set(folder)
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/${folder} COMPONENT development)
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
install(TARGETS heed EXPORT heed INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  ARCHIVE COMPONENT development
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
install(EXPORT heed NAMESPACE heed:: FILE heedTargets.cmake DESTINATION ${package_dir} COMPONENT development)

# What a user's program has to link beside a static heed; a shared one brings it along.
set(heed_config_dependencies)
set(pkgconfig_requires)
set(pkgconfig_libs)
if(NOT BUILD_SHARED_LIBS)
  string(APPEND heed_config_dependencies "find_dependency(fmt)\nfind_dependency(hwy)\n")
  set(pkgconfig_requires "fmt libhwy")
  if(heed_openmp)
    string(APPEND heed_config_dependencies "find_dependency(OpenMP COMPONENTS CXX)\n")
    list(JOIN OpenMP_CXX_FLAGS " " pkgconfig_libs)
  endif()
  if(heed_onednn)
    string(APPEND heed_config_dependencies "list(PREPEND CMAKE_MODULE_PATH \${CMAKE_CURRENT_LIST_DIR})\nfind_dependency(oneDNN)\nlist(POP_FRONT CMAKE_MODULE_PATH)\n")
    install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindoneDNN.cmake DESTINATION ${package_dir} COMPONENT development)
    string(APPEND pkgconfig_libs " -ldnnl")
  endif()
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/heedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake DESTINATION ${package_dir} COMPONENT development)

# Relative to the file itself, so that an installed heed can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE prefix_from_pkgconfig)
configure_file(${CMAKE_CURRENT_LIST_DIR}/heed.pc.in ${PROJECT_BINARY_DIR}/heed.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/heed.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
