// A stage of a one-launch decoder for up to 64 rows: y[row, n] = sum_k x[row, k] W[n, k], by clusters of CL blocks.
//
//   split     a block of a cluster has its share of k for all outputs of the cluster (so it reads a CL-th of the rows' inputs), a
//             warpgroup half of that; each sends every block of the cluster that block's outputs: partial sums travel through
//             the cluster's shared memory and count themselves on the receiver's barrier. The receiver adds them, always in
//             the same order.
//   rows      are the 64 rows of the tensor core, 16 a warp, outputs its columns. Inputs go from mail to registers (a word of
//             ones has not arrived: ask again) and are used from there: nothing in a block meets.
//   regions   partial sums of stages with many outputs arrive in `even`, of others in `odd`, in turn: whoever sends to a region
//             again has seen sums of the stage between, which its receiver sent after it had read the region.
//
// Compile-time: CL (2 or 4), NT (tiles of 8 rows in memory: 1, 2, 4, 8), PLACES.
constexpr int ROWS = NT * 8, SPINS = 1 << 22;

__device__ __forceinline__ u32 peer(u32 at, u32 rank) {
  u32 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
  return r;
}
__device__ __forceinline__ void send4(u32 at, u32 barrier, float a, float b, float c, float d) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(at), "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send1(u32 at, u32 barrier, float a) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at), "f"(a), "r"(barrier) : "memory");
}
__device__ __forceinline__ bool passed(u64 *barrier, u32 parity) {
  u32 done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(shared_at(barrier)), "r"(parity) : "memory");
  return done;
}
__device__ __forceinline__ void wait_for(u64 *barrier, u32 parity) {
  int spins = 0;
  while (!passed(barrier, parity))
    if (++spins > SPINS) __trap();
}
__device__ __forceinline__ u32 patient1(const void *p) {
  u32 v;
  int spins = 0;
  do {
    v = peek1(p);
    if (++spins > SPINS) __trap();
  } while (missing(v));
  return v;
}
__device__ __forceinline__ void post4(void *p, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void fetch_line(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
__device__ __forceinline__ void meet_all() { asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Pieces of 32 k of both warpgroups in a chunk, for n outputs.
constexpr int PLACE = 24576;
constexpr int chunk_pieces(int n) { return n * 128 * 8 <= PLACE ? 8 : n * 128 * 4 <= PLACE ? 4 : n * 128 * 2 <= PLACE ? 2 : 1; }

// Nothing moves the sums across this.
template <int N> __device__ __forceinline__ void touch(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

template <int N> __device__ __forceinline__ void touch(uint4 (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(v[i].x), "+r"(v[i].y), "+r"(v[i].z), "+r"(v[i].w)::"memory");
}

struct Region {   // where sums arrive
  u32 at;
  u64 *full;
  u32 parity;
  const float *data;
};

#ifdef TRACE   // measuring: ticks of one warp between points, [kind of stage][point]
__shared__ u32 ticks[64];
__shared__ u32 tick;
#define MARK(kind, point) if (threadIdx.x == 0) { const u32 now = clock(); ticks[(kind) * 8 + (point)] += now - tick, tick = now; }
#else
#define MARK(kind, point)
#endif

struct Team {
  u32 ring, squares;   // in shared memory
  u64 *full, *empty;
  int rows, w, lane, g, q, wg, rank, place;
  u32 phase, begin, distance;   // from this block's shared memory to that of the first of the cluster, from one to the next

  __device__ __forceinline__ void give_back(int at) {
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + at)) : "memory");
  }
  // N outputs of the cluster; sums arrive in `region`, STRIDE floats a row. PIECES: of 32 k, for each warpgroup.
  // `row_at(row)`: this block's inputs of a row.
  template <int N, int PIECES, bool SQUARES, int STRIDE, class RowAt>
  __device__ __forceinline__ void product(Region &region, RowAt row_at) {
    constexpr int MINE = N / CL, SETS = CL * 2, IN_CHUNK = chunk_pieces(N), CHUNKS = 8 / IN_CHUNK;
    constexpr int KIND = N == 32 * CL ? 0 : N == 48 * CL ? 2 : N == 16 * CL ? 4 : PIECES == 2048 / CL / 64 ? 1 : 3;
    MARK(KIND, 0)
    static_assert(PIECES % 8 == 0 && N % 16 == 0, "eight pieces a turn; a lane gets four neighbours of 16 outputs");
    if (w == 0 && lane == 0) {
      const u32 bytes = rows * (SETS * MINE + (SQUARES ? SETS : 0)) * 4;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(region.full)), "r"(bytes) : "memory");
    }
    const int r0 = (w & 3) * 16 + g, r1 = r0 + 8;
    const bool has0 = r0 < rows, has1 = r1 < rows;
    const u16 *from0 = row_at(min(r0, rows - 1)) + wg * (PIECES * 32) + q * 8, *from1 = row_at(min(r1, rows - 1)) + wg * (PIECES * 32) + q * 8;
    float c[N / 2], s0[4] = {}, s1[4] = {};
    uint4 x[8], y[8];                                      // rows r0 and r1
    const u64 base = tile_at(ring + wg * (N * 64), N * 16);
#pragma unroll 1
    for (int first = 0; first < PIECES; first += 8) {
      const bool any = (w & 3) * 16 < rows;
      if (any) {
        patient1(from1 + first * 32 + g * 32);             // one word of each producer; then all
        __syncwarp();
        MARK(KIND, 1)
        int spins = 0;
        u32 most;
        do {
          most = 0;
#pragma unroll
          for (int i = 0; i < 8; i++) x[i] = peek(from0 + (first + i) * 32), y[i] = peek(from1 + (first + i) * 32);
#pragma unroll
          for (int i = 0; i < 8; i++) most = max(max(most, max(x[i].x, x[i].y)), max(x[i].z, x[i].w)), most = max(max(most, max(y[i].x, y[i].y)), max(y[i].z, y[i].w));
          if (++spins > SPINS) __trap();
        } while (missing(most));
        __syncwarp();
      } else {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = y[i] = make_uint4(0, 0, 0, 0);
      }
      MARK(KIND, 2)
      u64 tiles[CHUNKS];
      int places[CHUNKS];
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        if (!CHAIN_ONLY) wait_for(full + place, phase);
        places[i] = place, tiles[i] = base + place * (PLACE / 16);
        if (++place == PLACES) place = 0, phase ^= 1;
      }
      __syncwarp();
      MARK(KIND, 3)
      touch(c), touch(x), touch(y);
      group_begin();
#pragma unroll
      for (int i = 0; i < 8; i++) {
        Group<N>::multiply(c, x[i].x, y[i].x, x[i].y, y[i].y, tiles[i / IN_CHUNK] + i % IN_CHUNK * (N * 8), first || i);
        Group<N>::multiply(c, x[i].z, y[i].z, x[i].w, y[i].w, tiles[i / IN_CHUNK] + i % IN_CHUNK * (N * 8) + N * 2, 1);
      }
      group_commit();
      if (SQUARES && any)                                  // the diagonal of x x^T
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const uint4 a = make_uint4(x[i].x, y[i].x, x[i].y, y[i].y), b = make_uint4(x[i].z, y[i].z, x[i].w, y[i].w);
          ::multiply(s0, a, x[i].x, x[i].y), ::multiply(s1, a, y[i].x, y[i].y);
          ::multiply(s0, b, x[i].z, x[i].w), ::multiply(s1, b, y[i].z, y[i].w);
        }
      group_wait<0>();
      touch(c), touch(x), touch(y);
      if (lane == 0)
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + places[i])) : "memory");
    }
    MARK(KIND, 4)
    const int set = rank * 2 + wg;
    const u32 barrier = shared_at(region.full), mine = region.at + (set * ROWS + r0) * STRIDE * 4;
    if (SQUARES && q == g >> 1) {
      const float sum0 = g & 1 ? s0[1] : s0[0], sum1 = g & 1 ? s1[3] : s1[2];
#pragma unroll
      for (int to = 0; to < CL; to++) {
        const u32 far = begin + to * distance, at = squares + (set * ROWS + r0) * 4;
        if (has0) send1(at + far, barrier + far, sum0);
        if (has1) send1(at + far + 32, barrier + far, sum1);
      }
    }
    if (has0)
#pragma unroll
      for (int j = 0; j < N / 16; j++) {
        const int to = MINE == 8 ? 2 * j + (q >> 1) : 16 * j / MINE, offset = MINE == 8 ? (q & 1) * 4 : 16 * j % MINE + q * 4;
        const u32 far = begin + to * distance;
        send4(mine + offset * 4 + far, barrier + far, c[8 * j], c[8 * j + 1], c[8 * j + 4], c[8 * j + 5]);
        if (has1) send4(mine + offset * 4 + far + 8 * STRIDE * 4, barrier + far, c[8 * j + 2], c[8 * j + 3], c[8 * j + 6], c[8 * j + 7]);
      }
    MARK(KIND, 5)
    wait_for(region.full, region.parity);
    MARK(KIND, 6)
    region.parity ^= 1;
  }
  // Four outputs of a row, summed.
  template <int SETS, int STRIDE> __device__ __forceinline__ float4 sum4(const Region &region, int row, int n) const {
    float4 s = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < SETS; i++) {
      const float4 v = *(const float4 *)(region.data + (i * ROWS + row) * STRIDE + n);
      s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
    }
    return s;
  }
  __device__ __forceinline__ float scale(const float *squares, int row, int width) const {
    float s = 0;
#pragma unroll
    for (int i = 0; i < CL * 2; i++) s += squares[i * ROWS + row];
    return rsqrtf(s * (1.f / width) + 1e-6f);
  }
};
