/* utf8.c -- decoding UTF-8: no longer forms than needed, no halves of surrogate pairs; escapes. */
#include "utf8.h"
#include "mem.h"
#include <stdio.h>
#include <string.h>

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

/* Number of bytes of the character at s if it may be shown; 0: it is not well-formed, a control character, or
 * one that changes the direction of writing. */
static int visible(const char *s)
{
    uint32_t c;
    int n = utf8_character(s, &c);
    bool turns = (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    return turns || utf8_control(c) ? 0 : n;
}

char *text_escape(const char *text, bool keep(const char *at))
{
    char *out = mem_new(4 * strlen(text) + 1, 1), *p = out;
    for (const char *s = text; *s;) {
        int n = visible(s);
        if (n == 0 && keep && keep(s))
            n = 1;
        if (n == 0) {
            p += sprintf(p, "\\x%02x", (unsigned)(unsigned char)*s++);
            continue;
        }
        memcpy(p, s, (size_t)n);
        p += n;
        s += n;
    }
    *p = 0;
    return out;
}
