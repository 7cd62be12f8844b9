// A stage of a one-launch decoder for up to 64 rows: y[row, n] = sum_k x[row, k] W[n, k], by pairs of blocks.
//
//   split     a block of a pair has half of k for all outputs of the pair (so it reads half of the rows' inputs), a
//             warpgroup half of that. The warpgroups add their sums, and the block sends the other block its outputs:
//             partial sums travel through the cluster's shared memory and count themselves on the receiver's barrier.
//             That way is narrow (about ten bytes a tick), so each sum goes once. Always added in the same order.
//   rows      are the 64 rows of the tensor core, 16 a warp; outputs are its columns. Inputs go from mail to registers
//             (a word of ones has not arrived: ask again) and are used from there: the warps of a block do not meet.
//             A warp first looks at one word of each block that its inputs come from, then asks for all of them.
//   ring      the tensor core reads weights where the copies put them. A place is given back after the wait for its
//             products, which end with their reads (so it needs no other tie to what was read; see grid_mail.cuh).
//   regions   sums of stages with many outputs arrive in `even`, of others in `odd`, in turn. So whoever sends to a
//             row of a region again has inputs that were made of what its receiver had read there.
//
// Compile-time: PLACES.
constexpr int ROWS = 64;

__device__ __forceinline__ u32 peer(u32 at, u32 rank) {
  u32 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
  return r;
}
__device__ __forceinline__ void send4(u32 at, u32 barrier, float a, float b, float c, float d) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(at),
               "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send1(u32 at, u32 barrier, float a) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at), "f"(a),
               "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void post4(void *p, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void fetch_line(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
__device__ __forceinline__ void meet_all() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Pieces of 32 k of both warpgroups in a chunk, for n outputs.
constexpr int PLACE = 24576;
constexpr int chunk_pieces(int n) {
  return n * 128 * 8 <= PLACE ? 8 : n * 128 * 4 <= PLACE ? 4 : n * 128 * 2 <= PLACE ? 2 : 1;
}

// Nothing moves the sums across this.
template <int N>
__device__ __forceinline__ void touch(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

template <int N>
__device__ __forceinline__ void touch(uint4 (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(v[i].x), "+r"(v[i].y), "+r"(v[i].z), "+r"(v[i].w)::"memory");
}

__device__ __forceinline__ void add_squares(uint4 v, float &a, float &b) {
  a += low(v.x) * low(v.x) + low(v.z) * low(v.z), b += high(v.x) * high(v.x) + high(v.z) * high(v.z);
  a += low(v.y) * low(v.y) + low(v.w) * low(v.w), b += high(v.y) * high(v.y) + high(v.w) * high(v.w);
}

struct Region {  // where sums arrive
  u32 at;
  u64 *full;
  u32 parity;
  const float *data;
};

struct Team {
  u32 ring, squares;  // in shared memory
  float4 *desk;       // [8 warps][6][32]: what a warp gives to the other warpgroup
  u64 *full, *empty;
  int rows, w, lane, g, q, wg, rank, place;
  u32 phase, far;  // from this block's shared memory to the other's

  // N outputs of the cluster; sums arrive in `region`, STRIDE floats a row. PIECES: of 32 k, for each warpgroup.
  // `row_at(row)`: this block's inputs of a row.
  template <int N, int PIECES, bool SQUARES, int STRIDE, class RowAt>
  __device__ __forceinline__ void product(Region &region, RowAt row_at) {
    constexpr int MINE = N / 2, IN_CHUNK = chunk_pieces(N);
    constexpr int PER = PIECES == 24 ? 12 : 8, CHUNKS = PIECES / IN_CHUNK;  // a turn; of the stage
    static_assert(PIECES % PER == 0 && N % 16 == 0, "a lane gets four neighbours of 16 outputs");
    if (w == 0 && lane == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(region.full)),
                   "r"(rows * (MINE + (SQUARES ? 2 : 0)) * 4)
                   : "memory");
    const int r0 = (w & 3) * 16 + g, r1 = r0 + 8;
    const u16 *from0 = row_at(min(r0, rows - 1)) + wg * (PIECES * 32) + q * 8,
              *from1 = row_at(min(r1, rows - 1)) + wg * (PIECES * 32) + q * 8;
    float c[N / 2], sum0 = 0, sum1 = 0;
    uint4 x[PER], y[PER];  // rows r0 and r1
    const u64 base = tile_at(ring + wg * (N * 64));
    // Weights are mostly there before the inputs, so they are waited for first.
    int places[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
      if (!CHAIN_ONLY) await_barrier(full + place, phase);
      places[i] = place;
      if (++place == PLACES) place = 0, phase ^= 1;
    }
    await1(from1 + (g * (PIECES / 8)) * 32);  // one word of each producer; then all
    __syncwarp();
#pragma unroll
    for (int first = 0; first < PIECES; first += PER) {
      Patience patience;
      u32 most;
      do {
        most = 0;
#pragma unroll
        for (int i = 0; i < PER; i++) {
          x[i] = peek(from0 + (first + i) * 32), y[i] = peek(from1 + (first + i) * 32);
        }
#pragma unroll
        for (int i = 0; i < PER; i++) {
          most = max(max(most, max(x[i].x, x[i].y)), max(x[i].z, x[i].w));
          most = max(max(most, max(y[i].x, y[i].y)), max(y[i].z, y[i].w));
        }
        patience.spend();
      } while (missing(most));
      __syncwarp();
      touch(c), touch(x), touch(y);
      group_begin();
#pragma unroll
      for (int i = 0; i < PER; i++) {
        const u64 tile = base + places[(first + i) / IN_CHUNK] * (PLACE / 16) + (first + i) % IN_CHUNK * (N * 8);
        Group<N>::multiply(c, x[i].x, y[i].x, x[i].y, y[i].y, tile, first || i);
        Group<N>::multiply(c, x[i].z, y[i].z, x[i].w, y[i].w, tile + 2, 1);
      }
      group_commit();
      if (SQUARES) {
        float even = 0, odd = 0;
#pragma unroll
        for (int i = 0; i < PER; i++) {
          add_squares(x[i], sum0, even);
          add_squares(y[i], sum1, odd);
        }
        sum0 += even, sum1 += odd;
      }
      group_wait<0>();
      touch(c), touch(x), touch(y);
    }
    if (lane == 0)
#pragma unroll
      for (int i = 0; i < CHUNKS; i++)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(empty + places[i])) : "memory");
    if (SQUARES)
#pragma unroll
      for (int o = 1; o < 4; o *= 2) sum0 += __shfl_xor_sync(~0u, sum0, o), sum1 += __shfl_xor_sync(~0u, sum1, o);
    // The first warpgroup adds both shares of rows r0, the second those of r1.
    float4 *give = desk + w * 192 + lane;
    const float4 *take = desk + (w ^ 4) * 192 + lane;
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
      const int o = 8 * j;
      give[j * 32] =
          wg ? make_float4(c[o], c[o + 1], c[o + 4], c[o + 5]) : make_float4(c[o + 2], c[o + 3], c[o + 6], c[o + 7]);
    }
    const u32 barrier = shared_at(region.full);
    if (SQUARES && q == 0) {
      const u32 at = squares + ((rank * 2 + wg) * ROWS + r0) * 4;
      if (r0 < rows) {
        send1(at + far, barrier + far, sum0);
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sum0) : "memory");
      }
      if (r1 < rows) {
        send1(at + far + 32, barrier + far, sum1);
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + 32), "f"(sum1) : "memory");
      }
    }
    asm volatile("bar.sync %0, 64;" ::"r"(2 + (w & 3)) : "memory");
    const int row = wg ? r1 : r0;
    if (row < rows) {
      const u32 at = region.at + (rank * ROWS + row) * STRIDE * 4;
#pragma unroll
      for (int j = 0; j < N / 16; j++) {
        const int o = 8 * j, to = MINE == 8 ? q >> 1 : 16 * j / MINE,
                  offset = MINE == 8 ? (q & 1) * 4 : 16 * j % MINE + q * 4;
        const float4 t = take[j * 32];
        float4 s =
            wg ? make_float4(c[o + 2], c[o + 3], c[o + 6], c[o + 7]) : make_float4(c[o], c[o + 1], c[o + 4], c[o + 5]);
        s.x += t.x, s.y += t.y, s.z += t.z, s.w += t.w;
        if (to == rank)
          asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at + offset * 4), "f"(s.x), "f"(s.y), "f"(s.z),
                       "f"(s.w)
                       : "memory");
        else
          send4(at + offset * 4 + far, barrier + far, s.x, s.y, s.z, s.w);
      }
    }
    __syncwarp();
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    await_barrier(region.full, region.parity);
    region.parity ^= 1;
  }
  // Four outputs of a row, summed.
  template <int SETS, int STRIDE>
  __device__ __forceinline__ float4 sum4(const Region &region, int row, int n) const {
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
    for (int i = 0; i < 4; i++) s += squares[i * ROWS + row];
    return rsqrtf(s * (1.f / width) + 1e-6f);
  }
};
