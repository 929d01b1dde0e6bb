# One library per folder of src/, or for a folder and some below it. The link graph is the layering:
# a header of a folder that is not linked still compiles (one include root), so
# scripts/dev/check_layering.py checks the includes against these lists.

# -Wno-restrict: g++ 12 sees overlapping copies in std::string + std::string where there are none
# (GCC bug 105651). -Wno-array-bounds, -Wno-stringop-*: the same, of headers that are precompiled,
# which it no longer takes for a system's. The sanitizer build finds such accesses. clang, used for
# fuzzing, has other opinions on some lines: its warnings are no errors; nor are those of the
# sanitizer build, which has other units and -Og: the release build judges.
add_library(epweave_warnings INTERFACE)
target_compile_options(epweave_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>
  $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Werror>)  # newer ones have other opinions, too

# Tests spend their time in the libraries: what is inlined into them need not be fast, and compiles
# in half the time. (At -O1 g++ 12 sees accesses outside of strings where there are none.)
set(EPWEAVE_TEST_OPTIONS $<$<CONFIG:Release>:-Og>$<$<CONFIG:Debug>:-O0>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND EPWEAVE_TEST_OPTIONS -Wno-array-bounds -Wno-stringop-overflow)
endif()

# Programs (tools/) spend most of theirs there, too; what they print they escape character by
# character, which is slow where small functions are not inlined (-O1).
set(EPWEAVE_PROGRAM_OPTIONS $<$<CONFIG:Release>:-O2>)

# Precompiled headers: what most files include, parsed once for each class of flags. A file includes
# what it uses all the same (scripts/dev/check_alone.sh).
#   epweave_precompiled_library   libraries
#   epweave_precompiled_program   programs, with JSON
#   epweave_precompiled_kernels   those whose sums and products are rounded where they are written
#   epweave_precompiled_test      tests
set(EPWEAVE_PRECOMPILED
  <algorithm> <array> <charconv> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map> <memory> <numeric>
  <optional> <random> <set> <span> <string> <string_view> <tuple> <unordered_map> <utility> <variant> <vector>
  <fmt/format.h> <fmt/ranges.h> ${CMAKE_SOURCE_DIR}/src/ir/graph.h)

function(epweave_precompiled name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;LIBRARIES;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc CONTENT "// Only for its precompiled header.\n")
  add_library(epweave_precompiled_${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  target_include_directories(epweave_precompiled_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(epweave_precompiled_${name} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(epweave_precompiled_${name} PRIVATE epweave_warnings ${EPWEAVE_FMT} ${ARG_LIBRARIES})
  target_precompile_headers(epweave_precompiled_${name} PRIVATE ${EPWEAVE_PRECOMPILED} ${ARG_HEADERS})
endfunction()
epweave_precompiled(library)
epweave_precompiled(program OPTIONS ${EPWEAVE_PROGRAM_OPTIONS} LIBRARIES nlohmann_json::nlohmann_json HEADERS <nlohmann/json.hpp>)
epweave_precompiled(kernels OPTIONS -ffp-contract=off HEADERS ${CMAKE_SOURCE_DIR}/src/replay/kernels/kernel.h)
if(BUILD_TESTING)
  epweave_precompiled(test OPTIONS ${EPWEAVE_TEST_OPTIONS} LIBRARIES Catch2::Catch2 HEADERS <catch2/catch.hpp>)
endif()

# epweave_unity(TARGET...): the sources are compiled EPWEAVE_UNITY_BATCH to a unit, which halves the
# time of a clean build: most of it is headers, and what each unit makes of their templates. So a
# name in an anonymous namespace stands once in a library, and once in its tests. Off where single
# files are edited and compiled over and over (-DEPWEAVE_UNITY=OFF); the presets asan and fuzz,
# which are built whole, have twice as many to a unit.
option(EPWEAVE_UNITY "Compile the sources of a target several at a time" ON)
set(EPWEAVE_UNITY_BATCH 16 CACHE STRING "How many")
function(epweave_unity)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ${EPWEAVE_UNITY} UNITY_BUILD_BATCH_SIZE ${EPWEAVE_UNITY_BATCH})
endfunction()

# The libraries that the libFuzzer targets run. The others are linked by fuzz_pipeline alone, for
# the registry of passes: they are compiled as fast as can be, without instrumentation, which takes
# a fifth of the time.
set(EPWEAVE_FUZZED base ir ir_text ops analysis io pipeline)

# epweave_bundled(TARGET...): programs that find their shared libraries in ../lib, where
# scripts/gpu_bundle.sh puts them. As RPATH, not RUNPATH, so that it holds for the libraries of
# libraries, too. The same where they are installed: a build RPATH that is replaced then ends in an
# empty folder, the current one.
function(epweave_bundled)
  set_target_properties(${ARGN} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  foreach(target IN LISTS ARGN)
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()

# epweave_library(NAME [FOLDERS folder...] DEPENDS lib... [TEST_DEPENDS lib...] [PRECOMPILED
# class]): every .cc of the folders (of this one, if none is named) but tests, and one test program
# for their *_test.cc. NAME says where: replay_cublas for src/replay/cublas.
function(epweave_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "FOLDERS;DEPENDS;TEST_DEPENDS" ${ARGN})
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS .)
  endif()
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED library)
  endif()
  list(TRANSFORM ARG_FOLDERS REPLACE "^(.+)$" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cc")
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_FOLDERS})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  add_library(epweave_${name} STATIC ${sources})
  target_include_directories(epweave_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(epweave_${name} PUBLIC ${ARG_DEPENDS} PRIVATE epweave_warnings)
  target_precompile_headers(epweave_${name} REUSE_FROM epweave_precompiled_${ARG_PRECOMPILED})
  if(EPWEAVE_FUZZ AND NOT name IN_LIST EPWEAVE_FUZZED)
    target_compile_options(epweave_${name} PRIVATE -O0 -g0 -fno-sanitize=all)
  endif()
  if(NOT ARG_PRECOMPILED STREQUAL "kernels")  # theirs is optimisation, not headers
    epweave_unity(epweave_${name})
  endif()
  if(tests AND BUILD_TESTING)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE
      epweave_${name} ${ARG_TEST_DEPENDS} epweave_warnings Catch2::Catch2WithMain)
    target_compile_definitions(${name}_test PRIVATE EPWEAVE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_compile_options(${name}_test PRIVATE ${EPWEAVE_TEST_OPTIONS})
    target_precompile_headers(${name}_test REUSE_FROM epweave_precompiled_test)
    epweave_unity(${name}_test)
    # Two tags become labels. [slow]: half a minute or more; these start first. [repetitive]:
    # minutes under sanitizers, for code that other cases run, too. .ci/run runs neither under
    # sanitizers.
    set(others)
    foreach(tag slow repetitive)
      set(tagged)
      foreach(test IN LISTS tests)
        file(STRINGS ${test} cases REGEX "\\[${tag}\\]\"\\)")
        list(APPEND tagged ${cases})
      endforeach()
      if(tagged)
        set(properties LABELS ${tag})
        if(tag STREQUAL slow)
          list(APPEND properties COST 100)
        endif()
        catch_discover_tests(${name}_test TEST_PREFIX "${name}: " WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
          TEST_SPEC "[${tag}]" PROPERTIES ${properties})
        string(APPEND others "~[${tag}]")
      endif()
    endforeach()
    if(NOT others)
      set(others "*")
    endif()
    catch_discover_tests(${name}_test TEST_PREFIX "${name}: " WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} TEST_SPEC "${others}")
  endif()
endfunction()
