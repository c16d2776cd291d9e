# The stdlib travels inside the library: every stdlib/**/*.lua becomes a byte array in one generated C file.
# Out: SGL_STDLIB_SOURCE, which defines what dsl/stdlib.h declares. The work itself is done by embed_stdlib.cmake.

file(GLOB_RECURSE SGL_STDLIB_FILES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} stdlib/*.lua)
list(SORT SGL_STDLIB_FILES)
set(SGL_STDLIB_SOURCE ${CMAKE_BINARY_DIR}/generated/stdlib.c)

# The list is a file, written only when it changes, so that a removed module rebuilds the array as a changed one does.
set(SGL_STDLIB_LIST ${CMAKE_BINARY_DIR}/generated/stdlib.list)
list(JOIN SGL_STDLIB_FILES "\n" SGL_STDLIB_LINES)
file(CONFIGURE OUTPUT ${SGL_STDLIB_LIST} CONTENT "@SGL_STDLIB_LINES@" @ONLY)

add_custom_command(OUTPUT ${SGL_STDLIB_SOURCE}
  COMMAND ${CMAKE_COMMAND} -DLIST=${SGL_STDLIB_LIST} -DROOT=${CMAKE_SOURCE_DIR} -DOUT=${SGL_STDLIB_SOURCE}
    -P ${CMAKE_SOURCE_DIR}/cmake/embed_stdlib.cmake
  DEPENDS ${SGL_STDLIB_FILES} ${SGL_STDLIB_LIST} ${CMAKE_SOURCE_DIR}/cmake/embed_stdlib.cmake
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
  COMMENT "Embedding the stdlib" VERBATIM)
