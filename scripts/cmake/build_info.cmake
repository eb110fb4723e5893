# Run at build time: writes build_info.cpp with what this build is called, and only when that changed. Rows are only comparable when they come
# from the same code, so two different trees never share a name:
#   <commit>                  everything that is built is the commit's, and the repository's root is this tree
#   <commit>-dirty.<digest>   a tree with changes
#   src-<digest>              no git, or no repository of ours: a tarball, which may lie in a repository of someone else's
# The digest is of the names and contents of all that is built or read at run time. -D SOURCE= OUTPUT= and what build_info.cpp.in names.
cmake_minimum_required(VERSION 3.24)
set(built kernels networks baselines bench reports scripts/cmake CMakeLists.txt CMakePresets.json pyproject.toml)
set(not_built "(^|/)(__pycache__/|\\.|#)|(\\.pyc|~)$")  # nor what editors leave
file(REAL_PATH "${SOURCE}" root)

function(digest_of_sources out)
  set(files)
  foreach(path IN LISTS built)
    if(IS_DIRECTORY "${root}/${path}")
      file(GLOB_RECURSE found RELATIVE "${root}" "${root}/${path}/*")
      list(APPEND files ${found})
    elseif(EXISTS "${root}/${path}")
      list(APPEND files ${path})
    endif()
  endforeach()
  list(FILTER files EXCLUDE REGEX "${not_built}")
  list(SORT files)
  set(text)
  foreach(file IN LISTS files)
    if(EXISTS "${root}/${file}")  # an editor's lock is a link to nothing
      file(SHA256 "${root}/${file}" hash)
      string(APPEND text "${file} ${hash}\n")
    endif()
  endforeach()
  string(SHA256 digest "${text}")
  string(SUBSTRING ${digest} 0 12 digest)
  set(${out} ${digest} PARENT_SCOPE)
endfunction()

# What a git hook, or a caller who works in another repository, has set.
execute_process(COMMAND ${CMAKE_COMMAND} -E environment OUTPUT_VARIABLE environment)
string(REGEX MATCHALL "(^|\n)GIT_[A-Za-z0-9_]+=" names "${environment}")
foreach(name IN LISTS names)
  string(REGEX REPLACE "[\n=]" "" name "${name}")
  unset(ENV{${name}})
endforeach()

# git(OUT ARGUMENTS...): sets OUT, and `failed`. A checkout may belong to another user: building it trusts it already.
macro(git out)
  execute_process(COMMAND git -c "safe.directory=${root}" -c core.fsmonitor=false -C "${root}" ${ARGN}
                  RESULT_VARIABLE failed OUTPUT_VARIABLE ${out} ERROR_VARIABLE git_words OUTPUT_STRIP_TRAILING_WHITESPACE)
endmacro()

set(COMMIT)
git(top rev-parse --show-toplevel)
if(failed)
  string(REGEX REPLACE "\n.*" "" why "${git_words}")  # blank where there is no git
  set(why "git: ${why}")
else()
  file(REAL_PATH "${top}" top)
  if(NOT top STREQUAL root)
    set(why "the repository around this tree is another one, ${top}")
  else()
    git(COMMIT rev-parse --short=12 HEAD)
    if(failed)
      set(COMMIT)
      set(why "the repository has no commit")
    endif()
  endif()
endif()
if(COMMIT)
  git(ignored diff --quiet --no-ext-diff --no-textconv HEAD -- ${built})
  set(changed ${failed})
  git(others ls-files --others -- ${built})  # also what git ignores: sources are found by name
  string(REGEX MATCHALL "[^\n]+" others "${others}")
  list(FILTER others EXCLUDE REGEX "${not_built}")
  git(unwatched ls-files -v -- ${built})  # whose changes git was told not to look at
  string(REGEX MATCHALL "(^|\n)[a-zS] " unwatched "${unwatched}")
  if(changed OR others OR unwatched)
    digest_of_sources(digest)
    string(APPEND COMMIT -dirty.${digest})
  endif()
else()
  digest_of_sources(digest)
  set(COMMIT src-${digest})
  set(before)
  if(EXISTS "${OUTPUT}")
    file(READ "${OUTPUT}" before)
  endif()
  string(FIND "${before}" "${COMMIT}" said)
  if(said EQUAL -1)
    message(STATUS "noisefloor: no commit to name this build by (${why}), so it is called by a digest of its sources: ${COMMIT}")
  endif()
endif()
configure_file("${SOURCE}/bench/platform/build_info.cpp.in" "${OUTPUT}" @ONLY)
