/* The products of which routings are made, with votes that are made in registers, read at once and forgotten.

   A pose is a matrix of ROWS x INNER numbers (a vector: one row), the weight of a pair a matrix of INNER x COLS; a vote
   is their product. Letters: b block of LANES examples, i child, j parent, e = (row, k) number of a pose, d = (row, c)
   number of a vote, l example of a block. Examples lie innermost in memory, a block's numbers all together:

       u [b i e l]  poses      w [t j k c]  weights of child i % t      x [b i j l]  pairs      y, m, s [b j d l]

   The compiler is told REAL (float or double), ROWS, INNER, COLS and LANES. */

#include "vectors.h"
#include "competition.h"
#include "shared.h"

#define IN (ROWS * INNER)
#define OUT (ROWS * COLS)
#define BLOCK PART(COLS)
#define NEAR 16 /* squares about another place than the mean lose less than log10 of this, in digits */
#define FAR(mean, first, left) (((mean) * (first) > NEAR * (left)) | ((left) - (left) != 0)) /* or beyond all numbers */

int lanes(void) { return LANES; }

typedef struct { size blocks, children, types, parents; } sizes;
typedef struct { const REAL *at; size b, i, j; } pairs; /* a number for each pair, and how far the next ones are */

/* v = u w - place: BLOCK numbers of a vote, from column c of a row. */
INLINE void make(in u, in w, in place, int row, int c, vec v[BLOCK][VECS]) {
    UNROLL for (int q = 0; q < BLOCK; q++) UNROLL for (int h = 0; h < VECS; h++) v[q][h] = (vec){0};
    UNROLL for (int k = 0; k < INNER; k++)
        UNROLL for (int h = 0; h < VECS; h++) {
            vec pose = LOAD(u + (row * INNER + k) * LANES + h * WIDE);
            UNROLL for (int q = 0; q < BLOCK; q++) v[q][h] += w[k * COLS + c + q] * pose;
        }
    if (place) /* not before: a vote that is its own mean is then exactly zero */
        UNROLL for (int q = 0; q < BLOCK; q++)
            UNROLL for (int h = 0; h < VECS; h++) v[q][h] -= LOAD(place + (row * COLS + c + q) * LANES + h * WIDE);
}

/* The pose of child i in block b, and the matrix that it votes with for parent j. */
#define POSE (u + (b * n.children + i) * IN * LANES)
#define MATRIX (w + (i % n.types * n.parents + j) * INNER * COLS)

/* The numbers of a vote, BLOCK from column c of a row at a time, and the vectors of these. */
#define EACH_PART for (int row = 0; row < ROWS; row++) for (int c = 0; c < COLS; c += BLOCK)
#define EACH_VECTOR UNROLL for (int q = 0; q < BLOCK; q++) UNROLL for (int h = 0; h < VECS; h++)

/* Some parents and one block are the work of a thread: as many as have their sums in the nearest cache. */
INLINE size share_of(sizes n, int threads, int sums) {
    size most = 16384 / (OUT * LANES * (size)sizeof(REAL) * sums), even = (n.parents * n.blocks + threads - 1) / threads;
    size share = most < even ? most : even;
    return share < 1 ? 1 : share < n.parents ? share : n.parents;
}

/* mass = Sum_i x, first = Sum_i x v, second = Sum_i x v^2, with v = vote - place, for the parents of a block from one to
   another: those of the first come first in place, mass, first and second. */
INLINE void some_sums(sizes n, size b, size from, size to, in u, in w, pairs x, const REAL *place, REAL *mass,
                      REAL *first, REAL *second) {
    clear(mass, (to - from) * LANES), clear(first, (to - from) * OUT * LANES), clear(second, (to - from) * OUT * LANES);
    for (size i = 0; i < n.children; i++)
        for (size j = from; j < to; j++) {
            in pair = x.at + b * x.b + i * x.i + j * x.j;
            size own = (j - from) * LANES;
            vec weight[VECS];
            UNROLL for (int h = 0; h < VECS; h++) weight[h] = LOAD(pair + h * WIDE);
            if (mass) UNROLL for (int h = 0; h < VECS; h++) ADD(mass + own + h * WIDE, weight[h]);
            if (!first && !second) continue;
            EACH_PART {
                vec v[BLOCK][VECS];
                make(POSE, MATRIX, place ? place + own * OUT : 0, row, c, v);
                size at = own * OUT + (row * COLS + c) * LANES;
                EACH_VECTOR {
                    vec weighed = weight[h] * v[q][h];
                    if (first) ADD(first + at + q * LANES + h * WIDE, weighed);
                    if (second) ADD(second + at + q * LANES + h * WIDE, weighed * v[q][h]);
                }
            }
        }
}

#define EACH_SHARE(threads, n, sums)                                                                                   \
    size share = share_of(n, threads, sums), shares = (n.parents + share - 1) / share;                                 \
    _Pragma("omp parallel for collapse(2) num_threads(threads) schedule(static)")                                      \
    for (size b = 0; b < n.blocks; b++)                                                                                \
        for (size part = 0; part < shares; part++)

#define UNTIL (part * share + share < n.parents ? part * share + share : n.parents)

#define AT(pointer, numbers) ((pointer) ? (pointer) + (b * n.parents + part * share) * (numbers) * LANES : 0)

/* place, mass, first and second may be null. */
void sums(int threads, size blocks, size children, size types, size parents, in u, in w, const REAL *at, size x_b,
          size x_i, size x_j, const REAL *place, REAL *mass, REAL *first, REAL *second) {
    sizes n = {blocks, children, types, parents};
    pairs x = {at, x_b, x_i, x_j};
    EACH_SHARE(threads, n, second ? 2 : 1) {
        size from = part * share, to = UNTIL;
        REAL *m = AT(mass, 1), *s = AT(first, OUT), *t = AT(second, OUT);
        if (second && place) some_sums(n, b, from, to, u, w, x, AT(place, OUT), m, s, t);
        else if (second) some_sums(n, b, from, to, u, w, x, 0, m, s, t);
        else if (place) some_sums(n, b, from, to, u, w, x, AT(place, OUT), m, s, 0);
        else some_sums(n, b, from, to, u, w, x, 0, m, s, 0);
    }
}

/* From sums about a place, of so many parents: the mean, and the squares about it. Must some of them be read again? */
INLINE int settle(size count, const REAL *mass, const REAL *first, REAL *mean, REAL *scatter) {
    mask far = (vec){0} != 0; /* whole vectors, so that all lanes are rounded alike */
    for (size j = 0; j < count; j++)
        for (int d = 0; d < OUT; d++)
            UNROLL for (int h = 0; h < VECS; h++) {
                size at = (j * OUT + d) * LANES + h * WIDE;
                vec m = LOAD(mass + j * LANES + h * WIDE), sum = LOAD(first + at);
                vec shift = where(m > (REAL)TINY, sum / m, (vec){0}), left = LOAD(scatter + at) - shift * sum;
                left = where(left < 0, (vec){0}, left);
                far |= FAR(shift, sum, left), STORE(mean + at, shift), STORE(scatter + at, left);
            }
    for (int l = 0; l < WIDE; l++) if (far[l]) return 1;
    return 0;
}

/* mass = Sum_i x, first = Sum_i x v, mean = first / mass, scatter = Sum_i x (v - mean)^2, with v = vote - place: one
   reading, and a second one about the mean for those who need it, whoever their neighbors are. */
void moments(int threads, size blocks, size children, size types, size parents, in u, in w, const REAL *at, size x_b,
             size x_i, size x_j, const REAL *place, REAL *mass, REAL *first, REAL *mean, REAL *scatter) {
    sizes n = {blocks, children, types, parents};
    pairs x = {at, x_b, x_i, x_j};
    EACH_SHARE(threads, n, 2) {
        size from = part * share, to = UNTIL, count = (to - from) * OUT * LANES;
        REAL *m = AT(mass, 1), *s = AT(first, OUT), *mid = AT(mean, OUT), *t = AT(scatter, OUT);
        const REAL *near = AT(place, OUT);
        if (place) some_sums(n, b, from, to, u, w, x, near, m, s, t);
        else some_sums(n, b, from, to, u, w, x, 0, m, s, t);
        if (!settle(to - from, m, s, mid, t)) continue;
        REAL *about = room(4 * count * sizeof *about), *again = about + count, *more = again + count, *left = more + count;
        for (size k = 0; k < count; k++) about[k] = mid[k] + (near ? near[k] : 0);
        some_sums(n, b, from, to, u, w, x, about, m, again, left);
        settle(to - from, m, again, more, left);
        for (size k = 0; k < count; k += WIDE) {
            mask far = FAR(LOAD(mid + k), LOAD(s + k), LOAD(t + k));
            ADD(mid + k, where(far, LOAD(more + k), (vec){0})), STORE(t + k, where(far, LOAD(left + k), LOAD(t + k)));
        }
        free(about);
    }
}

/* x = Sum_d (y v + z v^2) + offset, with v = vote - place. */
INLINE void some_inner(sizes n, size b, size from, size to, in u, in w, const REAL *place, const REAL *y, const REAL *z,
                       const REAL *offset, REAL *x) {
    for (size i = 0; i < n.children; i++)
        for (size j = from; j < to; j++) {
            size own = (b * n.parents + j) * LANES;
            vec total[BLOCK][VECS];
            EACH_VECTOR total[q][h] = offset && q == 0 ? LOAD(offset + own + h * WIDE) : (vec){0};
            EACH_PART {
                vec v[BLOCK][VECS];
                make(POSE, MATRIX, place ? place + own * OUT : 0, row, c, v);
                size at = own * OUT + (row * COLS + c) * LANES;
                EACH_VECTOR {
                    size d = at + q * LANES + h * WIDE;
                    vec factor = {0};
                    if (z) factor = LOAD(z + d) * v[q][h];
                    if (y) factor += LOAD(y + d);
                    total[q][h] += factor * v[q][h];
                }
            }
            UNROLL for (int q = 1; q < BLOCK; q++) UNROLL for (int h = 0; h < VECS; h++) total[0][h] += total[q][h];
            UNROLL for (int h = 0; h < VECS; h++)
                STORE(x + ((b * n.children + i) * n.parents + j) * LANES + h * WIDE, total[0][h]);
        }
}

/* One of y and z may be null; so may place and offset. */
void inner(int threads, size blocks, size children, size types, size parents, in u, in w, const REAL *place,
           const REAL *y, const REAL *z, const REAL *offset, REAL *x) {
    sizes n = {blocks, children, types, parents};
    EACH_SHARE(threads, n, z ? 2 : 1) {
        size from = part * share, to = UNTIL;
        if (y && z && place) some_inner(n, b, from, to, u, w, place, y, z, offset, x);
        else if (z && place) some_inner(n, b, from, to, u, w, place, 0, z, offset, x);
        else if (z) some_inner(n, b, from, to, u, w, place, y, z, offset, x);
        else if (place) some_inner(n, b, from, to, u, w, place, y, 0, offset, x);
        else some_inner(n, b, from, to, u, w, 0, y, 0, offset, x);
    }
}

/* The gradients of poses and weights. That of a vote is g = Sum_t x_t y_t + v Sum_t x_t z_t, with v = vote - place. */

#define TOGETHER 4 /* blocks of examples whose g is kept at a time */
#define CHILDREN 8 /* children that see the same y one after the other */
#define GROUP 3    /* terms that are added at a time */

/* g += x y, or v x y, of `many` terms; those of y lie `step` apart. */
INLINE void some_terms(int many, size step, const REAL *const *x, in y, const vec v[OUT][VECS], vec g[OUT][VECS]) {
    vec pair[GROUP][VECS];
    UNROLL for (int t = 0; t < many; t++)
        UNROLL for (int h = 0; h < VECS; h++) pair[t][h] = LOAD(x[t] + h * WIDE);
    for (int d = 0; d < OUT; d++)
        UNROLL for (int h = 0; h < VECS; h++) {
            vec total = pair[0][h] * LOAD(y + d * LANES + h * WIDE);
            UNROLL for (int t = 1; t < many; t++) total += pair[t][h] * LOAD(y + t * step + d * LANES + h * WIDE);
            if (v) total *= v[d][h];
            g[d][h] += total;
        }
}

INLINE void all_terms(size terms, size step, const REAL *const *x, in y, const vec v[OUT][VECS], vec g[OUT][VECS]) {
    size t = 0;
    for (; t + GROUP <= terms; t += GROUP) some_terms(GROUP, step, x + t, y + t * step, v, g);
    if (terms - t == 2) some_terms(2, step, x + t, y + t * step, v, g);
    if (terms - t == 1) some_terms(1, step, x + t, y + t * step, v, g);
}

/* du += w g */
INLINE void for_poses(in w, const vec g[OUT][VECS], REAL *du) {
    enum { SOME = PART(INNER) };
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < INNER; k += SOME) {
            REAL *to = du + (row * INNER + k) * LANES;
            vec total[SOME][VECS];
            UNROLL for (int q = 0; q < SOME; q++)
                UNROLL for (int h = 0; h < VECS; h++) total[q][h] = LOAD(to + q * LANES + h * WIDE);
            UNROLL for (int c = 0; c < COLS; c++)
                UNROLL for (int q = 0; q < SOME; q++)
                    UNROLL for (int h = 0; h < VECS; h++) total[q][h] += w[(k + q) * COLS + c] * g[row * COLS + c][h];
            UNROLL for (int q = 0; q < SOME; q++)
                UNROLL for (int h = 0; h < VECS; h++) STORE(to + q * LANES + h * WIDE, total[q][h]);
        }
}

/* dw += Sum_l u g of some blocks, whose u lie `step` apart. As many numbers at a time as a vector holds; their sums over
   lanes then fill one vector. */
INLINE void for_weights(size step, in u, vec g[TOGETHER][OUT][VECS], int blocks, REAL *dw) {
    enum { LINES = WIDE % COLS == 0 ? WIDE / COLS : 1, COLUMNS = WIDE % COLS == 0 ? COLS : WIDE };
    for (int k = 0; k < INNER; k += LINES)
        for (int c = 0; c < COLS; c += COLUMNS) {
            vec total[WIDE];
            UNROLL for (int q = 0; q < WIDE; q++) total[q] = (vec){0};
            for (int b = 0; b < blocks; b++)
                for (int row = 0; row < ROWS; row++) {
                    const REAL *pose = u + b * step + (row * INNER + k) * LANES;
                    UNROLL for (int h = 0; h < VECS; h++)
                        UNROLL for (int q = 0; q < WIDE; q++)
                            if ((INNER % LINES == 0 || k + q / COLUMNS < INNER) && (COLS % COLUMNS == 0 || c + q % COLUMNS < COLS))
                                total[q] += LOAD(pose + q / COLUMNS * LANES + h * WIDE) * g[b][row * COLS + c + q % COLUMNS][h];
                }
            vec sums = totals(total);
            if (INNER % LINES == 0 && COLS % COLUMNS == 0) ADD(dw + k * COLS + c, sums);
            else
                for (int q = 0; q < WIDE; q++)
                    if (k + q / COLUMNS < INNER && c + q % COLUMNS < COLS)
                        dw[(k + q / COLUMNS) * COLS + c + q % COLUMNS] += sums[q];
        }
}

/* x: a pointer for each term, with its strides; y, z [t b j d l], z and place may be null; du and dw are zero before.
   Children that share weights are the work of one thread. */
void gradients(int threads, size blocks, size children, size types, size parents, in u, in w, const REAL *place,
               size terms, const REAL *const *x, const size *x_b, const size *x_i, const size *x_j, in y, const REAL *z,
               REAL *du, REAL *dw) {
    size step = blocks * parents * OUT * LANES, next = children * IN * LANES, some = types < CHILDREN * threads ? 1 : CHILDREN;
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (size type = 0; type < types; type += some) {
        size end = type + some < types ? type + some : types;
        vec(*g)[TOGETHER][OUT][VECS] = room(CHILDREN * sizeof *g), v[OUT][VECS]; /* too large for a thread's stack */
        const REAL **pair = room(terms * sizeof *pair);
        for (size group = 0; group < children; group += types)
            for (size block = 0; block < blocks; block += TOGETHER) {
                int count = blocks - block < TOGETHER ? blocks - block : TOGETHER;
                for (size j = 0; j < parents; j++) {
                    for (size b = block; b < block + count; b++) {
                        size parent = (b * parents + j) * OUT * LANES;
                        for (size t = type; t < end; t++) {
                            size i = group + t;
                            in pose = u + (b * children + i) * IN * LANES, weight = w + (t * parents + j) * INNER * COLS;
                            vec(*own)[VECS] = g[t - type][b - block];
                            for (size term = 0; term < terms; term++) {
                                pair[term] = x[term] + b * x_b[term] + i * x_i[term] + j * x_j[term];
                                FETCH(pair[term] + x_j[term]); /* the next parent's, which no prefetcher foresees */
                            }
                            for (int d = 0; d < OUT; d++) UNROLL for (int h = 0; h < VECS; h++) own[d][h] = (vec){0};
                            all_terms(terms, step, pair, y + parent, 0, own);
                            if (z) {
                                EACH_PART make(pose, weight, place ? place + parent : 0, row, c, v + row * COLS + c);
                                all_terms(terms, step, pair, z + parent, v, own);
                            }
                            for_poses(weight, own, du + (b * children + i) * IN * LANES);
                        }
                    }
                    for (size t = type; t < end; t++)
                        for_weights(next, u + (block * children + group + t) * IN * LANES, g[t - type], count,
                                    dw + (t * parents + j) * INNER * COLS);
                }
            }
        free(pair);
        free(g);
    }
}
