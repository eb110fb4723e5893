# Two components. `kernels`: the library, its headers and its CMake package, for other projects. `bundle`: the programs, for
# scripts/bundle, which adds what they need at run time.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/noisefloor)
install(TARGETS noisefloor_kernels EXPORT noisefloor-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT kernels)
install(DIRECTORY kernels DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/noisefloor COMPONENT kernels
        FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(EXPORT noisefloor-targets NAMESPACE noisefloor:: DESTINATION ${package_dir} COMPONENT kernels)
configure_package_config_file(scripts/cmake/noisefloor-config.cmake.in ${PROJECT_BINARY_DIR}/noisefloor-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/noisefloor-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/noisefloor-config.cmake ${PROJECT_BINARY_DIR}/noisefloor-config-version.cmake
        DESTINATION ${package_dir} COMPONENT kernels)

foreach(program noisefloor host_tests gpu_tests)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS ${program} RUNTIME DESTINATION bin COMPONENT bundle)
  endif()
endforeach()
