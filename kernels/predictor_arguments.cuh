// Of frame_solo, frame_rows and frame_pairs. A chunk of the first two is [8 warps][2048 bytes]; of frame_pairs see there.
struct Arguments {
  const u8 *layers;        // chunks of this block, in the order of their use
  const u8 *projection;    // chunks, by block
  const u8 *heads;         // [PASSES-1], chunks by block
  const u8 *owned;         // frame_rows only: [64][LAYERS*10][8][2048], `output` and `down`
  const float *scales;     // frame_solo with EIGHT: [128][LAYERS*112 + PASSES*16], by block
  const u16 *tables;       // [PASSES-1][CODES][HID]: embeddings already projected
  const u16 *hidden;       // [rows][WIDTH]
  const float *bias;       // [HID]
  const float *head_norms; // [LAYERS][2][128]: queries, keys
  const float *rotary;     // [PASSES][2][64]: cosines, sines
  int *codes;              // [rows][16]; column 0 is given
  u8 *mail;
  const float *temperature, *top_p;
  const int *top_k, *step;
  const long long *seed;
  float *logits;           // null, or [PASSES-1][rows][CODES]
  u16 *cache;              // frame_pairs only: [rows * 8][LAYERS][keys, values][PASSES - 1][128]
  int rows, forced;
};
