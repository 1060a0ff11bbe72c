/* utf8.c -- decoding UTF-8: no longer forms than needed, no halves of surrogate pairs. */
#include "utf8.h"

int utf8_character(const char *s, uint32_t *c)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)s;
    int n = u[0] < 0x80 ? 1 : u[0] >> 5 == 6 ? 2 : u[0] >> 4 == 14 ? 3 : u[0] >> 3 == 30 ? 4 : 0;
    *c = n == 1 ? u[0] : u[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (u[i] >> 6 != 2)
            return 0;
        *c = *c << 6 | (u[i] & 0x3f);
    }
    return *c < least[n] || *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000) ? 0 : n;
}

bool utf8_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }
