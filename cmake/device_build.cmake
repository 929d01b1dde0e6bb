# What the CUDA part is built of, and the hash of it that both sides hold: a program refuses a libepweave_cuda.so of other sources or
# flags (src/replay/kernels/device/cuda_library.cc), also where it was built without nvcc.

# The same bits as on the CPU: nothing is fused that the source does not fuse, no denormal is flushed, quotients and square
# roots are rounded correctly.
set(EPWEAVE_DEVICE_FLAGS -fmad=false -ftz=false -prec-div=true -prec-sqrt=true)

# epweave_hash_device(SOURCES..): in the build folder, device_build/device_build.h with kDeviceBuild, 16 digits of a hash over the flags, the
# files and all files of src/ that they include. An edit of one of them configures anew.
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
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/device_build/device_build.h CONTENT
"// Made by cmake/device_build.cmake: sources and flags of the CUDA part.
#pragma once

namespace epweave::replay::device {
inline constexpr const char* kDeviceBuild = \"@EPWEAVE_DEVICE_BUILD@\";
}
" @ONLY)
endfunction()
