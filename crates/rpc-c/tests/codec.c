/* Decodes what it reads with the generated routines and encodes it again: a length, then bytes, both ways; a length of -1: they are none. */
#include "torture.h"
#include <stdio.h>

static char in[1 << 16];

int main(void) {
    uint32_t length;
    while (fread(&length, 4, 1, stdin) == 1) {
        everything value;
        uint32_t answer = (uint32_t)-1;
        unsigned char *out = NULL;
        if (length > sizeof in || fread(in, 1, length, stdin) != length) return 1;
        memset(&value, 0, sizeof value);
        if (shunt_xdr_decode(everything_xdr, &value, in, length)) {
            size_t written;
            out = shunt_xdr_encode(everything_xdr, &value, &written);
            if (out != NULL) answer = (uint32_t)written;
            shunt_xdr_free(everything_xdr, &value);
        }
        fwrite(&answer, 4, 1, stdout);
        if (out != NULL) fwrite(out, 1, answer, stdout);
        free(out);
    }
    return 0;
}
