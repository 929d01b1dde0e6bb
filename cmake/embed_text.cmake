# epweave_embed_text(FILE NAME): generates FILE's name with .h instead of .html in the build folder,
# holding the text of FILE as the constant NAME: included by FILE's path below src/, outside src/ by
# its path below the current folder. A raw literal holds at most 64 KiB on some compilers; a check
# says so here.
function(epweave_embed_text target file name)
  file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${file} EPWEAVE_TEXT)
  string(LENGTH "${EPWEAVE_TEXT}" length)
  if(length GREATER 65000)
    message(FATAL_ERROR "${file} is too long for one literal")
  endif()
  set(EPWEAVE_TEXT_NAME ${name})
  set(EPWEAVE_TEXT_FILE ${file})
  file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  if(path MATCHES "^\\.\\./")
    set(path ${file})
  endif()
  cmake_path(REPLACE_EXTENSION path .h)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded_text.h.in ${CMAKE_CURRENT_BINARY_DIR}/embedded/${path} @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded)
endfunction()
