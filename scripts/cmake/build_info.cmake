# Run at build time: writes build_info.cpp with the commit of the tree, and only when that changed. A tree with changes
# is <commit>-dirty.<hash of them>: rows are only comparable when they come from the same code.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE COMMIT RESULT_VARIABLE failed
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed)
  set(COMMIT unknown)
else()
  execute_process(COMMAND git -C ${SOURCE} diff --binary --no-ext-diff --no-textconv --no-color HEAD
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  # The build finds sources by name, so it also takes those that git does not know of.
  execute_process(COMMAND git -C ${SOURCE} -c core.quotePath=off ls-files --others --exclude-standard
                          -- *.cpp *.h *.cu *.cuh
                  OUTPUT_VARIABLE untracked ERROR_QUIET)
  string(REGEX MATCHALL "[^\n]+" untracked "${untracked}")
  foreach(file IN LISTS untracked)
    file(SHA1 ${SOURCE}/${file} hash)
    string(APPEND changes "${file} ${hash}\n")
  endforeach()
  if(NOT changes STREQUAL "")
    string(SHA1 hash "${changes}")
    string(SUBSTRING ${hash} 0 8 hash)
    string(APPEND COMMIT -dirty.${hash})
  endif()
endif()
if(SLOWDOWN)
  string(APPEND COMMIT -slowed${SLOWDOWN})  # NOISEFLOOR_TEST_SLOWDOWN_PERCENT: never to be taken for the real thing
endif()
configure_file(${SOURCE}/bench/platform/build_info.cpp.in ${OUTPUT} @ONLY)
