# Finds CUDA, decides the architectures, and sorts kernel files by the gate in their names:
#   x.cu every architecture; x_sm75.cu, x_sm80.cu that one and newer; x_sm90a.cu exactly sm_90a.
set(NOISEFLOOR_HAS_CUDA OFF)
if(NOT NOISEFLOOR_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(NOISEFLOOR_HAS_CUDA ON)
  elseif(NOISEFLOOR_CUDA STREQUAL "ON")
    message(FATAL_ERROR "NOISEFLOOR_CUDA is ON, but no CUDA compiler was found (put nvcc on PATH or set CMAKE_CUDA_COMPILER)")
  endif()
endif()

if(NOISEFLOOR_HAS_CUDA)
  # nvcc takes the g++ on PATH, which may be older than that of everything else.
  if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    execute_process(COMMAND g++ -dumpfullversion OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT version VERSION_GREATER_EQUAL 12)
      set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    endif()
  endif()
  if("${PROJECT_SOURCE_DIR}${PROJECT_BINARY_DIR}" MATCHES "[$`]")
    message(FATAL_ERROR "noisefloor: nvcc cannot compile in ${PROJECT_SOURCE_DIR}: its shell takes $ and ` in a folder's name for its own. Rename or move "
                        "it, or build the host variants (-DNOISEFLOOR_CUDA=OFF, preset host)")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # every CUDA target sets its own
  enable_language(CUDA)
  find_package(CUDAToolkit 12.6 REQUIRED)  # the first with cupti_range_profiler.h
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-arch OUTPUT_VARIABLE known)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  if(NOISEFLOOR_CUDA_ARCHITECTURES)
    foreach(architecture IN LISTS NOISEFLOOR_CUDA_ARCHITECTURES)
      if(NOT (architecture MATCHES "^([0-9]+)[af]?$" AND CMAKE_MATCH_1 IN_LIST known AND CMAKE_MATCH_1 GREATER_EQUAL 75))
        list(JOIN known " " known)
        message(FATAL_ERROR "noisefloor: NOISEFLOOR_CUDA_ARCHITECTURES has '${architecture}'; nvcc ${CMAKE_CUDA_COMPILER_VERSION} knows ${known}, and the "
                            "kernels need 75 or newer. Such as 80;90a")
      endif()
    endforeach()
  else()
    noisefloor_find_architectures("${known}" NOISEFLOOR_CUDA_ARCHITECTURES)  # not in the cache: of this machine, each time
  endif()
  message(STATUS "noisefloor: CUDA ${CUDAToolkit_VERSION} for ${NOISEFLOOR_CUDA_ARCHITECTURES}")
else()
  message(STATUS "noisefloor: host variants only (no CUDA compiler, or NOISEFLOOR_CUDA=OFF)")
endif()

# The project's architectures that are at least `low`, as CMake spells them: machine code, no PTX.
function(noisefloor_architectures low out)
  set(selected)
  foreach(arch IN LISTS NOISEFLOOR_CUDA_ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+" number ${arch})
    if(number GREATER_EQUAL low)
      list(APPEND selected ${arch}-real)
    endif()
  endforeach()
  set(${out} "${selected}" PARENT_SCOPE)
endfunction()

# CUDA flags for an own target. The standard is a plain flag: CMake 3.25 knows none above C++17 for nvcc.
function(noisefloor_cuda_flags target)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-lineinfo;--expt-relaxed-constexpr;-Xcompiler=-Wall;-Wno-deprecated-gpu-targets;-diag-suppress=20013>")
  if(NOISEFLOOR_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
endfunction()
