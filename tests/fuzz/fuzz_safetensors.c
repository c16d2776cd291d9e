/* fuzz_safetensors.c -- libFuzzer entry: any bytes as a safetensors file. What must hold is in safetensors_bytes.h.
 *
 * No part of ctest; built and run by hand from the repository, with a folder of seeds (any safetensors files):
 *   clang-14 -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -Ivm -Itests/unit \
 *     tests/fuzz/fuzz_safetensors.c vm/store/safetensors.c vm/store/json.c vm/core/[a-z]*.c -lxxhash -lm \
 *     -o /tmp/fuzz_safetensors
 *   /tmp/fuzz_safetensors -max_len=4096 -timeout=5 SEEDS
 * An input that fails becomes a case of tests/unit/test_store_safetensors.c. */
#include "safetensors_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    (void)safetensors_bytes_try(data, bytes, NULL);
    return 0;
}
