# EPWEAVE_PORTABLE=ON: programs that run on other machines than this one. C++ libraries, OpenSSL and
# zlib are linked statically; libzip, which Debian has as a shared object only, lies with what it
# needs in ../lib beside the programs. Only glibc is taken from the machine. The wheel is built so
# (pyproject.toml).
option(EPWEAVE_PORTABLE "Link third-party code statically, for programs that run elsewhere" OFF)
set(EPWEAVE_FMT fmt::fmt)
if(NOT EPWEAVE_PORTABLE)
  return()
endif()
set(Protobuf_USE_STATIC_LIBS ON)
set(ZLIB_USE_STATIC_LIBS ON)
set(OPENSSL_USE_STATIC_LIBS ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
add_link_options(-static-libstdc++ -static-libgcc)
# Debian has fmt as a shared object only: its functions are made here, from its headers.
set(EPWEAVE_FMT epweave_fmt)
