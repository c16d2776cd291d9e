/* fuzz_safetensors.c -- libFuzzer entry: any bytes as a safetensors file. What must hold is in safetensors_bytes.h.
 * An input that fails becomes a case of tests/unit/test_store_safetensors.c. */
#include "safetensors_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    (void)safetensors_bytes_try(data, bytes, NULL);
    return 0;
}
