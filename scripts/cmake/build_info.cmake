# Run at build time: writes build_info.cpp with the commit of the tree, and only when that changed.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE COMMIT RESULT_VARIABLE failed
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed)
  set(COMMIT unknown)
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND COMMIT -dirty)
  endif()
endif()
configure_file(${SOURCE}/bench/measure/build_info.cpp.in ${OUTPUT} @ONLY)
