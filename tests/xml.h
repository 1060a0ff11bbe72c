/* xml.h -- checks of the XML and PNG files that browsers and viewers read. */
#ifndef CKC_TESTS_XML_H
#define CKC_TESTS_XML_H
#include <stddef.h>
#include <stdint.h>

/* Ends the test unless the file is well-formed: tags nest, attributes are quoted and not repeated, entities
 * are known, text is UTF-8 without control characters.  Only these are looked for in <script> and <style>. */
void check_xml(const char *path);
/* Returns how many elements of that name, such as "rect", the text has. */
int count_elements(const char *text, const char *name);

typedef struct {
    uint32_t width, height;
    uint8_t *rgb; /* free() it */
} Png;
/* Reads a file; ends the test unless it is a PNG of 8-bit colours with right checksums and all its rows. */
Png read_png(const char *path);
#endif
