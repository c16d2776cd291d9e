# The libraries sgl stands on. Out, all lists of link items or folders:
#   SGL_DEPENDENCY_INCLUDES   header folders
#   SGL_ARCHIVES              for executables and libsgl.a: static archives, so that a binary needs only libc and libm
#   SGL_SHARED_LIBRARIES      for libsgl.so: shared libraries, because Debian's Lua and jansson archives hold code that
#                             cannot go into a shared library; OpenBLAS's archive can, and pins the tuned pthread build
#   SGL_COMMAND_ARCHIVES      for the command alone: line editing
# scripts/deps knows the package of each. What nothing uses costs nothing: --gc-sections and --as-needed drop it.

find_package(Threads REQUIRED)

function(sgl_find_library variable what)
  cmake_parse_arguments(arg "" "" "NAMES;SUFFIXES" ${ARGN})
  find_library(${variable} NAMES ${arg_NAMES} PATH_SUFFIXES ${arg_SUFFIXES})
  if(NOT ${variable})
    message(FATAL_ERROR "${what} is missing (looked for: ${arg_NAMES}); `scripts/deps build` installs it")
  endif()
endfunction()

function(sgl_find_header variable what header)
  find_path(${variable} ${header} PATH_SUFFIXES ${ARGN})
  if(NOT ${variable})
    message(FATAL_ERROR "${what} is missing (looked for: ${header}); `scripts/deps build` installs it")
  endif()
endfunction()

sgl_find_header(SGL_LUA_INCLUDE "Lua 5.4" lua.h lua5.4)
sgl_find_header(SGL_BLAS_INCLUDE "OpenBLAS" cblas.h ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread openblas-pthread)
sgl_find_header(SGL_JANSSON_INCLUDE "jansson" jansson.h)
sgl_find_header(SGL_XXHASH_INCLUDE "xxHash" xxhash.h)
sgl_find_header(SGL_HWLOC_INCLUDE "hwloc" hwloc.h)
sgl_find_header(SGL_EDIT_INCLUDE "libedit" histedit.h)
set(SGL_DEPENDENCY_INCLUDES ${SGL_LUA_INCLUDE} ${SGL_BLAS_INCLUDE} ${SGL_JANSSON_INCLUDE} ${SGL_XXHASH_INCLUDE}
  ${SGL_HWLOC_INCLUDE} ${SGL_EDIT_INCLUDE})
list(REMOVE_DUPLICATES SGL_DEPENDENCY_INCLUDES)

sgl_find_library(SGL_LUA_ARCHIVE "Lua 5.4" NAMES liblua5.4.a lua5.4)
sgl_find_library(SGL_LUA_SHARED "Lua 5.4" NAMES lua5.4)
sgl_find_library(SGL_BLAS_ARCHIVE "OpenBLAS" NAMES libopenblas.a openblas SUFFIXES openblas-pthread)
sgl_find_library(SGL_JANSSON_ARCHIVE "jansson" NAMES libjansson.a jansson)
sgl_find_library(SGL_JANSSON_SHARED "jansson" NAMES jansson)
sgl_find_library(SGL_XXHASH_ARCHIVE "xxHash" NAMES libxxhash.a xxhash)
sgl_find_library(SGL_XXHASH_SHARED "xxHash" NAMES xxhash)
sgl_find_library(SGL_HWLOC_ARCHIVE "hwloc" NAMES libhwloc.a hwloc)
sgl_find_library(SGL_HWLOC_SHARED "hwloc" NAMES hwloc)
sgl_find_library(SGL_EDIT_ARCHIVE "libedit" NAMES libedit.a edit)
sgl_find_library(SGL_BSD_ARCHIVE "libbsd" NAMES libbsd.a bsd)
sgl_find_library(SGL_MD_ARCHIVE "libmd" NAMES libmd.a md)
sgl_find_library(SGL_TINFO_ARCHIVE "ncurses (tinfo)" NAMES libtinfo.a tinfo)

# hwloc's archive wants udev, of which only the run-time library is installed everywhere.
set(SGL_SYSTEM_LIBRARIES Threads::Threads ${CMAKE_DL_LIBS} m)
set(SGL_ARCHIVES ${SGL_LUA_ARCHIVE} ${SGL_JANSSON_ARCHIVE} ${SGL_XXHASH_ARCHIVE} ${SGL_BLAS_ARCHIVE}
  ${SGL_HWLOC_ARCHIVE} -l:libudev.so.1 ${SGL_SYSTEM_LIBRARIES})
set(SGL_SHARED_LIBRARIES ${SGL_LUA_SHARED} ${SGL_JANSSON_SHARED} ${SGL_XXHASH_SHARED} ${SGL_BLAS_ARCHIVE}
  ${SGL_HWLOC_SHARED} ${SGL_SYSTEM_LIBRARIES})
set(SGL_COMMAND_ARCHIVES ${SGL_EDIT_ARCHIVE} ${SGL_BSD_ARCHIVE} ${SGL_MD_ARCHIVE} ${SGL_TINFO_ARCHIVE})
