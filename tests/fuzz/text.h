/* text.h -- mutates text by lines and tokens: numbers become extreme, lines and names move. */
#ifndef CKC_FUZZ_TEXT_H
#define CKC_FUZZ_TEXT_H

#include <ctype.h>
#include "fuzz.h"

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, uint8_t *out,
                                 size_t room, unsigned seed);

typedef struct {
    const char *at;
    size_t n;
} Piece;

enum { PIECES = 4096 };

static const char *const extreme[] = {
    "0", "-0", "1", "-1", "2", "7", "63", "64", "65", "255", "256", "1024", "4095", "4096", "65535", "65536",
    "100000", "1048576", "1000000000000", "2147483647", "2147483648", "-2147483648", "4294967295",
    "4294967296", "1099511627776", "9007199254740993", "1152921504606846976", "4611686018427387904",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e308", "-1e308", "1e-320",
    "nan", "inf", "0x10", "", "_", "%",
};
enum { EXTREMES = sizeof extreme / sizeof *extreme };

static int split(const char *text, size_t n, bool lines, Piece *piece)
{
    int count = 0;
    for (size_t i = 0, from = 0; i <= n && count < PIECES; i++) {
        bool word =
            i < n && (lines ? text[i] != '\n' : isalnum((unsigned char)text[i]) || strchr("_.%-+", text[i]));
        if (word)
            continue;
        if (i > from)
            piece[count++] = (Piece){text + from, i - from};
        from = i + 1;
    }
    return count;
}

/* Writes text with bytes [from, from + n) replaced; returns its size, 0: it does not fit in room. */
static size_t replace(char *out, size_t room, const char *text, size_t size, size_t from, size_t n,
                      const char *by, size_t nby)
{
    if (size - n + nby > room)
        return 0;
    memcpy(out, text, from);
    memcpy(out + from, by, nby);
    memcpy(out + from + nby, text + from + n, size - from - n);
    return size - n + nby;
}

static size_t mutate_number(char *out, size_t room, const char *text, size_t size, unsigned *seed)
{
    static Piece piece[PIECES];
    char near[32];
    int n = split(text, size, false, piece), tries = 50;
    Piece p = {NULL, 0};
    while (n && tries-- && !p.at) {
        Piece q = piece[fuzz_random(seed) % (unsigned)n];
        if (isdigit((unsigned char)q.at[q.n - 1]))
            p = q;
    }
    if (!p.at)
        return 0;
    while (p.n > 1 && !isdigit((unsigned char)*p.at) && *p.at != '-')
        p.at++, p.n--;
    const char *by = extreme[fuzz_random(seed) % EXTREMES];
    if (fuzz_random(seed) % 3 == 0) {
        snprintf(near, sizeof near, "%lld",
                 (long long)((unsigned long long)atoll(p.at) + fuzz_random(seed) % 3 - 1));
        by = near;
    }
    return replace(out, room, text, size, (size_t)(p.at - text), p.n, by, strlen(by));
}

/* Deletes or doubles a line or a token, replaces it by another one, or puts another one in front of it;
 * returns the size, 0: nothing was written. */
static size_t mutate_piece(char *out, size_t room, const char *text, size_t size, bool lines,
                           unsigned *seed)
{
    static Piece piece[PIECES];
    int n = split(text, size, lines, piece);
    if (n < 2)
        return 0;
    Piece a = piece[fuzz_random(seed) % (unsigned)n], b = piece[fuzz_random(seed) % (unsigned)n];
    size_t from = (size_t)(a.at - text), whole = a.n + (from + a.n < size);
    switch (fuzz_random(seed) % 4) {
    case 0: return replace(out, room, text, size, from, whole, "", 0);
    case 1: return replace(out, room, text, size, from, 0, a.at, whole);
    case 2: return replace(out, room, text, size, from, a.n, b.at, b.n);
    default: return replace(out, room, text, size, from, 0, b.at, b.n + (b.at + b.n < text + size));
    }
}

static size_t mutate_text(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    char *out = malloc(room + 1), *in = malloc(size + 1);
    size_t n = 0;
    if (!out || !in)
        fuzz_fail("no memory", "");
    memcpy(in, data, size); /* atoll needs an end */
    in[size] = 0;
    switch (fuzz_random(&seed) % 8) {
    case 0: case 1: case 2: n = mutate_number(out, room, in, size, &seed); break;
    case 3: case 4: n = mutate_piece(out, room, in, size, true, &seed); break;
    case 5: case 6: n = mutate_piece(out, room, in, size, false, &seed); break;
    default: break;
    }
    if (n)
        memcpy(data, out, n);
    free(out);
    free(in);
    return n ? n : LLVMFuzzerMutate(data, size, room);
}

/* Puts some lines of b between two lines of a; returns the size, 0: nothing was written. */
static size_t cross_text(const char *a, size_t na, const char *b, size_t nb, char *out, size_t room,
                         unsigned seed)
{
    static Piece line[PIECES];
    int n = split(b, nb, true, line);
    if (n == 0)
        return 0;
    int first = (int)(fuzz_random(&seed) % (unsigned)n), last = first + (int)(fuzz_random(&seed) % 8);
    const char *from = line[first].at;
    Piece end = line[last < n ? last : n - 1];
    size_t nby = (size_t)(end.at + end.n - from) + (end.at + end.n < b + nb), at = 0;
    n = split(a, na, true, line);
    if (n)
        at = (size_t)(line[fuzz_random(&seed) % (unsigned)n].at - a);
    return replace(out, room, a, na, at, 0, from, nby);
}

#define TEXT_MUTATOR                                                                         \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)   \
    {                                                                                        \
        return mutate_text(data, size, room, seed);                                          \
    }                                                                                        \
    size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, \
                                     uint8_t *out, size_t room, unsigned seed)               \
    {                                                                                        \
        return cross_text((const char *)a, na, (const char *)b, nb, (char *)out, room, seed); \
    }

#endif
