/* The products of which routings are made, with votes that are made in registers, read at once and forgotten.

   A pose is a matrix of ROWS x INNER numbers (a vector: one row), the weight of a pair a matrix of INNER x COLS; a vote
   is their product. Letters: n example, i child, j parent, e = (row, k) number of a pose, d = (row, c) number of a vote.
   Examples lie innermost in memory, so that every operation works on full vectors of examples:

       u [i e n]  poses      w [i j k c]  weights      x [i j n]  a number for each pair      y, m, s [j d n]

   Two vectors of examples, LANES, are worked on at once; where n is no multiple of it, the last ones overlap those
   before. The compiler is told REAL (float or double), ROWS, INNER and COLS. */

#include <stddef.h>
#include <stdlib.h>

#if defined(BYTES) /* the compiler was told: any will do, at another speed */
#elif defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif

typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef ptrdiff_t size;
typedef const REAL *restrict in;
typedef REAL *restrict out;

#define WIDE ((int)(BYTES / sizeof(REAL)))
#define LANES (2 * WIDE)
#define IN (ROWS * INNER)
#define OUT (ROWS * COLS)
#define LOAD(place) (*(const vec *)(place))
#define STORE(place, value) (*(vec *)(place) = (value))
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")

/* How many numbers are kept in registers at a time, two vectors each: a divisor of the whole. */
#define PART(whole) ((whole) % 4 == 0 ? 4 : (whole) % 5 == 0 ? 5 : (whole) % 6 == 0 ? 6 : (whole) % 3 == 0 ? 3 : (whole) % 2 == 0 ? 2 : 1)
#define BLOCK PART(COLS)

int lanes(void) { return LANES; }

static void *room(size bytes) {
    void *place = malloc(bytes);
    if (!place) abort(); /* some kilobytes: there is nothing left to tell it with */
    return place;
}

INLINE size starts(size block, size n) { return block * LANES > n - LANES ? n - LANES : block * LANES; }

/* v = u w - origin, or its square: BLOCK numbers of a vote, from column c of a row. */
INLINE void make(size n, in u, in w, in origin, int square, int row, int c, vec v[BLOCK][2]) {
    UNROLL for (int q = 0; q < BLOCK; q++) v[q][0] = v[q][1] = (vec){0};
    UNROLL for (int k = 0; k < INNER; k++)
        UNROLL for (int h = 0; h < 2; h++) {
            vec pose = LOAD(u + (row * INNER + k) * n + h * WIDE);
            UNROLL for (int q = 0; q < BLOCK; q++) v[q][h] += w[k * COLS + c + q] * pose;
        }
    if (origin) /* not before: a vote that is its own mean is then exactly zero */
        UNROLL for (int q = 0; q < BLOCK; q++)
            UNROLL for (int h = 0; h < 2; h++) v[q][h] -= LOAD(origin + (row * COLS + c + q) * n + h * WIDE);
    if (square)
        UNROLL for (int q = 0; q < BLOCK; q++)
            UNROLL for (int h = 0; h < 2; h++) v[q][h] *= v[q][h];
}

/* Some parents and one block of examples are the work of a thread: parents are shared out where blocks cannot be. */
typedef struct { size n, children, parents, first, counted, from, to; } job;

INLINE size parts_of(int threads, size n, size parents) {
    size blocks = (n + LANES - 1) / LANES, parts = blocks % threads && blocks < 4 * threads ? threads : 1;
    return parts < parents ? parts : parents;
}

INLINE job job_of(size n, size children, size parents, size block, size part, size parts) {
    size first = starts(block, n), from = parents * part / parts, to = parents * (part + 1) / parts;
    return (job){n, children, parents, first, block * LANES - first, from, to};
}

/* Examples that the block before has counted are left to it: no two threads write the same place. */
INLINE void put(REAL *place, vec value, size counted) {
    if (counted <= 0) STORE(place, value);
    else for (size l = counted; l < WIDE; l++) place[l] = value[l];
}

/* s = Sum_i x (vote - origin), or of its square. The strides of x may be zero: the same for all children or parents. */
INLINE void some_sums(job my, in u, in w, in x, size x_i, size x_j, in origin, int square, REAL *s) {
    size n = my.n, count = (my.to - my.from) * OUT;
    vec(*total)[2] = room(count * sizeof *total);
    for (size d = 0; d < count; d++) total[d][0] = total[d][1] = (vec){0};
    for (size i = 0; i < my.children; i++)
        for (size j = my.from; j < my.to; j++) {
            const REAL *pair = x + i * x_i + j * x_j + my.first;
            vec weight[2] = {LOAD(pair), LOAD(pair + WIDE)};
            for (int row = 0; row < ROWS; row++)
                for (int c = 0; c < COLS; c += BLOCK) {
                    vec v[BLOCK][2];
                    make(n, u + i * IN * n + my.first, w + (i * my.parents + j) * INNER * COLS,
                         origin ? origin + j * OUT * n + my.first : 0, square, row, c, v);
                    vec(*to)[2] = total + (j - my.from) * OUT + row * COLS + c;
                    UNROLL for (int q = 0; q < BLOCK; q++)
                        UNROLL for (int h = 0; h < 2; h++) to[q][h] += weight[h] * v[q][h];
                }
        }
    for (size d = 0; d < count; d++)
        UNROLL for (int h = 0; h < 2; h++)
            put(s + (my.from * OUT + d) * n + my.first + h * WIDE, total[d][h], my.counted - h * WIDE);
    free(total);
}

void sums(int threads, size n, size children, size parents, in u, in w, in x, size x_i, size x_j, in origin, int square,
          out s) {
    size blocks = (n + LANES - 1) / LANES, parts = parts_of(threads, n, parents);
    #pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (size block = 0; block < blocks; block++)
        for (size part = 0; part < parts; part++) {
            job my = job_of(n, children, parents, block, part, parts);
            if (square) some_sums(my, u, w, x, x_i, x_j, origin, 1, s);
            else if (origin) some_sums(my, u, w, x, x_i, x_j, origin, 0, s);
            else some_sums(my, u, w, x, x_i, x_j, 0, 0, s);
        }
}

/* x = Sum_d y (vote - origin), or with its square. */
INLINE void some_inner(job my, in u, in w, in origin, int square, in y, REAL *x) {
    size n = my.n;
    for (size i = 0; i < my.children; i++)
        for (size j = my.from; j < my.to; j++) {
            vec total[BLOCK][2];
            UNROLL for (int q = 0; q < BLOCK; q++) total[q][0] = total[q][1] = (vec){0};
            for (int row = 0; row < ROWS; row++)
                for (int c = 0; c < COLS; c += BLOCK) {
                    vec v[BLOCK][2];
                    make(n, u + i * IN * n + my.first, w + (i * my.parents + j) * INNER * COLS,
                         origin ? origin + j * OUT * n + my.first : 0, square, row, c, v);
                    in beside = y + (j * OUT + row * COLS + c) * n + my.first;
                    UNROLL for (int q = 0; q < BLOCK; q++)
                        UNROLL for (int h = 0; h < 2; h++) total[q][h] += LOAD(beside + q * n + h * WIDE) * v[q][h];
                }
            UNROLL for (int q = 1; q < BLOCK; q++) { total[0][0] += total[q][0]; total[0][1] += total[q][1]; }
            UNROLL for (int h = 0; h < 2; h++)
                put(x + (i * my.parents + j) * n + my.first + h * WIDE, total[0][h], my.counted - h * WIDE);
        }
}

void inner(int threads, size n, size children, size parents, in u, in w, in origin, int square, in y, out x) {
    size blocks = (n + LANES - 1) / LANES, parts = parts_of(threads, n, parents);
    #pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (size block = 0; block < blocks; block++)
        for (size part = 0; part < parts; part++) {
            job my = job_of(n, children, parents, block, part, parts);
            if (square) some_inner(my, u, w, origin, 1, y, x);
            else if (origin) some_inner(my, u, w, origin, 0, y, x);
            else some_inner(my, u, w, 0, 0, y, x);
        }
}

/* The gradients of poses and weights. That of a vote is g = Sum_t x_t y_t + v Sum_t x_t z_t, with v = vote - origin. */

#define TOGETHER 4                  /* blocks of examples whose g is kept at a time */
#define CHILDREN 8                  /* children that see the same y one after the other */
#define GROUP 3                     /* terms that are added at a time */

/* g += x y, or v x y, of `many` terms; those of y lie `step` apart. */
INLINE void some_terms(int many, size n, size step, const REAL *const *x, in y, const vec v[OUT][2], vec g[OUT][2]) {
    vec pair[GROUP][2];
    UNROLL for (int t = 0; t < many; t++)
        UNROLL for (int h = 0; h < 2; h++) pair[t][h] = LOAD(x[t] + h * WIDE);
    for (int d = 0; d < OUT; d++)
        UNROLL for (int h = 0; h < 2; h++) {
            vec total = pair[0][h] * LOAD(y + d * n + h * WIDE);
            UNROLL for (int t = 1; t < many; t++) total += pair[t][h] * LOAD(y + t * step + d * n + h * WIDE);
            if (v) total *= v[d][h];
            g[d][h] += total;
        }
}

INLINE void all_terms(size terms, size n, size step, const REAL *const *x, in y, const vec v[OUT][2], vec g[OUT][2]) {
    size t = 0;
    for (; t + GROUP <= terms; t += GROUP) some_terms(GROUP, n, step, x + t, y + t * step, v, g);
    if (terms - t == 2) some_terms(2, n, step, x + t, y + t * step, v, g);
    if (terms - t == 1) some_terms(1, n, step, x + t, y + t * step, v, g);
}

/* du += w g */
INLINE void for_poses(size n, in w, const vec g[OUT][2], REAL *du) {
    enum { SOME = PART(INNER) };
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < INNER; k += SOME) {
            REAL *to = du + (row * INNER + k) * n;
            vec total[SOME][2];
            UNROLL for (int q = 0; q < SOME; q++)
                UNROLL for (int h = 0; h < 2; h++) total[q][h] = LOAD(to + q * n + h * WIDE);
            UNROLL for (int c = 0; c < COLS; c++)
                UNROLL for (int q = 0; q < SOME; q++)
                    UNROLL for (int h = 0; h < 2; h++) total[q][h] += w[(k + q) * COLS + c] * g[row * COLS + c][h];
            UNROLL for (int q = 0; q < SOME; q++)
                UNROLL for (int h = 0; h < 2; h++) STORE(to + q * n + h * WIDE, total[q][h]);
        }
}

typedef __typeof__((vec){0} < (vec){0}) mask; /* integers of the same width */

/* Neighbours added: in each 16 bytes, those of a and then those of b. */
INLINE vec pairs(vec a, vec b) {
    enum { LANE = 16 / sizeof(REAL) };
    mask even;
    UNROLL for (int l = 0; l < WIDE; l++) {
        int at = l % LANE, half = LANE / 2;
        even[l] = l - at + 2 * (at % half) + at / half * WIDE;
    }
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, even + 1);
}

/* Halves added: of each `length` numbers of a, and then of b. */
INLINE vec halves(vec a, vec b, int length) {
    mask low;
    UNROLL for (int l = 0; l < WIDE; l++) low[l] = l / (length / 2) * length + l % (length / 2);
    return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, low + length / 2);
}

/* The sums of as many vectors as a vector has numbers, as one vector. */
INLINE vec totals(vec v[WIDE]) {
    enum { LANE = 16 / sizeof(REAL), LEFT = WIDE / LANE };
    UNROLL for (int q = 0; q < WIDE / 2; q++) v[q] = pairs(v[2 * q], v[2 * q + 1]);
    if (LANE == 4)
        UNROLL for (int q = 0; q < WIDE / 4; q++) v[q] = pairs(v[2 * q], v[2 * q + 1]);
    if (LEFT > 1)
        UNROLL for (int q = 0; q < LEFT / 2; q++) v[q] = halves(v[2 * q], v[2 * q + 1], WIDE);
    if (LEFT > 2) v[0] = halves(v[0], v[1], WIDE / 2);
    return v[0];
}

/* dw += Sum_n u g. As many numbers at a time as a vector holds; their sums over lanes then fill one vector. */
INLINE void for_weights(size n, in u, vec g[TOGETHER][OUT][2], size block, int blocks, REAL *dw) {
    enum { LINES = WIDE % COLS == 0 ? WIDE / COLS : 1, COLUMNS = WIDE % COLS == 0 ? COLS : WIDE };
    for (int k = 0; k < INNER; k += LINES)
        for (int c = 0; c < COLS; c += COLUMNS) {
            vec total[WIDE];
            UNROLL for (int q = 0; q < WIDE; q++) total[q] = (vec){0};
            for (int b = 0; b < blocks; b++)
                for (int row = 0; row < ROWS; row++) {
                    const REAL *pose = u + (row * INNER + k) * n + starts(block + b, n);
                    UNROLL for (int h = 0; h < 2; h++)
                        UNROLL for (int q = 0; q < WIDE; q++)
                            if ((INNER % LINES == 0 || k + q / COLUMNS < INNER) && (COLS % COLUMNS == 0 || c + q % COLUMNS < COLS))
                                total[q] += LOAD(pose + q / COLUMNS * n + h * WIDE) * g[b][row * COLS + c + q % COLUMNS][h];
                }
            vec sums = totals(total);
            if (INNER % LINES == 0 && COLS % COLUMNS == 0) STORE(dw + k * COLS + c, LOAD(dw + k * COLS + c) + sums);
            else
                for (int q = 0; q < WIDE; q++)
                    if (k + q / COLUMNS < INNER && c + q % COLUMNS < COLS)
                        dw[(k + q / COLUMNS) * COLS + c + q % COLUMNS] += sums[q];
        }
}

/* x: a pointer for each term, with its strides; y, z [t j d n], z and origin may be null; du and dw are zero before. */
void gradients(int threads, size n, size children, size parents, in u, in w, in origin, size terms,
               const REAL *const *x, const size *x_i, const size *x_j, in y, in z, REAL *du, REAL *dw) {
    size all = (n + LANES - 1) / LANES, step = parents * OUT * n;
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (size child = 0; child < children; child += CHILDREN) {
        size end = child + CHILDREN < children ? child + CHILDREN : children;
        vec(*g)[TOGETHER][OUT][2] = room(CHILDREN * sizeof *g), v[OUT][2]; /* too large for a thread's stack */
        const REAL **pair = room(terms * sizeof *pair);
        for (size block = 0; block < all; block += TOGETHER) {
            int blocks = all - block < TOGETHER ? all - block : TOGETHER;
            for (size j = 0; j < parents; j++) {
                for (int b = 0; b < blocks; b++) {
                    size first = starts(block + b, n), parent = j * OUT * n + first;
                    for (size i = child; i < end; i++) {
                        in weight = w + (i * parents + j) * INNER * COLS;
                        vec(*own)[2] = g[i - child][b];
                        for (size t = 0; t < terms; t++) {
                            pair[t] = x[t] + i * x_i[t] + j * x_j[t] + first;
                            __builtin_prefetch(pair[t] + x_i[t]); /* the next child's, far away in memory */
                        }
                        for (int d = 0; d < OUT; d++) own[d][0] = own[d][1] = (vec){0};
                        all_terms(terms, n, step, pair, y + parent, 0, own);
                        if (z) {
                            for (int row = 0; row < ROWS; row++)
                                for (int c = 0; c < COLS; c += BLOCK)
                                    make(n, u + i * IN * n + first, weight, origin + parent, 0, row, c, v + row * COLS + c);
                            all_terms(terms, n, step, pair, z + parent, v, own);
                        }
                        for (size l = 0; first + l < (block + b) * LANES; l++) /* what the block before has counted */
                            for (int d = 0; d < OUT; d++) own[d][l / WIDE][l % WIDE] = 0;
                        for_poses(n, weight, own, du + i * IN * n + first);
                    }
                }
                for (size i = child; i < end; i++)
                    for_weights(n, u + i * IN * n, g[i - child], block, blocks, dw + (i * parents + j) * INNER * COLS);
            }
        }
        free(pair);
        free(g);
    }
}
