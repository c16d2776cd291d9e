/* image.h -- what a compiled kernel's image says of it: an ELF file, or a fatbin with ELF files in it that are not compressed.
 *
 * In: the bytes that a module is loaded from. Out: whether it has a kernel of a name, and how many bytes of arguments that takes. */
#ifndef CUDA_IMAGE_H
#define CUDA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

bool image_is_one(const char *image);
/* *argument_bytes: 0 where the image does not say. */
bool image_has_kernel(const char *image, const char *name, size_t *argument_bytes);

#endif
