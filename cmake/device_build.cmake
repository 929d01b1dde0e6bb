# What the CUDA part is built of and by, and the hash of it that both sides hold: a program refuses
# a libepweave_cuda.so of other sources or flags (src/replay/kernels/device/cuda_library.cc), also
# where it was built without nvcc.
set(EPWEAVE_CUDA AUTO CACHE STRING "Build the CUDA part: ON, OFF, or AUTO (where nvcc is found)")
set_property(CACHE EPWEAVE_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT EPWEAVE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90-real)  # H100, H200
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    enable_language(CUDA)
  elseif(EPWEAVE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "EPWEAVE_CUDA=ON, but no CUDA compiler was found (set CMAKE_CUDA_COMPILER)")
  endif()
endif()

# The same bits as on the CPU: nothing is fused that the source does not fuse, no denormal is
# flushed, quotients and square roots are rounded correctly.
set(EPWEAVE_DEVICE_FLAGS -fmad=false -ftz=false -prec-div=true -prec-sqrt=true)

# epweave_hash_nvcc(HASH): "-" and 8 digits over nvcc's version and what this build tells it beside
# EPWEAVE_DEVICE_FLAGS; empty without nvcc.
function(epweave_hash_nvcc hash)
  set(${hash} "" PARENT_SCOPE)
  if(NOT CMAKE_CUDA_COMPILER_LOADED)
    return()
  endif()
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  string(SHA256 found "${CMAKE_CUDA_COMPILER_VERSION}
${CMAKE_CUDA_FLAGS}
${CMAKE_CUDA_FLAGS_${type}}
${CMAKE_CUDA_ARCHITECTURES}
${CMAKE_CUDA_STANDARD}
$ENV{NVCC_PREPEND_FLAGS}
$ENV{NVCC_APPEND_FLAGS}")
  string(SUBSTRING ${found} 0 8 found)
  set(${hash} "-${found}" PARENT_SCOPE)
endfunction()

# epweave_hash_device(SOURCES..): in the build folder, device_build/device_build.h with
# kDeviceBuild, 16 digits of a hash over the flags, the files and all files of src/ that they
# include, and epweave_hash_nvcc behind them. An edit of one of them configures anew.
function(epweave_hash_device)
  set(waiting ${ARGN})
  set(found)
  while(waiting)
    list(POP_FRONT waiting file)
    if(file IN_LIST found)
      continue()
    endif()
    list(APPEND found ${file})
    file(STRINGS ${CMAKE_SOURCE_DIR}/src/${file} includes REGEX "^#include \"replay/")
    list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*$" "\\1")
    list(APPEND waiting ${includes})
  endwhile()
  list(SORT found)
  set(text "${EPWEAVE_DEVICE_FLAGS}")
  foreach(file IN LISTS found)
    file(SHA256 ${CMAKE_SOURCE_DIR}/src/${file} hash)
    string(APPEND text "\n${file} ${hash}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${file})
  endforeach()
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 16 EPWEAVE_DEVICE_BUILD)
  epweave_hash_nvcc(nvcc)
  string(APPEND EPWEAVE_DEVICE_BUILD "${nvcc}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/device_build/device_build.h CONTENT
"// Made by cmake/device_build.cmake: sources and flags of the CUDA part.
#pragma once

namespace epweave::replay::device {
inline constexpr const char* kDeviceBuild = \"@EPWEAVE_DEVICE_BUILD@\";
}
" @ONLY)
endfunction()
