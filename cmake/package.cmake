# `cpack --preset release`, or `cpack -G DEB` in the build folder: a Debian package.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME epweave)
set(CPACK_PACKAGE_VENDOR epweave)
set(CPACK_PACKAGE_CONTACT "epweave developers <epweave@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Hides expert-parallel communication of PyTorch training graphs behind compute")
set(CPACK_PACKAGE_DESCRIPTION "Reads the traced training graph of a mixture-of-experts model, runs modules on parts of the
 tokens, reorders the graph so that token exchanges overlap with compute, and writes it back.
 Also compares, verifies, measures and reduces such graphs, and executes them on virtual ranks.")
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # needs dpkg-dev
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
