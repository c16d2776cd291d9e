# The module libsgl_mpi.so: built where MPI's headers and library are, left out with a note where they are not. It stands at the
# top of the build folder and is installed beside libsgl.so; vm/core/module.c looks for it there.
# Out: SGL_HAVE_MPI, SGL_MPI_INCLUDES, SGL_MPI_LIBRARY (tests/bench).
# Odd invariant: the module sees collectives/link.h and MPI, and links with nothing of sgl.

# Sums over buffers are loops that must be vectorised in every build, as those of cmake/isa.cmake.
set_source_files_properties(collectives/reduce.c PROPERTIES COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math")

find_path(SGL_MPI_INCLUDE mpi.h PATH_SUFFIXES openmpi openmpi/include
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi)
find_library(SGL_MPI_LIBRARY NAMES mpi PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib)
if(SGL_MPI_INCLUDE AND SGL_MPI_LIBRARY)
  set(SGL_HAVE_MPI ON)
  # OpenMPI's headers of Debian name others by openmpi/...
  set(SGL_MPI_INCLUDES ${SGL_MPI_INCLUDE} ${SGL_MPI_INCLUDE}/openmpi)
  add_library(sgl_mpi MODULE collectives/mpi.c)
  target_include_directories(sgl_mpi PRIVATE .)
  target_include_directories(sgl_mpi SYSTEM PRIVATE ${SGL_MPI_INCLUDES})
  target_link_libraries(sgl_mpi PRIVATE ${SGL_MPI_LIBRARY})
  set_target_properties(sgl_mpi PROPERTIES OUTPUT_NAME sgl_mpi C_VISIBILITY_PRESET default) # dlsym looks for its link
  if(TARGET sgl)
    add_dependencies(sgl sgl_mpi) # who builds the command alone can start ranks with it
  endif()
  install(TARGETS sgl_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
else()
  set(SGL_HAVE_MPI OFF)
  message(STATUS "No MPI found (mpi.h, libmpi): libsgl_mpi.so is left out, and training has one rank; "
    "libopenmpi-dev brings it")
endif()
