/* Votes of matrices that children share are never made: their sums and inner products are products of small matrices,
   one for each example, whose numbers lie as [b row column l]. */

enum { HIGH = 4, LONG = BYTES == 64 ? 6 : 3 }; /* a corner of the result that has its numbers in registers */

typedef struct { REAL *at; size block, row, column; } table; /* and how far the next ones are */

/* to = from x with, or that added to it: `high` rows and `wide` columns. */
INLINE void corner(int high, int wide, size length, table from, table with, table to, int add) {
    for (int l = 0; l < LANES; l += WIDE) {
        vec total[HIGH][LONG], left[HIGH];
        UNROLL for (int m = 0; m < high; m++)
            UNROLL for (int n = 0; n < wide; n++)
                total[m][n] = add ? LOAD(to.at + m * to.row + n * to.column + l) : (vec){0};
        for (size k = 0; k < length; k++) {
            UNROLL for (int m = 0; m < high; m++) left[m] = LOAD(from.at + m * from.row + k * from.column + l);
            UNROLL for (int n = 0; n < wide; n++) {
                vec right = LOAD(with.at + k * with.row + n * with.column + l);
                UNROLL for (int m = 0; m < high; m++) total[m][n] += left[m] * right;
            }
        }
        UNROLL for (int m = 0; m < high; m++)
            UNROLL for (int n = 0; n < wide; n++) STORE(to.at + m * to.row + n * to.column + l, total[m][n]);
    }
}

#define CORNERS(high)                                                                                                  \
    switch (wide) {                                                                                                    \
    case 1: corner(high, 1, length, from, with, to, add); break;                                                       \
    case 2: corner(high, 2, length, from, with, to, add); break;                                                       \
    case 3: corner(high, 3, length, from, with, to, add); break;                                                       \
    case 4: corner(high, 4 < LONG ? 4 : LONG, length, from, with, to, add); break;                                     \
    case 5: corner(high, 5 < LONG ? 5 : LONG, length, from, with, to, add); break;                                     \
    default: corner(high, LONG, length, from, with, to, add);                                                          \
    }

static void strip(size high, size wide, size length, table from, table with, table to, int add) {
    if (high == HIGH) { CORNERS(HIGH) return; }
    for (size m = 0; m < high; m++, from.at += from.row, to.at += to.row) CORNERS(1)
}

/* to [b m n l] = Sum_k from [b m k l] with [b k n l], or that added to it. */
void product(int threads, size blocks, size rows, size columns, size length, REAL *a, size a_b, size a_m, size a_k, REAL *b,
             size b_b, size b_k, size b_n, int add, REAL *c) {
    #pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (size block = 0; block < blocks; block++)
        for (size m = 0; m < rows; m += HIGH)
            for (size n = 0; n < columns; n += LONG) {
                table from = {a + block * a_b + m * a_m, a_b, a_m, a_k}, with = {b + block * b_b + n * b_n, b_b, b_k, b_n};
                table to = {c + ((block * rows + m) * columns + n) * LANES, 0, columns * LANES, LANES};
                strip(rows - m < HIGH ? rows - m : HIGH, columns - n < LONG ? columns - n : LONG, length, from, with, to, add);
            }
}
