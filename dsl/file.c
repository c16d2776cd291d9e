/* file.c -- reading a script's file, and saying which one was meant when it is not there.
 *
 * Comes in: a path. Goes out: bytes in the caller's memory, or a status with the path in its message. Only regular files of
 * at most SGLDSL_SCRIPT_BYTES are scripts. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsl/dsl.h"

/* The name nearest to `name` among the files of the folder, into `nearest`. */
static bool find_nearest(const char *folder, const char *name, char nearest[256])
{
    DIR *listing = opendir(folder);
    if (listing == NULL) return false;
    bool found = false;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.' || sgldsl_nearer(name, found ? nearest : NULL, entry->d_name) != entry->d_name)
            continue;
        found = true;
        strcpy(nearest, entry->d_name); /* 255 bytes at most */
    }
    closedir(listing);
    return found;
}

static sgl_status not_there(sgl_vm *vm, const char *path)
{
    char folder[512], nearest[256];
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t length = (size_t)(name - path);
    if (length < sizeof folder) {
        memcpy(folder, path, length);
        folder[length] = '\0';
        if (find_nearest(length > 0 ? folder : ".", name, nearest)) {
            return sgl_fail(vm, SGL_NOT_FOUND, "%s: there is no such file; did you mean '%s%s'?", path, folder,
                            nearest);
        }
    }
    return sgl_fail(vm, SGL_NOT_FOUND, "%s: there is no such file", path);
}

sgl_status sgldsl_file_bytes(sgl_vm *vm, const char *path, size_t *bytes)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        if (errno == ENOENT) return not_there(vm, path);
        return sgl_fail(vm, SGL_IO, "%s: cannot be read: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return sgl_fail(vm, SGL_IO, "%s: is %s, not a file", path, S_ISDIR(info.st_mode) ? "a folder" : "a device");
    }
    if (info.st_size > SGLDSL_SCRIPT_BYTES) {
        return sgl_fail(vm, SGL_LIMIT, "%s: has %lld bytes, a script has at most %d", path, (long long)info.st_size,
                        SGLDSL_SCRIPT_BYTES);
    }
    *bytes = (size_t)info.st_size;
    return SGL_OK;
}

sgl_status sgldsl_file_read(sgl_vm *vm, const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return sgl_fail(vm, SGL_IO, "%s: cannot be read: %s", path, strerror(errno));
    size_t done = 0;
    ssize_t got = 1;
    while (done < bytes && got > 0) {
        got = read(fd, text + done, bytes - done);
        if (got > 0) done += (size_t)got;
        if (got < 0 && errno == EINTR) got = 1;
    }
    int error = errno;
    close(fd);
    if (got < 0) return sgl_fail(vm, SGL_IO, "%s: cannot be read: %s", path, strerror(error));
    if (done < bytes) return sgl_fail(vm, SGL_IO, "%s: became shorter while it was read", path);
    return SGL_OK;
}
