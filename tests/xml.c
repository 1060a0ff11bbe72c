/* xml.c -- strict readers of the XML and the PNG files that ckc writes. */
#include "xml.h"
#include "command.h"
#include "ir/file.h"
#include "ir/utf8.h"
#include "tests.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { DEPTH = 64, NAME = 32, ATTRIBUTES = 16 };

typedef struct {
    const char *path, *text, *s;
    char open[DEPTH][NAME];
    int depth;
} Reader;

static void expect(const Reader *r, bool ok, const char *what)
{
    ck_assert_msg(ok, "%s: %s at '%.60s'", r->path, what, r->s);
}

static bool next_is(Reader *r, const char *token)
{
    bool is = strncmp(r->s, token, strlen(token)) == 0;
    r->s += is ? strlen(token) : 0;
    return is;
}

static void read_name(Reader *r, char name[NAME])
{
    size_t n = strspn(r->s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
    expect(r, n > 0 && n < NAME && !isdigit((unsigned char)*r->s), "no name");
    memcpy(name, r->s, n);
    name[n] = 0;
    r->s += n;
}

/* Reads one character, or entity, of text or of a value. */
static void read_character(Reader *r)
{
    uint32_t c;
    int n = utf8_character(r->s, &c);
    expect(r, n > 0 && (c == '\n' || !utf8_control(c)) && c != 0xfffe && c != 0xffff, "no character of XML");
    expect(r, c != '<', "a < in text");
    if (c == '&') {
        size_t end = strcspn(r->s, "; \n");
        static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
        bool is = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is |= strncmp(r->s, known[i], end + 1) == 0 && known[i][end] == ';';
        expect(r, is, "an unknown entity");
    }
    r->s += n;
}

static void read_attributes(Reader *r)
{
    char name[ATTRIBUTES][NAME];
    for (int n = 0; isspace((unsigned char)*r->s); n++) {
        r->s += strspn(r->s, " \n");
        expect(r, n < ATTRIBUTES, "too many attributes");
        read_name(r, name[n]);
        for (int i = 0; i < n; i++)
            expect(r, strcmp(name[i], name[n]) != 0, "an attribute twice");
        expect(r, next_is(r, "=\""), "no quoted value");
        while (*r->s != '"')
            read_character(r);
        r->s++;
    }
}

static void read_raw(Reader *r, const char *name)
{
    if (strcmp(name, "script") != 0 && strcmp(name, "style") != 0)
        return;
    const char *end = strstr(r->s, format("</%s>", name));
    expect(r, end != NULL, "a script without an end");
    for (; r->s < end; r->s++)
        expect(r, *r->s == '\n' || !iscntrl((unsigned char)*r->s), "a control in a script");
}

static void read_tag(Reader *r)
{
    char name[NAME];
    if (next_is(r, "</")) {
        read_name(r, name);
        expect(r, next_is(r, ">") && r->depth > 0 && strcmp(r->open[--r->depth], name) == 0, "a wrong end");
        return;
    }
    r->s++;
    read_name(r, name);
    read_attributes(r);
    if (next_is(r, "/>"))
        return;
    expect(r, next_is(r, ">") && r->depth < DEPTH, "no end of a tag");
    memcpy(r->open[r->depth++], name, sizeof name);
    read_raw(r, name);
}

void check_xml(const char *path)
{
    char *text = read_text(path);
    Reader r = {.path = path, .text = text, .s = text};
    if (next_is(&r, "<?xml"))
        r.s = strstr(r.s, "?>") + 2;
    next_is(&r, "<!DOCTYPE html>");
    while (*r.s == '\n')
        r.s++;
    do
        if (*r.s == '<')
            read_tag(&r);
        else
            read_character(&r);
    while (r.depth > 0);
    expect(&r, strcmp(r.s, "\n") == 0, "something behind the end");
    free(text);
}

int count_elements(const char *text, const char *name)
{
    int n = 0;
    const char *tag = format("<%s", name);
    size_t length = strlen(tag);
    for (const char *s = text; (s = strstr(s, tag)) != NULL; s += length)
        n += strchr(" />\n", s[length]) != NULL;
    return n;
}

/* ---- PNG ------------------------------------------------------------------------------------------- */

static uint32_t u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static const uint8_t *read_chunk(const FileMap *m, const uint8_t *at, const char *type, uint32_t *n)
{
    ck_assert(at + 12 <= m->data + m->size);
    *n = u32(at);
    ck_assert(at + 12 + *n <= m->data + m->size);
    ck_assert_mem_eq(at + 4, type, 4);
    ck_assert_uint_eq(u32(at + 8 + *n), (uint32_t)crc32(0, at + 4, *n + 4));
    return at + 8;
}

Png read_png(const char *path)
{
    FileMap m;
    Diag d = {0};
    uint32_t n;
    static const uint8_t kind[5] = {8, 2, 0, 0, 0}; /* 8 bits, RGB */
    ck_assert_msg(file_map(&m, path, &d), "%s", d.msg);
    ck_assert_mem_eq(m.data, "\x89PNG\r\n\x1a\n", 8);
    const uint8_t *head = read_chunk(&m, m.data + 8, "IHDR", &n);
    ck_assert_uint_eq(n, 13);
    ck_assert_mem_eq(head + 8, kind, sizeof kind);
    Png p = {u32(head), u32(head + 4), NULL};
    const uint8_t *data = read_chunk(&m, head + n + 4, "IDAT", &n), *end = data + n + 4;
    uLongf row = 3 * p.width, size = (row + 1) * p.height;
    uint8_t *plain = malloc(size);
    p.rgb = malloc(row * p.height);
    ck_assert_int_eq(uncompress(plain, &size, data, n), Z_OK);
    ck_assert_uint_eq(size, (row + 1) * p.height);
    for (uint32_t y = 0; y < p.height; y++) {
        ck_assert_uint_eq(plain[y * (row + 1)], 0);
        memcpy(p.rgb + y * row, plain + y * (row + 1) + 1, row);
    }
    ck_assert(read_chunk(&m, end, "IEND", &n) + n + 4 == m.data + m.size);
    free(plain);
    file_unmap(&m);
    return p;
}
