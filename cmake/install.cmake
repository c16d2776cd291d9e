# What `cmake --install build --prefix DIR` puts there: the command bin/sgl, the library lib/libsgl.so for C hosts,
# include/sgl.h, and lib/pkgconfig/sgl.pc, by which a host is built: cc host.c $(pkg-config --cflags --libs sgl).
# The version is that of vm/sgl.h. The archive libsgl.a is not installed: who links it must link all that it stands on.

include(GNUInstallDirs)
file(STRINGS vm/sgl.h SGL_VERSION_LINE REGEX "^#define SGL_VERSION ")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" SGL_VERSION "${SGL_VERSION_LINE}")

# ${pcfiledir} makes the file right wherever the prefix is moved to.
file(RELATIVE_PATH SGL_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/sgl.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@SGL_PC_PREFIX@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: sgl
Description: An embeddable interpreter of a graph language
Version: @SGL_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lsgl
]])

install(TARGETS sgl_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET sgl)
  install(TARGETS sgl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES vm/sgl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/sgl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
