/* image.c -- reads the sections of the ELF files of kernels. In and out: image.h.
 *
 * A kernel NAME is the section .text.NAME; what it takes stands in .nv.info.NAME, among records of a format byte, a byte that says what
 * it is, and two bytes that are the value, or the length of what follows. Odd invariant: an ELF file within a fatbin is found by
 * its first bytes and machine, since the fatbin's own headers are no published format. */
#include "image.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    MACHINE = 190, /* EM_CUDA */
    FATBIN = (int)0xba55ed50,
    FATBIN_HEAD = 16,
    FORMAT_SIZED = 4,    /* what follows has the length that the value says */
    KIND_PARAMETERS = 25 /* the value: bytes of arguments */
};

static bool is_elf(const char *at)
{
    Elf64_Ehdr head;
    memcpy(&head, at, sizeof head);
    return memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_machine == MACHINE;
}

static size_t fatbin_bytes(const char *image)
{
    uint32_t magic;
    uint16_t head;
    uint64_t rest;
    memcpy(&magic, image, sizeof magic);
    memcpy(&head, image + 6, sizeof head);
    memcpy(&rest, image + 8, sizeof rest);
    return (int)magic == FATBIN && head >= FATBIN_HEAD ? (size_t)(head + rest) : 0;
}

bool image_is_one(const char *image) { return is_elf(image) || fatbin_bytes(image) > 0; }

static size_t parameters_in(const char *records, size_t bytes)
{
    for (size_t at = 0; at + 4 <= bytes;) {
        uint16_t value;
        memcpy(&value, records + at + 2, sizeof value);
        if (records[at + 1] == KIND_PARAMETERS) return value;
        at += 4 + (records[at] == FORMAT_SIZED ? value : 0);
    }
    return 0;
}

static bool elf_has(const char *elf, const char *name, size_t *argument_bytes)
{
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    char code[512], info[512];
    bool found = false;
    memcpy(&head, elf, sizeof head);
    memcpy(&names, elf + head.e_shoff + (size_t)head.e_shstrndx * head.e_shentsize, sizeof names);
    snprintf(code, sizeof code, ".text.%s", name);
    snprintf(info, sizeof info, ".nv.info.%s", name);
    for (int i = 0; i < head.e_shnum; i++) {
        memcpy(&section, elf + head.e_shoff + (size_t)i * head.e_shentsize, sizeof section);
        const char *called = elf + names.sh_offset + section.sh_name;
        if (strcmp(called, code) == 0) found = true;
        if (strcmp(called, info) == 0) *argument_bytes = parameters_in(elf + section.sh_offset, section.sh_size);
    }
    return found;
}

bool image_has_kernel(const char *image, const char *name, size_t *argument_bytes)
{
    *argument_bytes = 0;
    if (is_elf(image)) return elf_has(image, name, argument_bytes);
    const size_t bytes = fatbin_bytes(image);
    for (size_t at = FATBIN_HEAD; at + sizeof(Elf64_Ehdr) < bytes; at += 8)
        if (is_elf(image + at)) return elf_has(image + at, name, argument_bytes);
    return false;
}
