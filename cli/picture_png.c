/* picture_png.c -- shapes as pixels.
 *
 * A shape is a set of closed contours, filled where they wind around a point (nonzero rule).  The covered
 * share of a pixel is measured on a few lines through it, exactly along each.  A line is a box per segment
 * and a disc per point; a letter is a few lines, so that no font is needed but the table below. */
#include "picture.h"
#include "ir/mem.h"
#include "ir/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SCALE = 2, LINES = 4 }; /* pixels per unit of the picture; lines per pixel */

typedef struct {
    double x0, y0, x1, y1; /* y0 < y1 */
    int winding;
} Edge;

typedef struct {
    int width, height;
    uint8_t *rgb;
    Edge *edge;
    uint32_t n, cap;
    double *cross; /* where a line crosses the contours, and the windings there */
    int *winding;
    float *cover; /* per pixel of a row: the covered share */
} Raster;

/* ---- contours ------------------------------------------------------------------------------------- */

static void add_edge(Raster *r, PlotPoint a, PlotPoint b)
{
    if (r->n == r->cap) {
        r->cap = 2 * r->cap + 64;
        r->edge = mem_grow(r->edge, r->cap, sizeof *r->edge);
        r->cross = mem_grow(r->cross, r->cap, sizeof *r->cross);
        r->winding = mem_grow(r->winding, r->cap, sizeof *r->winding);
    }
    bool down = a.y < b.y;
    if (a.y != b.y)
        r->edge[r->n++] = down ? (Edge){a.x, a.y, b.x, b.y, 1} : (Edge){b.x, b.y, a.x, a.y, -1};
}

static void add_contour(Raster *r, const PlotPoint *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        PlotPoint a = at[i], b = at[(i + 1) % n];
        add_edge(r, (PlotPoint){SCALE * a.x, SCALE * a.y}, (PlotPoint){SCALE * b.x, SCALE * b.y});
    }
}

static void add_disc(Raster *r, PlotPoint c, double radius)
{
    enum { CORNERS = 12 };
    PlotPoint at[CORNERS];
    for (int i = 0; i < CORNERS; i++) {
        double turn = -2 * M_PI * i / CORNERS; /* winds in the same direction as the boxes of segments */
        at[i] = (PlotPoint){c.x + radius * cos(turn), c.y + radius * sin(turn)};
    }
    add_contour(r, at, CORNERS);
}

static void add_segment(Raster *r, PlotPoint a, PlotPoint b, double half)
{
    double length = hypot(b.x - a.x, b.y - a.y);
    if (length == 0)
        return;
    PlotPoint side = {-(b.y - a.y) / length * half, (b.x - a.x) / length * half};
    add_contour(r,
                (PlotPoint[]){{a.x + side.x, a.y + side.y},
                              {b.x + side.x, b.y + side.y},
                              {b.x - side.x, b.y - side.y},
                              {a.x - side.x, a.y - side.y}},
                4);
}

static void add_line(Raster *r, const PlotPoint *at, uint32_t n, double width)
{
    for (uint32_t i = 0; i + 1 < n; i++)
        add_segment(r, at[i], at[i + 1], width / 2);
    for (uint32_t i = 0; i < n; i++)
        add_disc(r, at[i], width / 2);
}

static void add_dashes(Raster *r, const PlotPoint *at, uint32_t n, double width)
{
    static const double part[2] = {6, 4}; /* lengths that are drawn, and left out */
    double left = part[0];
    int which = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        PlotPoint a = at[i], b = at[i + 1];
        for (double length; (length = hypot(b.x - a.x, b.y - a.y)) > 0;) {
            double share = left < length ? left / length : 1;
            PlotPoint to = {a.x + share * (b.x - a.x), a.y + share * (b.y - a.y)};
            if (which == 0)
                add_segment(r, a, to, width / 2);
            if (share == 1) {
                left -= length;
                break;
            }
            a = to;
            which = !which;
            left = part[which];
        }
    }
}

/* ---- filling ---------------------------------------------------------------------------------------- */

/* Adds the part of [x0, x1) that is in each pixel to the row's covered shares. */
static void cover_span(Raster *r, double x0, double x1)
{
    x0 = x0 < 0 ? 0 : x0;
    x1 = x1 > r->width ? r->width : x1;
    for (int x = (int)x0; x < x1; x++)
        r->cover[x] += (float)((fmin(x1, x + 1) - fmax(x0, x)) / LINES);
}

static void cover_line(Raster *r, double y)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const Edge *e = &r->edge[i];
        if (y < e->y0 || y >= e->y1)
            continue;
        double x = e->x0 + (y - e->y0) / (e->y1 - e->y0) * (e->x1 - e->x0);
        uint32_t k = n++;
        for (; k > 0 && r->cross[k - 1] > x; k--) {
            r->cross[k] = r->cross[k - 1];
            r->winding[k] = r->winding[k - 1];
        }
        r->cross[k] = x;
        r->winding[k] = e->winding;
    }
    double from = 0;
    int around = 0;
    for (uint32_t i = 0; i < n; i++) {
        from = around ? from : r->cross[i];
        around += r->winding[i];
        if (!around)
            cover_span(r, from, r->cross[i]);
    }
}

/* Finds the box of pixels that contains the contours. */
static void find_box(const Raster *r, int low[2], int high[2])
{
    double l[2] = {r->width, r->height}, h[2] = {0, 0};
    for (const Edge *e = r->edge; e < r->edge + r->n; e++) {
        l[0] = fmin(l[0], fmin(e->x0, e->x1));
        h[0] = fmax(h[0], fmax(e->x0, e->x1));
        l[1] = fmin(l[1], e->y0);
        h[1] = fmax(h[1], e->y1);
    }
    for (int i = 0; i < 2; i++) {
        low[i] = (int)fmax(0, l[i]);
        high[i] = (int)ceil(fmin(i ? r->height : r->width, h[i]));
    }
}

/* Fills the contours that were added with a colour, and removes them. */
static void fill(Raster *r, uint32_t rgb)
{
    int low[2], high[2];
    find_box(r, low, high);
    for (int y = low[1]; y < high[1]; y++) {
        memset(r->cover, 0, (size_t)r->width * sizeof *r->cover);
        for (int k = 0; k < LINES; k++)
            cover_line(r, y + (k + 0.5) / LINES);
        for (int x = low[0]; x < high[0]; x++)
            for (int c = 0; c < 3 && r->cover[x] > 0; c++) {
                uint8_t *to = &r->rgb[3 * ((size_t)y * (size_t)r->width + (size_t)x) + (size_t)c];
                double share = fmin(1, r->cover[x]), color = rgb >> (16 - 8 * c) & 255;
                *to = (uint8_t)lround(*to + share * (color - *to));
            }
    }
    r->n = 0;
}

/* ---- letters ----------------------------------------------------------------------------------------- */

/* Letters from ' ' on, as lines of points, each a digit for x and one for y; capitals reach from y = 1 to 7.
 * The last entry is for all other characters. */
/* clang-format off */
static const char *const letter[] = {
    "", "0105 07", "0103 2123", "1117 3137 0343 0545", "423111020314344546371706 2028",
    "4107 0111120201 3646473736", "4713122132330506172745", "0103", "11030618", "01131608",
    "1115 0224 0422", "2226 0444", "1708", "0434", "07", "3107", "113142463717060211", "122127",
    "02113142430747", "02113142433424 344546371706", "37310545", "410103334446371706",
    "423111020617374645341405", "014117", "113142433414030211 1405061737464534",
    "061737464231110203143443", "04 07", "14 1708", "320436", "0333 0535", "023406", "021121323324 25 27",
    "33231415263633 364642311102061747", "072147 1535", "01073746453404 3443423101", "4231110206173746",
    "01073746423101", "41010747 0434", "410107 0434", "42311102061737464424", "0107 4147 0444", "0107",
    "3136271706", "0107 4105 1447", "010737", "0701244147", "07014741", "114152564717060211",
    "07013142433404", "114152564717060211 3557", "07013142433404 2447", "423111020314344546371706",
    "0141 2127", "010617374641", "012741", "0117325761", "0147 0741", "012441 2427", "01410747",
    "11010818", "0137", "01111808", "032143", "0848", "0112", "3423130406172736 3337",
    "0107 0413233436271706", "3423130406172736", "3137 3423130406172736", "05353423130406172736",
    "211217 0323", "33382909 3423130406172736", "0107 0413233437", "0307 01", "131809 11",
    "0107 3306 1537", "010617", "0307 04132427 24334447", "0307 0413233437", "132334362717060413",
    "0309 0413233436271706", "3339 3423130406172736", "0307 041323", "331304362707", "111627 0323",
    "0306172736 3337", "032743", "0317243743", "0337 0733", "0327 4319", "03330737", "21121304151728",
    "0108", "01121324151708", "04133544", "0131370701"};
/* clang-format on */
enum { LETTERS = sizeof letter / sizeof *letter };
static const double unit_x = 0.105, unit_y = 0.12; /* of a digit, as parts of a letter's size */

/* Units from the left side of a letter to that of the next one. */
static int advance(const char *lines)
{
    int right = *lines ? 0 : 1;
    for (const char *s = lines; *s; s += s[2] == ' ' ? 3 : 2)
        right = s[0] - '0' > right ? s[0] - '0' : right;
    return right + 2;
}

static const char *next_letter(const char **text)
{
    uint32_t c;
    int n = utf8_character(*text, &c);
    *text += n ? n : 1;
    return letter[n && c >= ' ' && c < ' ' + LETTERS - 1 ? c - ' ' : LETTERS - 1];
}

static void add_letter(Raster *r, const char *lines, double x, double y, double size, double width)
{
    PlotPoint at[16];
    uint32_t n = 0;
    for (const char *s = lines; *s; s += *s == ' ') {
        for (n = 0; *s && *s != ' '; s += 2)
            at[n++] = (PlotPoint){x + unit_x * size * (s[0] - '0'), y + unit_y * size * (s[1] - '7')};
        add_line(r, at, n, width);
    }
}

static void add_text(Raster *r, const Shape *s, double width)
{
    int units = 0;
    for (const char *t = s->text; *t;)
        units += advance(next_letter(&t));
    double size = s->width, x = s->at[0].x - unit_x * size * units * s->align / 2;
    for (const char *t = s->text; *t;) {
        const char *lines = next_letter(&t);
        add_letter(r, lines, x, s->at[0].y, size, width);
        x += unit_x * size * advance(lines);
    }
}

/* ---- the file ----------------------------------------------------------------------------------------- */

static void draw(Raster *r, const Shape *s)
{
    uint32_t rgb = paint_color[s->paint].light;
    if (s->kind == SHAPE_AREA)
        add_contour(r, s->at, s->n);
    else if (s->kind == SHAPE_LINE)
        (s->dashed ? add_dashes : add_line)(r, s->at, s->n, s->width);
    else {
        add_text(r, s, 0.09 * s->width + 3);
        fill(r, paint_color[PAINT_SURFACE].light);
        add_text(r, s, 0.09 * s->width);
    }
    fill(r, rgb);
}

static void put_u32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void put_chunk(FILE *f, const char *type, const uint8_t *data, size_t n)
{
    uint8_t length[4], check[4];
    put_u32(length, (uint32_t)n);
    uLong crc = crc32(crc32(0, (const Bytef *)type, 4), data, (uInt)n);
    put_u32(check, (uint32_t)crc);
    fwrite(length, 1, 4, f);
    fwrite(type, 1, 4, f);
    fwrite(data, 1, n, f);
    fwrite(check, 1, 4, f);
}

/* Writes the chunks of a PNG file; a byte 0 before each row of pixels says that the row is not filtered. */
static void put_image(FILE *f, const Raster *r)
{
    size_t row = 3 * (size_t)r->width, all = (row + 1) * (size_t)r->height;
    uLongf packed = compressBound(all);
    uint8_t *plain = mem_new(all, 1), *out = mem_new(packed, 1), head[13] = {[8] = 8, [9] = 2};
    for (size_t y = 0; y < (size_t)r->height; y++)
        memcpy(plain + y * (row + 1) + 1, r->rgb + y * row, row);
    put_u32(head, (uint32_t)r->width);
    put_u32(head + 4, (uint32_t)r->height);
    if (compress2(out, &packed, plain, all, Z_DEFAULT_COMPRESSION) != Z_OK)
        out_of_memory(0);
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, f);
    put_chunk(f, "IHDR", head, sizeof head);
    put_chunk(f, "IDAT", out, packed);
    put_chunk(f, "IEND", out, 0);
    free(plain);
    free(out);
}

void picture_png(const Picture *p, FILE *f)
{
    Raster r = {.width = (int)(SCALE * p->width), .height = (int)(SCALE * p->height)};
    r.rgb = mem_new(3 * (size_t)r.width, (size_t)r.height);
    r.cover = mem_new((size_t)r.width + 1, sizeof *r.cover);
    memset(r.rgb, 255, 3 * (size_t)r.width * (size_t)r.height);
    for (uint32_t i = 0; i < p->n; i++)
        draw(&r, &p->shape[i]);
    put_image(f, &r);
    free(r.rgb);
    free(r.cover);
    free(r.edge);
    free(r.cross);
    free(r.winding);
}
