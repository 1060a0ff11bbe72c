/* picture.h -- drawings: shapes in a plane, written as SVG or as PNG. */
#ifndef CKC_PICTURE_H
#define CKC_PICTURE_H

#include "ir/plan.h"

/* Colours by what they are for: SVG has them for light and dark surroundings, PNG for light ones. */
typedef enum {
    PAINT_SURFACE,
    PAINT_INK,
    PAINT_SOFT, /* text beside the drawing */
    PAINT_GRID,
    PAINT_LIMIT,
    PAINT_FORWARD,
    PAINT_BACKWARD,
    PAINT_UPDATE,
    PAINT_AGAIN, /* what is recomputed */
    PAINT_COPY,
    PAINT_KIND, /* and those of the other kinds of memory */
    PAINTS = PAINT_KIND + MEM_KINDS
} Paint;

typedef struct {
    const char *name;     /* of its CSS variable */
    uint32_t light, dark; /* 0xRRGGBB */
} PaintColor;
extern const PaintColor paint_color[PAINTS];

typedef struct {
    double x, y; /* pixels, from the upper left corner */
} PlotPoint;

typedef enum { ALIGN_LEFT, ALIGN_CENTER, ALIGN_RIGHT } Align;

typedef enum { SHAPE_AREA, SHAPE_LINE, SHAPE_TEXT } ShapeKind;
typedef struct {
    ShapeKind kind;
    Paint paint;
    const PlotPoint *at; /* of a text: its base line */
    uint32_t n;
    double width; /* of a line; of a text: its size */
    bool dashed;
    Align align;
    const char *text; /* any bytes: escaped where it is written */
} Shape;

typedef struct {
    Arena *a;
    double width, height;
    const char *title; /* what it shows, for those who do not see it */
    Shape *shape;      /* later ones lie on earlier ones */
    uint32_t n, cap;
} Picture;

/* Points are copied. */
void picture_area(Picture *p, Paint paint, const PlotPoint *at, uint32_t n);
void picture_rect(Picture *p, Paint paint, double x, double y, double width, double height);
void picture_line(Picture *p, Paint paint, double width, bool dashed, const PlotPoint *at, uint32_t n);
void picture_dot(Picture *p, Paint paint, double x, double y, double radius);
/* What lies below it is kept off its letters. */
void picture_text(Picture *p, Paint paint, double x, double y, Align align, double size, const char *text);
double text_width(double size, const char *text); /* about */

/* Text as XML and HTML have it, in elements and in quoted attributes. */
void print_xml(FILE *f, const char *text);
/* As part of a page (which has the style), or alone. */
void picture_svg(const Picture *p, FILE *f, bool alone);
void picture_style(FILE *f); /* the colours, as CSS variables and classes */
/* Twice as many pixels. */
void picture_png(const Picture *p, FILE *f);
/* By the suffix, .svg or .png. */
bool picture_write(const Picture *p, const char *path, Diag *d);
bool picture_suffix(const char *path); /* is it one of these? */

#endif
