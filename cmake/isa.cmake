# The kernels of the CPU backend that exist once per instruction set. Each backend/cpu/isa/*.c is compiled once per
# variant with -DSGLCPU_ISA=<variant>, and pastes that name into its public names (sglcpu_avx2_..., by
# token pasting). The rest of the backend sees SGLCPU_HAVE_<VARIANT>=1 for each variant that was built, and
# chooses among them at start. Out: SGL_ISA_PARTS, the object libraries.
# Odd invariants: no compiler brings a product and a sum together (-ffp-contract=off, cmake/flags.cmake): where an fma is
# meant, the source says so, and a value has the same bits in whichever kernel, lane or tail it is computed. The -O3 stands
# after the build type's level and wins, because kernels are vectorised in every build.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(SGL_ISA_VARIANTS base avx2 avx512)
  set(SGL_ISA_FLAGS_base -msse2)
  set(SGL_ISA_FLAGS_avx2 -mavx2 -mfma)
  set(SGL_ISA_FLAGS_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(SGL_ISA_VARIANTS neon)
  set(SGL_ISA_FLAGS_neon "")
else()
  set(SGL_ISA_VARIANTS base)
  set(SGL_ISA_FLAGS_base "")
endif()
set(SGL_ISA_ONLY "" CACHE STRING "Build kernels for these instruction sets alone (scripts/fuzz: base)")
if(SGL_ISA_ONLY)
  set(SGL_ISA_VARIANTS ${SGL_ISA_ONLY})
endif()

file(GLOB_RECURSE SGL_ISA_SOURCES CONFIGURE_DEPENDS backend/cpu/isa/*.c)
set(SGL_ISA_PARTS "")
foreach(variant IN LISTS SGL_ISA_VARIANTS)
  string(TOUPPER ${variant} upper)
  target_compile_definitions(sgl_objects PRIVATE SGLCPU_HAVE_${upper}=1)
  if(SGL_ISA_SOURCES)
    add_library(sgl_isa_${variant} OBJECT ${SGL_ISA_SOURCES})
    target_include_directories(sgl_isa_${variant} PRIVATE vm .)
    target_compile_definitions(sgl_isa_${variant} PRIVATE SGLCPU_ISA=${variant})
    target_compile_options(sgl_isa_${variant} PRIVATE ${SGL_ISA_FLAGS_${variant}}
      -O3 -fno-math-errno -fno-trapping-math)
    list(APPEND SGL_ISA_PARTS sgl_isa_${variant})
  endif()
endforeach()
