/* Decodes what it reads with rpcgen's code and encodes it again: a length, then bytes, both ways; a length of -1: they are none. */
#include "torture.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char in[1 << 16], out[1 << 16];

int main(void) {
    uint32_t length;
    while (fread(&length, 4, 1, stdin) == 1) {
        everything value;
        XDR xdrs;
        uint32_t answer = (uint32_t)-1;
        if (length > sizeof in || fread(in, 1, length, stdin) != length) return 1;
        memset(&value, 0, sizeof value);
        xdrmem_create(&xdrs, in, length, XDR_DECODE);
        if (xdr_everything(&xdrs, &value) && xdr_getpos(&xdrs) == length) {
            XDR back;
            xdrmem_create(&back, out, sizeof out, XDR_ENCODE);
            if (xdr_everything(&back, &value)) answer = xdr_getpos(&back);
        }
        xdr_free((xdrproc_t)xdr_everything, (char *)&value);
        fwrite(&answer, 4, 1, stdout);
        if (answer != (uint32_t)-1) fwrite(out, 1, answer, stdout);
    }
    return 0;
}
