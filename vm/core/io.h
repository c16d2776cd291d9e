/* io.h -- every file operation of the library, as a table of functions, so that a test can fail the n-th of them.
 * Paths are UTF-8; sizes and offsets are bytes. Functions return 0 or -1 with errno set, as POSIX does, and retry EINTR;
 * the wrappers below turn that into a status with a message that names the path: a missing file or folder is
 * SGL_NOT_FOUND, any other failure SGL_IO. */
#ifndef SGLCORE_IO_H
#define SGLCORE_IO_H

#include "core/core.h"

typedef struct sglcore_io {
    void *user;
    int (*open_read)(void *user, const char *path, int *fd);  /* never waits, not even for the writer of a pipe */
    int (*open_write)(void *user, const char *path, int *fd); /* creates or truncates */
    int (*read_at)(void *user, int fd, void *data, size_t bytes, int64_t offset,
                   size_t *got);                                      /* short only at the end */
    int (*write)(void *user, int fd, const void *data, size_t bytes); /* all or -1 */
    int (*sync)(void *user, int fd);
    int (*close)(void *user, int fd);
    int (*size)(void *user, int fd, int64_t *bytes); /* ESPIPE: a pipe or a device, which has none */
    int (*rename)(void *user, const char *from, const char *to);
    int (*remove)(void *user, const char *path);   /* a file or an empty folder */
    int (*make_dir)(void *user, const char *path); /* an existing folder is no error */
    int (*sync_dir)(void *user, const char *path);
    /* Every name but "." and "..", in no order. An `each` that returns other than 0 ends the list, which returns it. */
    int (*list)(void *user, const char *path, int (*each)(void *context, const char *name), void *context);
    int (*lock)(void *user, const char *path,
                int *fd); /* creates the file; EWOULDBLOCK: another holds it; ends at close */
} sglcore_io;

extern const sglcore_io sglcore_io_posix;

/* Fails from errno: "cannot ACTION PATH: REASON". For whoever calls the table above directly. */
sgl_status sglcore_fail_io(sglcore_env *env, const char *action, const char *path);

/* Whole files. On success *data (terminated by a zero byte beyond *bytes) is freed with sglcore_free(.., *bytes + 1). */
sgl_status sglcore_read_file(sglcore_env *env, const char *path, char **data, int64_t *bytes);
/* Beside, synced, renamed, folder synced: a kill at any instant leaves the old file or the new one, and at worst a
 * PATH.tmp-* beside it that nothing reads. */
sgl_status sglcore_write_file(sglcore_env *env, const char *path, const void *data, int64_t bytes);
/* The same for a file that `make` writes and syncs at the path `beside`. */
sgl_status sglcore_replace_file(sglcore_env *env, const char *path,
                                sgl_status (*make)(sglcore_env *env, void *user, const char *beside), void *user);
/* Removes a folder and the files in it, one level; a missing folder is no error. */
sgl_status sglcore_remove_dir(sglcore_env *env, const char *path);

#endif
