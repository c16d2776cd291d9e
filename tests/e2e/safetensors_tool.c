/* safetensors_tool.c -- what safetensors.sh holds against Python: writes files of the store, prints what it reads.
 *
 *   safetensors_tool write FOLDER   all.safetensors (every dtype), numpy.safetensors (those that numpy has), and a
 *                                   checkpoint run/step-00000003; byte i of tensor t is (31 t + i) mod 251, of bool mod 2
 *   safetensors_tool print FILE     one line an entry: name, dtype, shape, bytes in hexadecimal */
#include <stdio.h>
#include <string.h>

#include "store/store.h"

typedef struct tensor {
    char name[32];
    int number;
    bool is_bool;
} tensor;

static sgl_status read_tensor(void *user, int64_t offset, void *data, int64_t bytes)
{
    const tensor *t = user;
    for (int64_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = (unsigned char)((31 * t->number + offset + i) % 251 % (t->is_bool ? 2 : 256));
    return SGL_OK;
}

enum { TENSORS = SGL_DTYPE_COUNT + 2 };

/* The narrowest first, so that whoever does not order them writes misaligned data. */
static int make_sources(tensor *tensors, sglstore_source *sources, bool all)
{
    int count = 0;
    for (int i = SGL_DTYPE_COUNT - 1; i >= 0; i--) {
        bool foreign = i == SGL_BF16 || i == SGL_F8E4M3 || i == SGL_F8E5M2; /* to numpy */
        if (i == SGL_I4 || (foreign && !all)) continue;
        tensors[count] = (tensor){ .number = count, .is_bool = i == SGL_BOOL };
        snprintf(tensors[count].name, sizeof tensors[count].name, "of.%s", sgl_dtype_name((sgl_dtype)i));
        sources[count].type = (sgl_type){ (sgl_dtype)i, 2, { 3, 5 } };
        count++;
    }
    for (int i = 0; i < 2; i++, count++) {
        tensors[count] = (tensor){ .number = count };
        snprintf(tensors[count].name, sizeof tensors[count].name, "%s", i ? "scalar \"caf\xC3\xA9\"\n" : "empty");
        sources[count].type = i ? (sgl_type){ SGL_F32, 0, { 0 } } : (sgl_type){ SGL_F32, 2, { 0, 4 } };
    }
    for (int i = 0; i < count; i++) {
        sources[i].name = tensors[i].name;
        sources[i].box = NULL; /* the whole */
        sources[i].role = i % 2 ? SGL_STATE : SGL_PARAMETER;
        sources[i].user = &tensors[i];
        sources[i].read = read_tensor;
    }
    return count;
}

static sgl_status write_all(sglcore_env *env, const char *folder)
{
    tensor tensors[TENSORS];
    sglstore_source sources[TENSORS];
    char path[4096];
    snprintf(path, sizeof path, "%s/all.safetensors", folder);
    SGLCORE_TRY(sglstore_tensors_write(env, path, sources, make_sources(tensors, sources, true), NULL, NULL));
    snprintf(path, sizeof path, "%s/none.safetensors", folder);
    SGLCORE_TRY(sglstore_tensors_write(env, path, NULL, 0, NULL, NULL));
    snprintf(path, sizeof path, "%s/numpy.safetensors", folder);
    int count = make_sources(tensors, sources, false);
    SGLCORE_TRY(sglstore_tensors_write(env, path, sources, count, NULL, NULL));
    snprintf(path, sizeof path, "%s/run", folder);
    return sglstore_checkpoint_save(env, path, 3, "{\"caf\xC3\xA9\": 1}", sources, count, 1);
}

static sgl_status print_entry(sglstore_tensors *file, int64_t index)
{
    sgl_type type;
    int64_t bytes;
    const char *name = sglstore_tensors_entry(file, index, &type, NULL, &bytes);
    printf("%s %s", name, sgl_dtype_name(type.dtype));
    for (int i = 0; i < type.rank; i++) printf("%c%lld", i ? ',' : ' ', (long long)type.dims[i]);
    printf(" ");
    for (int64_t i = 0; i < bytes; i++) {
        unsigned char byte;
        SGLCORE_TRY(sglstore_tensors_read(file, index, i, &byte, 1));
        printf("%02x", byte);
    }
    printf("\n");
    return SGL_OK;
}

static sgl_status print_all(sglcore_env *env, const char *path)
{
    sglstore_tensors *file;
    SGLCORE_TRY(sglstore_tensors_open(env, path, &file));
    sgl_status status = SGL_OK;
    for (int64_t i = 0; i < sglstore_tensors_count(file) && status == SGL_OK; i++) status = print_entry(file, i);
    sglstore_tensors_close(file);
    return status;
}

int main(int count, char **arguments)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    if (count != 3) return 2;
    sgl_status status =
        strcmp(arguments[1], "write") == 0 ? write_all(&env, arguments[2]) : print_all(&env, arguments[2]);
    if (status != SGL_OK) fprintf(stderr, "%s\n", env.message);
    return status != SGL_OK || env.bytes_in_use != 0;
}
