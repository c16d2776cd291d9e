# Compiler and linker flags of every target: warnings, sanitizers, hard mode, dead-section removal.
# In: SGL_WERROR, SGL_SANITIZE, SGL_HARD_MODE, SGL_TESTS. Optimisation levels are set with the build types in CMakeLists.txt.

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
  -ffunction-sections -fdata-sections
  -ffp-contract=off) # a product and a sum are one fma only where the source says so (backend/cpu/isa/float_ops.h)
add_link_options(-Wl,--gc-sections -Wl,--as-needed)

if(SGL_WERROR)
  add_compile_options(-Werror)
endif()

if(SGL_HARD_MODE)
  add_compile_definitions(SGL_HARD_MODE=1)
endif()

if(SGL_TESTS) # vm/core/broken.h: decisions that a test can break
  add_compile_definitions(SGL_BREAKS=1)
endif()

if(SGL_SANITIZE)
  string(REPLACE "," ";" SGL_SANITIZERS "${SGL_SANITIZE}")
  foreach(sanitizer IN LISTS SGL_SANITIZERS)
    if(NOT sanitizer MATCHES "^(address|undefined|thread)$")
      message(FATAL_ERROR "SGL_SANITIZE: '${sanitizer}' is none of address, undefined, thread")
    endif()
  endforeach()
  add_compile_options(-fsanitize=${SGL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SGL_SANITIZE})
endif()
