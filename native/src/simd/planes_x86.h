/*
 * planes_x86.h: what planes_avx2.c and planes_avx512.c have in common. Before it stand WORDS, a vector of 16-bit numbers,
 * OP(name), an operation on it, and BASES, how many numbers of `base` belong to a block.
 */

/* What is read of the lanes, block by block of 32 outputs. */
typedef struct {
  const int32_t *base;
  const uint8_t *picks;
  const int16_t *weights;
  int32_t pairs, windows;
  int close;
} steps;

INLINE steps first_step(const stk_lanes *lanes, int32_t pairs, int32_t windows, int close) {
  return (steps){lanes->base, lanes->picks, lanes->weights, pairs, windows, close};
}

INLINE void advance(steps *s) {
  s->base += BASES;
  s->picks += 128;
  s->weights += 64 * s->pairs;
}

/* Of luma with the half to be rounded by, and chroma around zero. Packing the words with saturation makes bytes. */
INLINE void to_rgb(WORDS y, WORDS cb, WORDS cr, WORDS rgb[3]) {
  rgb[0] = OP(add_epi16)(OP(add_epi16)(y, cr), OP(mulhrs_epi16)(cr, OP(set1_epi16)(STK_CR_TO_RED)));
  rgb[1] = OP(sub_epi16)(OP(sub_epi16)(y, OP(mulhrs_epi16)(cb, OP(set1_epi16)(STK_CB_FROM_GREEN))),
                         OP(mulhrs_epi16)(cr, OP(set1_epi16)(STK_CR_FROM_GREEN)));
  rgb[2] = OP(add_epi16)(OP(add_epi16)(y, cb), OP(mulhrs_epi16)(cb, OP(set1_epi16)(STK_CB_TO_BLUE)));
  for (int k = 0; k < 3; k++) rgb[k] = OP(srai_epi16)(rgb[k], 6);
}
