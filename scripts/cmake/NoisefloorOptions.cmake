# The project's options, and the flags that every target of it shares (through noisefloor_flags).
option(NOISEFLOOR_BUILD_BENCH "Build the noisefloor program" ${PROJECT_IS_TOP_LEVEL})
option(NOISEFLOOR_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(NOISEFLOOR_PYTHON "Build the Python module, where .venv (scripts/setup) or Python_EXECUTABLE has nanobind" ${PROJECT_IS_TOP_LEVEL})
option(NOISEFLOOR_WARNINGS_AS_ERRORS "Stop at a warning" ${PROJECT_IS_TOP_LEVEL})
option(NOISEFLOOR_UNITY "Compile bookkeeping and host tests several files at once: a fresh build takes half the time, a rebuild a little longer" ON)
option(NOISEFLOOR_SANITIZE "Build host code with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(NOISEFLOOR_FUZZ "Build the fuzzers of the parsers, and nothing else (clang)" OFF)
set(NOISEFLOOR_CUDA AUTO CACHE STRING "Build the CUDA variants: AUTO (where a toolkit is found), ON or OFF")
set(NOISEFLOOR_CUDA_ARCHITECTURES "" CACHE STRING
    "CUDA architectures, as 80;90a; empty: those of the GPUs in this machine, else 90a")
set(NOISEFLOOR_HOST_ARCH "" CACHE STRING
    "x86-64 level for host code, as x86-64-v3; empty: the highest that this machine has")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
if(NOT NOISEFLOOR_FUZZ)
  noisefloor_require_compiler()
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  noisefloor_use_ccache()
endif()
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()

# Not in the cache: of this machine, each time.
if(NOT NOISEFLOOR_HOST_ARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND EXISTS /proc/cpuinfo)
  noisefloor_find_host_arch(NOISEFLOOR_HOST_ARCH)
endif()
noisefloor_level_of("${NOISEFLOOR_HOST_ARCH}" NOISEFLOOR_HOST_LEVEL)

# For targets whose files spend their compile time on the headers that all of them include: compiles up to eight files of a folder as one.
# Names in unnamed namespaces must differ within a room. A class may have members of a type of its own file's unnamed namespace, which
# GCC takes for a mistake behind an #include.
function(noisefloor_unity target)
  if(NOT NOISEFLOOR_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    string(REGEX REPLACE "/tests/kernels/.*" "/tests/kernels" folder "${folder}")  # one or two files an op
    get_filename_component(room "${folder}" NAME)
    if(NOT DEFINED files_of_${room})
      set(files_of_${room} 0)
    endif()
    math(EXPR group "${files_of_${room}} / 8")
    math(EXPR files_of_${room} "${files_of_${room}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room}_${group})
  endforeach()
endfunction()

add_library(noisefloor_flags INTERFACE)
target_compile_features(noisefloor_flags INTERFACE cxx_std_20)
# -Wrestrict: GCC 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
set(host_flags -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-restrict)
if(NOISEFLOOR_HOST_ARCH)
  list(APPEND host_flags -march=${NOISEFLOOR_HOST_ARCH})
endif()
if(NOISEFLOOR_WARNINGS_AS_ERRORS)
  list(APPEND host_flags -Werror)
endif()
if(NOISEFLOOR_SANITIZE)
  # -Wmaybe-uninitialized is wrong of std::regex under the sanitizers (GCC bug 105562).
  list(APPEND host_flags -Wno-maybe-uninitialized -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(noisefloor_flags INTERFACE -fsanitize=address,undefined)
endif()
target_compile_options(noisefloor_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${host_flags}>")

# For code that nothing timed waits for: half of the time that its compilation takes is optimisation. At -O1 GCC takes the value of an
# optional for uninitialised where a flag says otherwise.
set(noisefloor_bookkeeping_options "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-O1;-Wno-maybe-uninitialized>")
