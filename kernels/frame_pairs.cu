// The inner passes for up to 64 rows, by pairs of blocks. See pair_stage.cuh. Block b finishes the b-th 128th of every
// stage's outputs. It keeps its 8 places of the residual in registers, rounded to bfloat16 at each addition.
// Norms are multiplied into the weights; the sum of squares is made from the inputs as they pass.
// Attention: one row and key/value head for each pair of warps; the cache lies in global memory and is fetched a layer
// ahead.
constexpr int KEPT = PASSES - 1, ITEMS = 4;
static_assert(HID == 1024 && FFN == 3072 && WIDTH == 2048 && WARPS == 8 && PART == 2048 && CODES == 2048,
              "cut for these");
constexpr int WIDE_ROW = 36, GATE_ROW = 52, CODE_ROW = 16, OWN_ROW = 8;  // floats of a row in a region
constexpr int EVEN = 2 * ROWS * GATE_ROW * 4, ODD = 2 * ROWS * OWN_ROW * 4, DESK = WARPS * 6 * 512;

__device__ void copy_ahead(const Arguments &a, u8 *room, u64 *full, u64 *empty, int b) {
  int at = 0;
  u32 phase = 1;
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  auto copy = [&](const u8 *&from, int total, int n) {
    const int bytes = chunk_pieces(n) * n * 128;
    for (; total > 0; total -= bytes, from += bytes) {
      await_barrier(empty + at, phase);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(full + at)), "r"(bytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
          "%4;" ::"r"(shared_at(room + at * PLACE)),
          "l"(from), "r"(bytes), "r"(shared_at(full + at)), "l"(policy)
          : "memory");
      if (++at == PLACES) at = 0, phase ^= 1;
    }
  };
  constexpr int QKV = HID * 64, OUT = 2048 * 16, GATES = HID * 96, DOWN = FFN * 16, HEAD = HID * 32,
                ALL = QKV + OUT + GATES + DOWN;
  const u8 *from = a.projection + (size_t)b * WIDTH * 16;
  copy(from, WIDTH * 16, 16);
  for (int pass = 0; pass < PASSES; pass++) {
    from = a.layers + (size_t)b * LAYERS * ALL;
    for (int l = 0; l < LAYERS; l++) {
      copy(from, QKV, 64);
      if (pass == 0 && l == LAYERS - 1) break;
      copy(from, OUT, 16);
      copy(from, GATES, 96);
      copy(from, DOWN, 16);
    }
    if (pass) {
      from = a.heads + ((size_t)(pass - 1) * BLOCKS + b) * HEAD;
      copy(from, HEAD, 32);
    }
  }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS + 32, 1) frame_pairs(const Arguments a) {
  extern __shared__ __align__(1024) u8 room[];
  u16 *const mailbox = held((u16 *)a.mail);
  const int tid = threadIdx.x, lane = tid & 31, w = __shfl_sync(~0u, tid >> 5, 0), b = blockIdx.x, g = lane >> 2,
            q = lane & 3, rows = a.rows;
  constexpr int TILE = 2 * 16 * 256;  // keys and values of 16 positions, swizzled
  u8 *even_room = room + PLACES * PLACE, *odd_room = even_room + EVEN, *tiles = odd_room + ODD,
     *desk = tiles + ITEMS * TILE;
  float *squares = (float *)(desk + DESK);  // [4][ROWS]
  float *small = squares + 4 * ROWS;        // [128]
  u16 *queries = (u16 *)(small + 128);      // [8][128]
  u16 *head_norms = queries + WARPS * 128;  // [LAYERS][queries, keys][128]
  u64 *full = (u64 *)(head_norms + LAYERS * 256), *empty = full + PLACES, *sums = empty + PLACES;  // [even, odd, quiet]
  for (int i = tid; i < ITEMS * TILE / 16; i += THREADS + 32) ((uint4 *)tiles)[i] = make_uint4(0, 0, 0, 0);
  for (int i = tid; i < LAYERS * 256; i += THREADS + 32) head_norms[i] = (u16)pair(a.head_norms[i], 0.f);
  if (tid == 0) {
    for (int i = 0; i < PLACES; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(full + i)));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(shared_at(empty + i)));
    }
    for (int i = 0; i < 2; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 9;" ::"r"(shared_at(sums + i)));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(sums + 2)), "n"(16));
    asm volatile("fence.mbarrier_init.release.cluster;\n fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncwarp();
  meet_all();
#ifdef LOST  // testing: a block that never comes
  if (b == LOST) return;
#endif
  if (w == WARPS) {
    if (lane == 0 && !CHAIN_ONLY) copy_ahead(a, room, full, empty, b);
    return;
  }
  const u32 N_LAYER = rows * (4096 + 2048 + HID + FFN + HID), first_mail = rows * HID;
  const u32 logit_mail = first_mail + PASSES * LAYERS * N_LAYER,
            code_mail = logit_mail + (PASSES - 1) * rows * CODES * 2;
  auto mail = [&](u32 place) { return mailbox + place; };
  Team team{shared_at(room),
            shared_at(squares),
            (float4 *)desk,
            full,
            empty,
            rows,
            w,
            lane,
            g,
            q,
            w >> 2,
            b & 1,
            0,
            0,
            peer(shared_at(room), (b & 1) ^ 1) - shared_at(room)};
  Region even{shared_at(even_room), sums, 0, (const float *)even_room},
      odd{shared_at(odd_room), sums + 1, 0, (const float *)odd_room};
  const int rank = b & 1, own_row = tid >> 1, own_column = b * 8 + (tid & 1) * 4;
  const bool owns = tid < 128 && own_row < rows;
  uint2 kept = {0, 0};      // four places of the residual
  auto own = [&](u32 to) {  // adds a stage's sums to it
    if (!owns) return;
    const float4 s = team.sum4<2, OWN_ROW>(odd, own_row, (tid & 1) * 4);
    kept = make_uint2(pair(low(kept.x) + s.x, high(kept.x) + s.y), pair(low(kept.y) + s.z, high(kept.y) + s.w));
    post2(mail(to + own_row * HID + own_column), kept.x, kept.y);
  };
  auto fetch = [&](u32 from, u32 words) {  // a part of the mail to come, into L2
    const u32 line = b + tid * BLOCKS;
    if (line * 64 < words) fetch_line(mail(from) + line * 64);
  };

  if (owns)
    kept = make_uint2(pair(a.bias[own_column], a.bias[own_column + 1]),
                      pair(a.bias[own_column + 2], a.bias[own_column + 3]));
  fetch(0, first_mail + N_LAYER);
  team.product<16, WIDTH / 128, false, OWN_ROW>(odd,
                                                [&](int row) { return a.hidden + row * WIDTH + rank * (WIDTH / 2); });
  own(0);
  for (int pass = 0; pass < PASSES; pass++) {
    const float4 cosine = *(const float4 *)(a.rotary + pass * 128 + (lane & 15) * 4);
    float4 sine = *(const float4 *)(a.rotary + pass * 128 + 64 + (lane & 15) * 4);
    if (lane < 16) sine = make_float4(-sine.x, -sine.y, -sine.z, -sine.w);
    auto start = [&](int row) -> const u16 * {  // the pass's input rows
      if (pass == 0) return mail(row * HID);
      int code;
      if (pass == 1)
        code = a.codes[row * 16];
      else {
        // Also when forced: it says that the logits were read, and so the region that the next sums go to.
        code = await1(mail(code_mail + ((pass - 2) * rows + row) * 2));
        if (a.forced) code = a.codes[row * 16 + pass - 1];
      }
      return a.tables + ((size_t)(pass - 1) * CODES + (code & (CODES - 1))) * HID;
    };
    for (int l = 0; l < LAYERS; l++) {
      const u32 m_qkv = first_mail + (pass * LAYERS + l) * N_LAYER, m_att = m_qkv + rows * 4096,
                m_out = m_att + rows * 2048, m_act = m_out + rows * HID, m_down = m_act + rows * FFN;
      if (pass == 1 && l == 0) await_barrier(sums + 2, 0);
      if (pass < PASSES - 1 || l < LAYERS - 1) fetch(m_qkv + N_LAYER, N_LAYER);
      if (l == LAYERS - 1 && pass) fetch(logit_mail + (pass - 1) * rows * CODES * 2, rows * CODES * 2);
      asm volatile("cp.async.wait_all;" ::: "memory");  // and below all meet: this layer's cache is there
      team.product<64, HID / 128, true, WIDE_ROW>(even, [&](int row) {
        return (l ? (const u16 *)mail(m_down - N_LAYER + row * HID) : start(row)) + rank * (HID / 2);
      });
      {
        const int row = tid >> 2, n = (tid & 3) * 8;
        if (row < rows) {
          const float r = team.scale(squares, row, HID);
          const float4 s = team.sum4<2, WIDE_ROW>(even, row, n), t = team.sum4<2, WIDE_ROW>(even, row, n + 4);
          u16 *to = mail(m_qkv + row * 4096 + b * 32 + n);
          post4(to, make_uint4(pair(s.x * r, s.y * r), pair(s.z * r, s.w * r), pair(t.x * r, t.y * r),
                               pair(t.z * r, t.w * r)));
        }
        meet();
        if (l == 0 && pass && owns) kept = peek2(start(own_row) + own_column);
      }
      const int mine = w >> 1, item = b + mine * BLOCKS;
      if (item < rows * 8) {  // attention
        const int row = item >> 3, kv = item & 7, head = kv * 2 + (w & 1);
        const u16 *m = mail(m_qkv + row * 4096 + lane * 4);
        const uint2 wq = *(const uint2 *)(head_norms + l * 256 + lane * 4),
                    wk = *(const uint2 *)(head_norms + l * 256 + 128 + lane * 4);
        uint2 qv, kk, vv;
        Patience patience;
        do {
          qv = peek2(m + head * 128), kk = peek2(m + 2048 + kv * 128), vv = peek2(m + 3072 + kv * 128);
          patience.spend();
        } while (missing(max(qv.x, qv.y)) || missing(max(kk.x, kk.y)) || missing(max(vv.x, vv.y)));
        __syncwarp();
        float y[4] = {low(qv.x), high(qv.x), low(qv.y), high(qv.y)},
              z[4] = {low(kk.x), high(kk.x), low(kk.y), high(kk.y)};
        const float sy = rsqrtf(warp_sum(y[0] * y[0] + y[1] * y[1] + y[2] * y[2] + y[3] * y[3]) * 0.0078125f + 1e-6f) *
                         0.12751743f;  // 1 / sqrt(128), log2(e)
        const float sz = rsqrtf(warp_sum(z[0] * z[0] + z[1] * z[1] + z[2] * z[2] + z[3] * z[3]) * 0.0078125f + 1e-6f);
        const float fq[4] = {low(wq.x), high(wq.x), low(wq.y), high(wq.y)},
                    fk[4] = {low(wk.x), high(wk.x), low(wk.y), high(wk.y)};
        const float cs[4] = {cosine.x, cosine.y, cosine.z, cosine.w}, sn[4] = {sine.x, sine.y, sine.z, sine.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          y[i] *= sy * fq[i], z[i] *= sz * fk[i];
          y[i] = y[i] * cs[i] + __shfl_xor_sync(~0u, y[i], 16) * sn[i];
          z[i] = z[i] * cs[i] + __shfl_xor_sync(~0u, z[i], 16) * sn[i];
        }
        const u32 keys = shared_at(tiles) + mine * TILE, values = keys + TILE / 2;
        // row `pos` of a cache: 16 pieces of 16 bytes, piece c at c ^ (pos & 7)
        const u32 spot = pass * 256 + (((lane >> 1) ^ (pass & 7)) << 4) + (lane & 1) * 8;
        const uint2 k2 = make_uint2(pair(z[0], z[1]), pair(z[2], z[3]));
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(keys + spot), "r"(k2.x), "r"(k2.y)
                     : "memory");  // two warps write the same
        asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(values + spot), "r"(vv.x), "r"(vv.y) : "memory");
        if (pass < KEPT) {
          u16 *store = a.cache + (((size_t)item * LAYERS + l) * 2 + (w & 1)) * KEPT * 128 + pass * 128 + lane * 4;
          *(uint2 *)store = w & 1 ? vv : k2;
        }
        u32 *qs = (u32 *)(queries + w * 128);  // word j of the query: tile j/8, then as the product reads it
        {
          const int j = lane * 2, t = j >> 3, r = j & 7;
          u32 *to = qs + (t >> 1) * 16 + (r & 3) * 4 + (t & 1) * 2 + (r >> 2);
          to[0] = pair(y[0], y[1]), to[4] = pair(y[2], y[3]);
        }
        __syncwarp();
        uint4 vf[8], kf[8], qf[4];  // all reads first, then the products
        {
          const int row = lane & 15, pos = (lane & 7) + (lane >> 4) * 8, side = (lane >> 3) & 1;
          const u32 k_base = keys + row * 256, v_base = values + pos * 256;
#pragma unroll
          for (int t = 0; t < 4; t++) qf[t] = *(const uint4 *)(qs + t * 16 + q * 4);
#pragma unroll
          for (int t = 0; t < 8; t++) kf[t] = matrix(k_base + (((t * 2 + (lane >> 4)) ^ (row & 7)) << 4));
#pragma unroll
          for (int t = 0; t < 8; t++) vf[t] = matrix_turned(v_base + (((t * 2 + side) ^ (pos & 7)) << 4));
        }
        float s[2][4] = {};
#pragma unroll
        for (int t = 0; t < 4; t++) {
          multiply(s[0], kf[2 * t], qf[t].x, qf[t].y);
          multiply(s[1], kf[2 * t + 1], qf[t].z, qf[t].w);
        }
        float s0 = g <= pass ? s[0][0] + s[1][0] : -1e30f, s1 = g + 8 <= pass ? s[0][2] + s[1][2] : -1e30f,
              most = fmaxf(s0, s1);
#pragma unroll
        for (int o = 4; o < 32; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
        s0 = exp2f(s0 - most), s1 = exp2f(s1 - most);
        float all = s0 + s1;
#pragma unroll
        for (int o = 4; o < 32; o *= 2) all += __shfl_xor_sync(~0u, all, o);
        const float share = __fdividef(1.f, all);
        s0 *= share, s1 *= share;
        const u32 p0 = pair(__shfl_sync(~0u, s0, q * 8), __shfl_sync(~0u, s0, q * 8 + 4)),
                  p1 = pair(__shfl_sync(~0u, s1, q * 8), __shfl_sync(~0u, s1, q * 8 + 4));
        {
          u16 *to = queries + w * 128 + g;
          float c[8][4] = {};
#pragma unroll
          for (int t = 0; t < 8; t++) multiply(c[t], vf[t], p0, p1);
          __syncwarp();
#pragma unroll
          for (int t = 0; t < 8; t++) {
            const u32 both = pair(c[t][0], c[t][2]);
            if (q == 0) to[t * 16] = (u16)both, to[t * 16 + 8] = (u16)(both >> 16);
          }
        }
        __syncwarp();
        const uint2 o = *(const uint2 *)(queries + w * 128 + lane * 4);
        post2(mail(m_att + row * 2048 + head * 128 + lane * 4), o.x, o.y);
        __syncwarp();
      }
      auto bring = [&](int layer, int positions) {  // the cache of the next layer
        if (item >= rows * 8) return;
        const u8 *from = (const u8 *)(a.cache + (((size_t)item * LAYERS + layer) * 2 + (w & 1)) * KEPT * 128);
        const u32 to = shared_at(tiles) + mine * TILE + (w & 1) * (TILE / 2);
        for (int i = lane; i < positions * 16; i += 32)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + (i >> 4) * 256 +
                                                                         (((i & 15) ^ ((i >> 4) & 7)) << 4)),
                       "l"(from + i * 16)
                       : "memory");
      };
      if (pass == 0 && l == LAYERS - 1) {
        // The next sums go to the same region: say that this one was read.
        if (lane < 2)
          asm volatile(
              "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(shared_at(sums + 2), lane))
              : "memory");
        meet();
        bring(0, 1);
        break;
      }
      team.product<16, 2048 / 128, false, OWN_ROW>(
          odd, [&](int row) { return mail(m_att + row * 2048 + rank * (2048 / 2)); });
      own(m_out);
      bring(l + 1 < LAYERS ? l + 1 : 0, l + 1 < LAYERS ? pass : min(pass + 1, KEPT));
      team.product<96, HID / 128, true, GATE_ROW>(even,
                                                  [&](int row) { return mail(m_out + row * HID + rank * (HID / 2)); });
      {
        const int row = tid & 63, third = tid >> 6;  // eight gates, eight ups
        if (third < 3 && row < rows) {
          const float r = team.scale(squares, row, HID);
          u32 word[4];
#pragma unroll
          for (int i = 0; i < 2; i++) {
            const float4 gate = team.sum4<2, GATE_ROW>(even, row, third * 16 + i * 4),
                         up = team.sum4<2, GATE_ROW>(even, row, third * 16 + 8 + i * 4);
            const float g0 = gate.x * r, g1 = gate.y * r, g2 = gate.z * r, g3 = gate.w * r;
            word[i * 2] = pair(__fdividef(g0, 1 + __expf(-g0)) * up.x * r, __fdividef(g1, 1 + __expf(-g1)) * up.y * r);
            word[i * 2 + 1] =
                pair(__fdividef(g2, 1 + __expf(-g2)) * up.z * r, __fdividef(g3, 1 + __expf(-g3)) * up.w * r);
          }
          post4(mail(m_act + row * FFN + b * 24 + third * 8), make_uint4(word[0], word[1], word[2], word[3]));
        }
      }
      team.product<16, FFN / 128, false, OWN_ROW>(odd,
                                                  [&](int row) { return mail(m_act + row * FFN + rank * (FFN / 2)); });
      own(m_down);
    }
    if (pass) {
      const u32 m_logits = logit_mail + (pass - 1) * rows * CODES * 2;
      team.product<32, HID / 128, true, CODE_ROW>(even, [&](int row) {
        return mail(first_mail + (pass + 1) * LAYERS * N_LAYER - rows * HID + row * HID + rank * (HID / 2));
      });
      const int row = tid >> 2, n = (tid & 3) * 4;
      if (row < rows) {
        const float r = team.scale(squares, row, HID);
        const float4 s = team.sum4<2, CODE_ROW>(even, row, n);
        post4(mail(m_logits + (row * CODES + b * 16 + n) * 2),
              make_uint4(__float_as_uint(s.x * r), __float_as_uint(s.y * r), __float_as_uint(s.z * r),
                         __float_as_uint(s.w * r)));
      }
      if ((b & 1) && (b >> 1) < rows) {
        const int row = b >> 1, code = sample(a, row, pass, (u8 *)mail(m_logits + row * CODES * 2), small, tid);
        if (tid == 0) {
          post(mail(code_mail + ((pass - 1) * rows + row) * 2), code);
          if (!a.forced) a.codes[row * 16 + pass] = code;
        }
        meet();
      }
    }
  }
}
