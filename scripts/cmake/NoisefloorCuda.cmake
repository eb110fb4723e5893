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
  if(NOT NOISEFLOOR_CUDA_ARCHITECTURES)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capabilities ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
    list(TRANSFORM capabilities REPLACE "\\." "")
    list(TRANSFORM capabilities REPLACE "^90$" "90a")
    list(REMOVE_DUPLICATES capabilities)
    if(NOT capabilities)
      set(capabilities 90a)
    endif()
    set(NOISEFLOOR_CUDA_ARCHITECTURES "${capabilities}" CACHE STRING "" FORCE)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # every CUDA target sets its own
  enable_language(CUDA)
  find_package(CUDAToolkit 12.6 REQUIRED)  # the first with cupti_range_profiler.h
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
