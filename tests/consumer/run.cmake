# cmake -D build= -D source= -D work= -D generator= -D compiler= [-D sanitize=] -P run.cmake
# Installs component `kernels` of `build` into an empty prefix, then configures, builds and runs `source` against it.
function(step name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message(STATUS "${name}\n${output}")
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "consumer: '${name}' failed (${code})")
  endif()
endfunction()

set(flags)
if(sanitize)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=address,undefined)
endif()
file(REMOVE_RECURSE ${work})
step("build the library" ${CMAKE_COMMAND} --build ${build} --target noisefloor_kernels)
step("install" ${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix --component kernels)
step("configure" ${CMAKE_COMMAND} -S ${source} -B ${work}/build -G ${generator} -DCMAKE_CXX_COMPILER=${compiler}
     -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${work}/prefix ${flags})
step("build" ${CMAKE_COMMAND} --build ${work}/build)
step("run" ${work}/build/consumer)
