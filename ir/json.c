/* json.c -- JSON values that are whole. */
#include "json.h"
#include "mem.h"
#include "utf8.h"
#include <stdlib.h>

static void must(bool ok)
{
    if (!ok)
        out_of_memory(0);
}

/* The text with all that is not UTF-8 escaped; NULL: it is UTF-8 throughout.  free() it. */
static char *escape(const char *text)
{
    uint32_t c;
    int n;
    for (const char *s = text; *s; s += n)
        if ((n = utf8_character(s, &c)) == 0)
            return text_escape(text, NULL);
    return NULL;
}

json_t *text_json(const char *text)
{
    char *shown = escape(text); /* JSON has its own escapes for control characters */
    json_t *s = json_string(shown ? shown : text);
    free(shown);
    must(s);
    return s;
}

void object_put(json_t *o, const char *key, json_t *v)
{
    char *shown = escape(key);
    must(json_object_set_new(o, shown ? shown : key, v) == 0);
    free(shown);
}

void array_put(json_t *a, json_t *v) { must(json_array_append_new(a, v) == 0); }

char *dump_json(const json_t *v, size_t flags)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = mem_stream(&text, &size);
    must(json_dumpf(v, f, flags) == 0);
    mem_stream_end(f);
    return text;
}
