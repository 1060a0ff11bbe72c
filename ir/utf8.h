/* utf8.h -- characters of text whose bytes may be anything. */
#ifndef CKC_UTF8_H
#define CKC_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of the character at s, and its code point in *c; 0: there is no well-formed one. */
int utf8_character(const char *s, uint32_t *c);
bool utf8_control(uint32_t c);
/* Control characters and what is not UTF-8 become \xHH, but for those that keep() wants; NULL: none.
 * The caller frees it. */
char *text_escape(const char *text, bool keep(const char *at));

#endif
