# The module libsgl_cuda.so: built where the CUDA toolkit is (nvcc, cuda.h, cublasLt.h), left out with a note where it is not. It stands
# at the top of the build folder and is installed beside libsgl.so; vm/core/module.c looks for it there.
# Each backend/cuda/kernels/*.cu becomes one fatbin by nvcc, and each kernels/*.cuh a text for NVRTC; the generated file
# cuda_embedded.c holds both (backend/cuda/embedded.h). Files are found by glob.
# Out: SGL_HAVE_CUDA, SGL_CUDA_INCLUDE, SGL_CUDA_LIBRARIES.
# Odd invariant: no language CUDA is enabled and nothing of the toolkit is linked: the driver and its libraries are opened
# when a device opens (backend/cuda/library.c).

find_program(SGL_NVCC nvcc HINTS $ENV{CUDA_PATH}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
set(SGL_HAVE_CUDA OFF)
if(SGL_NVCC)
  get_filename_component(SGL_CUDA_ROOT ${SGL_NVCC} REALPATH)
  get_filename_component(SGL_CUDA_ROOT ${SGL_CUDA_ROOT} DIRECTORY)
  get_filename_component(SGL_CUDA_ROOT ${SGL_CUDA_ROOT} DIRECTORY)
  find_path(SGL_CUDA_INCLUDE cuda.h HINTS ${SGL_CUDA_ROOT}/include /usr/local/cuda/include)
endif()

# compute_90a: instructions that only sm_90 has. PTX serves the architectures between and after.
# A sanitized build runs on no GPU, nor does one for its warnings: one architecture shows that the kernels compile.
if(SGL_SANITIZE)
  option(SGL_CUDA_ONE_ARCHITECTURE "Compile the kernels for sm_90a alone" ON)
else()
  option(SGL_CUDA_ONE_ARCHITECTURE "Compile the kernels for sm_90a alone" OFF)
endif()
if(SGL_CUDA_ONE_ARCHITECTURE)
  set(SGL_CUDA_ARCHITECTURES -gencode=arch=compute_90a,code=sm_90a)
else()
  set(SGL_CUDA_ARCHITECTURES
    -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
    -gencode=arch=compute_90a,code=sm_90a)
endif()
# A product and a sum of two ops never become one fma: --fmad=false; where one belongs inside of one op, the source says so.
set(SGL_CUDA_FLAGS -std=c++17 --fmad=false ${SGL_CUDA_ARCHITECTURES})
if(SGL_WERROR)
  list(APPEND SGL_CUDA_FLAGS -Werror all-warnings)
endif()
# A sixth of the bytes. Tests look for kernels in fatbins (tests/cuda/image.c), which compressed ones do not show.
if(SGL_TESTS)
  option(SGL_CUDA_COMPRESS "Compress the kernels of libsgl_cuda.so" OFF)
else()
  option(SGL_CUDA_COMPRESS "Compress the kernels of libsgl_cuda.so" ON)
endif()
if(NOT SGL_CUDA_COMPRESS)
  list(APPEND SGL_CUDA_FLAGS -no-compress)
elseif(SGL_NVCC)
  execute_process(COMMAND ${SGL_NVCC} --help OUTPUT_VARIABLE help ERROR_QUIET)
  if(help MATCHES "--compress-mode")
    list(APPEND SGL_CUDA_FLAGS --compress-mode=size)
  endif()
endif()

# nvcc needs a C++ compiler of the host, of a version that it knows: one small kernel shows whether all of it is there.
if(SGL_CUDA_INCLUDE AND NOT DEFINED SGL_NVCC_WORKS)
  set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/cuda_probe)
  file(WRITE ${probe}.cu "extern \"C\" __global__ void probe(int *at) { *at = 1; }\n")
  execute_process(COMMAND ${SGL_NVCC} ${SGL_CUDA_FLAGS} -fatbin -o ${probe}.fatbin ${probe}.cu
    RESULT_VARIABLE failed OUTPUT_VARIABLE words ERROR_VARIABLE words)
  if(failed)
    message(STATUS "${SGL_NVCC} cannot compile a kernel: ${words}")
    set(SGL_NVCC_WORKS OFF CACHE INTERNAL "nvcc compiles a kernel")
  else()
    set(SGL_NVCC_WORKS ON CACHE INTERNAL "nvcc compiles a kernel")
  endif()
endif()

if(NOT SGL_CUDA_INCLUDE OR NOT EXISTS ${SGL_CUDA_INCLUDE}/cublasLt.h OR NOT SGL_NVCC_WORKS)
  message(STATUS "No CUDA toolkit found (nvcc, cuda.h, cublasLt.h): libsgl_cuda.so is left out; CUDA_PATH names where it lies")
  return()
endif()
set(SGL_HAVE_CUDA ON)
find_path(SGL_CUDA_LIBRARIES libnvrtc.so HINTS ${SGL_CUDA_ROOT}/lib64 ${SGL_CUDA_ROOT}/lib
  ${SGL_CUDA_ROOT}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib NO_DEFAULT_PATH)

# ---- kernels and headers as bytes of the module -----------------------------------------------------------------------
file(GLOB SGL_CUDA_KERNELS CONFIGURE_DEPENDS backend/cuda/kernels/*.cu)
file(GLOB SGL_CUDA_PRELUDE CONFIGURE_DEPENDS backend/cuda/kernels/*.cuh)
list(SORT SGL_CUDA_KERNELS)
list(SORT SGL_CUDA_PRELUDE)
set(generated ${CMAKE_BINARY_DIR}/generated/cuda)
file(MAKE_DIRECTORY ${generated})
set(parts "")
set(kernel_rows "")
set(prelude_rows "")
set(arrays "")

# sgl_cuda_embed(rows name file): the bytes of a file, with a zero behind them, and its row in a table.
macro(sgl_cuda_embed rows name file)
  string(MAKE_C_IDENTIFIER ${name} symbol)
  string(APPEND arrays "SGLCUDA_EMBED(${symbol}, \"${file}\")\n")
  string(APPEND ${rows} "    { \"${name}\", sglcuda_bytes_${symbol}, sglcuda_end_${symbol} },\n")
  list(APPEND parts ${file})
endmacro()

# A build that is there for its compiler's warnings takes the kernels of another one, which nvcc has made already.
set(SGL_CUDA_KERNELS_OF "" CACHE PATH "A build folder whose compiled kernels are taken, where it has them; empty: none")
foreach(source IN LISTS SGL_CUDA_KERNELS)
  get_filename_component(name ${source} NAME_WE)
  set(made ${SGL_CUDA_KERNELS_OF}/generated/cuda/${name}.fatbin)
  if(SGL_CUDA_KERNELS_OF AND EXISTS ${made})
    sgl_cuda_embed(kernel_rows ${name} ${made})
    continue()
  endif()
  add_custom_command(OUTPUT ${generated}/${name}.fatbin
    COMMAND ${SGL_NVCC} ${SGL_CUDA_FLAGS} -fatbin -I ${CMAKE_SOURCE_DIR} -MMD -MF ${generated}/${name}.d
      -o ${generated}/${name}.fatbin ${source}
    DEPENDS ${source} DEPFILE ${generated}/${name}.d
    COMMENT "Compiling kernels ${name}.cu" VERBATIM)
  sgl_cuda_embed(kernel_rows ${name} ${generated}/${name}.fatbin)
endforeach()
foreach(source IN LISTS SGL_CUDA_PRELUDE)
  get_filename_component(name ${source} NAME)
  sgl_cuda_embed(prelude_rows ${name} ${source})
endforeach()

set(SGL_CUDA_EMBEDDED ${generated}/embedded.c)
file(CONFIGURE OUTPUT ${SGL_CUDA_EMBEDDED} @ONLY CONTENT [[
/* Generated by cmake/cuda.cmake; declared in backend/cuda/embedded.h. */
#include "backend/cuda/embedded.h"

#define SGLCUDA_EMBED(name, file)                                                                                      \
    __asm__(".section .rodata\n.balign 16\n.hidden sglcuda_bytes_" #name "\n.global sglcuda_bytes_" #name             \
            "\nsglcuda_bytes_" #name ":\n.incbin \"" file "\"\n.hidden sglcuda_end_" #name "\n.global sglcuda_end_"   \
            #name "\nsglcuda_end_" #name ":\n.byte 0\n.previous\n");                                                   \
    extern const char sglcuda_bytes_##name[], sglcuda_end_##name[];

@arrays@
const sglcuda_embedded sglcuda_kernels[] = {
@kernel_rows@    { 0, 0, 0 },
};
const sglcuda_embedded sglcuda_prelude[] = {
@prelude_rows@    { 0, 0, 0 },
};
]])
set_source_files_properties(${SGL_CUDA_EMBEDDED} PROPERTIES OBJECT_DEPENDS "${parts}")

# ---- the module -----------------------------------------------------------------------------------------------------
# The objects serve the module, and tests of what the module hides.
file(GLOB SGL_CUDA_SOURCES CONFIGURE_DEPENDS backend/cuda/*.c)
add_library(sgl_cuda_objects OBJECT ${SGL_CUDA_SOURCES} ${SGL_CUDA_EMBEDDED})
target_include_directories(sgl_cuda_objects PRIVATE vm .)
target_include_directories(sgl_cuda_objects SYSTEM PRIVATE ${SGL_CUDA_INCLUDE})
target_compile_definitions(sgl_cuda_objects PRIVATE SGLCUDA_TOOLKIT="${SGL_CUDA_LIBRARIES}")
set_target_properties(sgl_cuda_objects PROPERTIES C_VISIBILITY_PRESET hidden)
add_library(sgl_cuda MODULE $<TARGET_OBJECTS:sgl_cuda_objects>)
# Of the archive only what is needed comes along, and none of its names leaves the module.
target_link_libraries(sgl_cuda PRIVATE $<TARGET_FILE:sgl_static> ${SGL_XXHASH_ARCHIVE} ${SGL_SYSTEM_LIBRARIES})
add_dependencies(sgl_cuda sgl_static)
target_link_options(sgl_cuda PRIVATE -Wl,--exclude-libs,ALL)
if(NOT SGL_SANITIZE)
  target_link_options(sgl_cuda PRIVATE -Wl,-z,defs)
endif()
set_target_properties(sgl_cuda PROPERTIES OUTPUT_NAME sgl_cuda LINKER_LANGUAGE C)
install(TARGETS sgl_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
