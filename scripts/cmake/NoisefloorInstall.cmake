# Three components. `kernels`: the library, its headers and its CMake package, for other projects. `bundle`: the programs, for
# scripts/bundle, which adds what they need at run time. `program`: the command line inside of the Python package, with what it reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/noisefloor)
install(TARGETS noisefloor_kernels EXPORT noisefloor-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT kernels)
install(DIRECTORY kernels ${PROJECT_BINARY_DIR}/kernels/generated/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/noisefloor
        COMPONENT kernels FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
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

if(TARGET noisefloor)
  # A wheel's machine has these few, or nothing of the wheel runs there; CUDA's own are opened at run time.
  set(of_the_system "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|gomp)\\.so" "^ld-linux")
  install(TARGETS noisefloor RUNTIME_DEPENDENCY_SET program_libraries RUNTIME DESTINATION noisefloor/bin COMPONENT program EXCLUDE_FROM_ALL)
  install(RUNTIME_DEPENDENCY_SET program_libraries PRE_EXCLUDE_REGEXES ${of_the_system}
          LIBRARY DESTINATION noisefloor/lib COMPONENT program EXCLUDE_FROM_ALL)
  foreach(data bench/problems bench/pipeline/weights bench/plugin baselines)
    get_filename_component(parent noisefloor/${data} DIRECTORY)
    install(DIRECTORY ${data} DESTINATION ${parent} COMPONENT program EXCLUDE_FROM_ALL
            FILES_MATCHING PATTERN "*.csv" PATTERN "*.safetensors" PATTERN "*.py" PATTERN "plugin.h" PATTERN "new_kernel/*.cu" PATTERN __pycache__ EXCLUDE)
  endforeach()
endif()
