# One library per folder of src/, or for a folder and some below it. The link graph is the layering: a header of a
# folder that is not linked still compiles (one include root), so scripts/dev/check_layering.py checks the includes
# against these lists.

# -Wno-restrict: g++ 12 sees overlapping copies in std::string + std::string where there are none (GCC bug 105651).
# clang, used for fuzzing, has other opinions on some lines: its warnings are no errors.
add_library(epweave_warnings INTERFACE)
target_compile_options(epweave_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Werror>)

# epweave_library(NAME [FOLDERS folder...] DEPENDS lib... [TEST_DEPENDS lib...]): every .cc of the folders (of this one,
# if none is named) but tests, and one test program for their *_test.cc. NAME says where: replay_cublas for
# src/replay/cublas.
function(epweave_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;DEPENDS;TEST_DEPENDS" ${ARGN})
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS .)
  endif()
  list(TRANSFORM ARG_FOLDERS REPLACE "^(.+)$" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cc")
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_FOLDERS})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  add_library(epweave_${name} STATIC ${sources})
  target_include_directories(epweave_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(epweave_${name} PUBLIC ${ARG_DEPENDS} PRIVATE epweave_warnings)
  if(tests AND BUILD_TESTING)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE
      epweave_${name} ${ARG_TEST_DEPENDS} epweave_warnings Catch2::Catch2WithMain)
    target_compile_definitions(${name}_test PRIVATE EPWEAVE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    catch_discover_tests(${name}_test TEST_PREFIX "${name}: " WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endif()
endfunction()
