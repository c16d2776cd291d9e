/* io.c -- files: the POSIX table of operations, and whole files read and written through whatever table the env has.
 *
 * In: paths and bytes. Out: a status whose message names the action, the path and the reason. A file is only ever
 * replaced by a rename of a complete, synced one, whose name in the making is unique: that needs no lock. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io.h"

/* ---- POSIX -------------------------------------------------------------------------------------------------- */

static int posix_open(const char *path, int flags, int *fd)
{
    do {
        *fd = open(path, flags | O_CLOEXEC, 0666);
    } while (*fd < 0 && errno == EINTR);
    return *fd < 0 ? -1 : 0;
}

static int posix_open_read(void *user, const char *path, int *fd)
{
    (void)user;
    return posix_open(path, O_RDONLY | O_NONBLOCK, fd);
}

static int posix_open_write(void *user, const char *path, int *fd)
{
    (void)user;
    return posix_open(path, O_WRONLY | O_CREAT | O_TRUNC, fd);
}

static int posix_read_at(void *user, int fd, void *data, size_t bytes, int64_t offset, size_t *got)
{
    (void)user;
    *got = 0;
    while (*got < bytes) {
        ssize_t done = pread(fd, (char *)data + *got, bytes - *got, (off_t)(offset + (int64_t)*got));
        if (done == 0) return 0;
        if (done > 0) {
            *got += (size_t)done;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

static int posix_write(void *user, int fd, const void *data, size_t bytes)
{
    (void)user;
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(fd, at, bytes);
        if (done >= 0) {
            at += done;
            bytes -= (size_t)done;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

static int posix_sync(void *user, int fd)
{
    (void)user;
    int result;
    do {
        result = fsync(fd);
    } while (result != 0 && errno == EINTR);
    return result;
}

static int posix_close(void *user, int fd)
{
    (void)user;
    return close(fd) != 0 && errno != EINTR ? -1 : 0; /* on EINTR Linux has closed it: again would hit another's fd */
}

static int posix_size(void *user, int fd, int64_t *bytes)
{
    (void)user;
    struct stat facts;
    if (fstat(fd, &facts) != 0) return -1;
    if (S_ISDIR(facts.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    if (!S_ISREG(facts.st_mode)) {
        errno = ESPIPE;
        return -1;
    }
    *bytes = (int64_t)facts.st_size;
    return 0;
}

static int posix_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to);
}

static int posix_remove(void *user, const char *path)
{
    (void)user;
    return remove(path);
}

static int posix_make_dir(void *user, const char *path)
{
    (void)user;
    struct stat facts;
    if (mkdir(path, 0777) == 0) return 0;
    if (errno != EEXIST) return -1;
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) return 0;
    errno = ENOTDIR;
    return -1;
}

static int posix_sync_dir(void *user, const char *path)
{
    int fd;
    if (posix_open(path, O_RDONLY | O_DIRECTORY, &fd) != 0) return -1;
    int result = posix_sync(user, fd);
    if (result != 0 && errno == EINVAL) result = 0; /* a file system without synced folders keeps its own order */
    int reason = errno;
    (void)posix_close(user, fd); /* nothing was written through it */
    errno = reason;
    return result;
}

static int posix_list(void *user, const char *path, int (*each)(void *context, const char *name), void *context)
{
    (void)user;
    DIR *folder = opendir(path);
    if (folder == NULL) return -1;
    int result = 0;
    while (result == 0) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            result = errno != 0 ? -1 : 0;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) result = each(context, entry->d_name);
    }
    int reason = errno;
    closedir(folder);
    errno = reason;
    return result;
}

static int posix_lock(void *user, const char *path, int *fd)
{
    (void)user;
    if (posix_open(path, O_RDWR | O_CREAT, fd) != 0) return -1;
    int result;
    do {
        result = flock(*fd, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    int reason = errno;
    (void)posix_close(user, *fd); /* nothing was written through it */
    errno = reason;
    return -1;
}

const sglcore_io sglcore_io_posix = {
    .open_read = posix_open_read,
    .open_write = posix_open_write,
    .read_at = posix_read_at,
    .write = posix_write,
    .sync = posix_sync,
    .close = posix_close,
    .size = posix_size,
    .rename = posix_rename,
    .remove = posix_remove,
    .make_dir = posix_make_dir,
    .sync_dir = posix_sync_dir,
    .list = posix_list,
    .lock = posix_lock,
};

/* ---- whole files -------------------------------------------------------------------------------------------- */

sgl_status sglcore_fail_io(sglcore_env *env, const char *action, const char *path)
{
    int reason = errno;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* strerror itself is not safe among threads */
    const char *text = c != (locale_t)0 ? strerror_l(reason, c) : "the system gave no reason";
    sgl_status status = reason == ENOENT ? SGL_NOT_FOUND : SGL_IO;
    sglcore_fail(env, status, "cannot %s %s: %s", action, path, text);
    if (c != (locale_t)0) freelocale(c);
    return status;
}

/* Reads to the end, whatever size the file said it has (files under /proc say 0). */
static sgl_status read_to_end(sglcore_env *env, int fd, const char *path, char **data, int64_t *bytes)
{
    const sglcore_io *io = env->io;
    int64_t size;
    if (io->size(io->user, fd, &size) != 0) return sglcore_fail_io(env, "read", path);
    sglcore_text text = { 0 };
    int64_t more = size + 1; /* the one beyond shows that the end is the end, and holds the zero */
    for (;;) {
        sgl_status status = sglcore_vec_reserve(env, &text, more);
        if (status != SGL_OK) {
            sglcore_text_free(env, &text);
            return sglcore_fail_at(env, status, "%s", path);
        }
        size_t room = (size_t)(text.capacity - text.count), got;
        if (io->read_at(io->user, fd, text.data + text.count, room, text.count, &got) != 0) {
            sglcore_text_free(env, &text);
            return sglcore_fail_io(env, "read", path);
        }
        text.count += (int64_t)got;
        if (got < room) break;
        more = text.count;
    }
    char *exact = sglcore_realloc(env, text.data, (size_t)text.capacity, (size_t)text.count + 1);
    if (exact == NULL) {
        sglcore_text_free(env, &text);
        return sglcore_fail_at(env, SGL_OUT_OF_MEMORY, "%s", path);
    }
    exact[text.count] = '\0';
    *data = exact;
    *bytes = text.count;
    return SGL_OK;
}

sgl_status sglcore_read_file(sglcore_env *env, const char *path, char **data, int64_t *bytes)
{
    const sglcore_io *io = env->io;
    int fd;
    *data = NULL;
    *bytes = 0;
    if (io->open_read(io->user, path, &fd) != 0) return sglcore_fail_io(env, "open", path);
    sgl_status status = read_to_end(env, fd, path, data, bytes);
    if (io->close(io->user, fd) != 0 && status == SGL_OK) {
        status = sglcore_fail_io(env, "close", path);
        sglcore_free(env, *data, (size_t)*bytes + 1);
        *data = NULL;
        *bytes = 0;
    }
    return status;
}

static sgl_status write_synced(sglcore_env *env, const char *path, const void *data, int64_t bytes)
{
    const sglcore_io *io = env->io;
    int fd;
    if (io->open_write(io->user, path, &fd) != 0) return sglcore_fail_io(env, "create", path);
    sgl_status status = SGL_OK;
    if (io->write(io->user, fd, data, (size_t)bytes) != 0) status = sglcore_fail_io(env, "write", path);
    if (status == SGL_OK && io->sync(io->user, fd) != 0) status = sglcore_fail_io(env, "sync", path);
    if (io->close(io->user, fd) != 0 && status == SGL_OK) status = sglcore_fail_io(env, "close", path);
    return status;
}

/* The folder that a path lies in. */
static sgl_status add_folder(sglcore_env *env, sglcore_text *text, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return sglcore_text_bytes(env, text, ".", 1);
    return sglcore_text_bytes(env, text, path, slash == path ? 1 : (size_t)(slash - path));
}

sgl_status sglcore_replace_file(sglcore_env *env, const char *path,
                                sgl_status (*make)(sglcore_env *env, void *user, const char *beside), void *user)
{
    const sglcore_io *io = env->io;
    sglcore_text beside = { 0 }, folder = { 0 };
    sgl_status status = add_folder(env, &folder, path);
    /* Thread and clock: neither another rank on this machine nor one on a shared file system meets this name. */
    if (status == SGL_OK) {
        status = sglcore_text_add(env, &beside, "%s.tmp-%ld-%llx", path, (long)gettid(),
                                  (unsigned long long)sglcore_now_ns());
    }
    if (status == SGL_OK) {
        status = make(env, user, beside.data);
        if (status == SGL_OK && io->rename(io->user, beside.data, path) != 0) {
            status = sglcore_fail_io(env, "rename a finished file to", path);
        }
        if (status != SGL_OK) {
            (void)io->remove(io->user, beside.data); /* best effort: the failure to report stands already */
        } else if (io->sync_dir(io->user, folder.data) != 0) {
            status = sglcore_fail_io(env, "sync the folder", folder.data);
        }
    }
    sglcore_text_free(env, &beside);
    sglcore_text_free(env, &folder);
    return status;
}

typedef struct content {
    const void *data;
    int64_t bytes;
} content;

static sgl_status write_content(sglcore_env *env, void *user, const char *beside)
{
    const content *c = user;
    return write_synced(env, beside, c->data, c->bytes);
}

sgl_status sglcore_write_file(sglcore_env *env, const char *path, const void *data, int64_t bytes)
{
    return sglcore_replace_file(env, path, write_content, &(content){ data, bytes });
}

/* ---- removing a folder -------------------------------------------------------------------------------------- */

typedef struct name_list {
    sglcore_env *env;
    sglcore_text names; /* each with its terminating zero */
    sgl_status status;
} name_list;

static int add_name(void *context, const char *name)
{
    name_list *list = context;
    list->status = sglcore_text_bytes(list->env, &list->names, name, strlen(name) + 1);
    return list->status == SGL_OK ? 0 : -1;
}

static sgl_status remove_named(sglcore_env *env, const char *folder, const name_list *list)
{
    const sglcore_io *io = env->io;
    sglcore_text path = { 0 };
    sgl_status status = SGL_OK;
    for (int64_t at = 0; status == SGL_OK && at < list->names.count;) {
        const char *name = list->names.data + at;
        path.count = 0;
        status = sglcore_text_add(env, &path, "%s/%s", folder, name);
        if (status == SGL_OK && io->remove(io->user, path.data) != 0 && errno != ENOENT) {
            status = sglcore_fail_io(env, "remove", path.data);
        }
        at += (int64_t)strlen(name) + 1;
    }
    sglcore_text_free(env, &path);
    return status;
}

sgl_status sglcore_remove_dir(sglcore_env *env, const char *path)
{
    const sglcore_io *io = env->io;
    name_list list = { .env = env, .status = SGL_OK }; /* listed first: removing while listing may skip names */
    sgl_status status = SGL_OK;
    if (io->list(io->user, path, add_name, &list) != 0) {
        bool missing = list.status == SGL_OK && errno == ENOENT;
        if (!missing) status = list.status != SGL_OK ? list.status : sglcore_fail_io(env, "list", path);
        sglcore_text_free(env, &list.names);
        return status;
    }
    status = remove_named(env, path, &list);
    if (status == SGL_OK && io->remove(io->user, path) != 0 && errno != ENOENT) {
        status = sglcore_fail_io(env, "remove", path);
    }
    sglcore_text_free(env, &list.names);
    return status;
}
