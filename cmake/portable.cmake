# EPWEAVE_PORTABLE=ON: programs that run on other machines than this one. All libraries are linked
# statically; only glibc is taken from the machine. The wheel is built so (pyproject.toml).
option(EPWEAVE_PORTABLE "Link third-party code statically, for programs that run elsewhere" OFF)
set(EPWEAVE_FMT fmt::fmt)
if(NOT EPWEAVE_PORTABLE)
  return()
endif()
set(ZLIB_USE_STATIC_LIBS ON)
add_link_options(-static-libstdc++ -static-libgcc)
# Debian has fmt as a shared object only: its functions are made here, from its headers.
set(EPWEAVE_FMT epweave_fmt)
