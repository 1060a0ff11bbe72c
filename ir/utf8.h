/* utf8.h -- reading text as UTF-8 whose bytes may be anything. */
#ifndef CKC_UTF8_H
#define CKC_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* Number of bytes of the character at s, whose code point goes to *c; 0: there is no well-formed one. */
int utf8_character(const char *s, uint32_t *c);
bool utf8_control(uint32_t c);
/* A copy of text in which control characters and bytes that are not UTF-8 are written \xHH, except those
 * that keep() wants; keep NULL: it wants none.  The caller frees it. */
char *text_escape(const char *text, bool keep(const char *at));

#endif
